"""Formats of source files, a file each."""
