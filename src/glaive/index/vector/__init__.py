"""Vector indices: partitions of rows around centroids, their codes and their graphs."""
