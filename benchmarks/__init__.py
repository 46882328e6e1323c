"""Glaive against pylance and Parquet, on the same data, in one process. ``make bench``."""
