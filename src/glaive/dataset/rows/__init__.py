"""``delete`` and ``update``, and their shared functions."""
