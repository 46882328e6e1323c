"""Add, change and drop columns."""
