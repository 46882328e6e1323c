"""Vector indices: partitions of rows around centroids, with quantised vectors and graphs."""
