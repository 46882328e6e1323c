"""Arrow memory: blocks, bitmaps, and arrays built from buffers."""
