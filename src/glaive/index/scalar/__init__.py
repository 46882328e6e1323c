"""Indices over single values: one module per kind, found by :mod:`glaive.index.registry`."""
