"""Columns that come, change and go."""
