"""``merge_insert``: rows matched by keys, and what becomes of them."""
