"""Blocks of values ↔ buffers of bytes, in memory."""
