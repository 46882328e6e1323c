"""Blob columns: the values users write, and how they are read."""
