"""Full-text search: queries, rows that indices find, rows that no index knows, columns of both."""
