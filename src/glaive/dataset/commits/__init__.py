"""Commits: of changes made here, and of transactions that users make by hand."""
