"""Commits of built-in operations, and of transactions that users construct."""
