"""Writing files of format 2.x."""
