"""Bytes: stores, ranges, sinks, for any format."""
