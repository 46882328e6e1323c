"""Fragments of a dataset, for distributed reads and writes."""
