"""``merge_insert``: match rows by keys, then update, insert or delete them."""
