"""Bytes: stores, ranges, sinks. Nothing here knows of Lance."""
