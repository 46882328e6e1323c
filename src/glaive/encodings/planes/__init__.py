"""The planes that format 2.3 makes pages of: one module per structure and per kind of values."""
