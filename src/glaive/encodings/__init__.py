"""Layer 3: blocks of values ↔ buffers of bytes. No I/O."""
