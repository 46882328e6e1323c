"""Rows whose vectors are nearest to a query: exactly, and by vector indices."""
