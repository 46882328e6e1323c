"""Scalar indices: their kinds, found by :mod:`glaive.index.protocol`."""
