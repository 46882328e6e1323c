"""Building, merging, committing and describing secondary indices."""
