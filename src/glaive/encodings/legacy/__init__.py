"""Encodings of the 0.1 format: values as they are, one page per batch of rows."""
