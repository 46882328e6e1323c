"""Compare glaive with pylance and Parquet, on the same data, in one process. ``make bench``."""
