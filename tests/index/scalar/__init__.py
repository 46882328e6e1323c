"""Scalar indices: searched, built, merged."""
