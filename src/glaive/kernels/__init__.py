"""Layer 1: loops over flat memory, each behind a checked wrapper."""
