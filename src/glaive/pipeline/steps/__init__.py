"""Kinds of steps, a file each: its name is that of the kind."""
