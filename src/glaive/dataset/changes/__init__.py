"""The change feed: rows that versions inserted, updated and deleted."""
