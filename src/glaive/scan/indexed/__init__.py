"""Filters answered by scalar indices: which tests, by which index, and what it found."""
