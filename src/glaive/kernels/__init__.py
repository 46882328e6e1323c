"""Layer 1: kernels over flat memory, each behind a checked wrapper."""
