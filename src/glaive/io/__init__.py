"""Bytes: stores, ranges, sinks. Nothing here knows what is in files of Lance."""
