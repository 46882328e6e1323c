"""Kernels over flat memory, each with a wrapper that checks its arguments."""
