"""Vector indices: partitions of rows around centroids, with quantised vectors and graphs."""

CODES = "auxiliary.idx"
INDEX = "index.idx"
"""Names of the files of an index."""
