"""Blocks of values ↔ buffers of bytes. No I/O."""
