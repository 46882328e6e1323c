"""Expressions over columns: filters and computed columns."""
