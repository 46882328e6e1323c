"""Array encodings of format 2.0, one module each."""
