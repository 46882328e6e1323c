"""Kernels over flat memory, each behind a checked wrapper."""
