"""Blob columns: descriptors, values, and files over them."""
