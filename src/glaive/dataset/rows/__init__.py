"""Rows that go or get new values: ``delete`` and ``update``, and what both need."""
