"""Layer 1: bytes: stores, ranges, sinks."""
