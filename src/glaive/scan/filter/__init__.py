"""Filtered scans: find rows by a predicate, then read the rest of their columns."""
