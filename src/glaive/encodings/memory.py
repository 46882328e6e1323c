"""Estimates of the memory of an opened page, for caches with a budget; nothing is read."""

from __future__ import annotations

__all__ = ["PAGE_BYTES", "page_bytes"]

PAGE_BYTES = 2 * 1024
"""Bytes of an opened page without its chunk table, dictionary and structure."""

_CHUNK = 48
"""Bytes per entry of a chunk table, with the rows that begin in the chunk."""

_EXPANDED = 6
"""Approximate bytes in memory per byte on disk of a dictionary or a sparse structure."""


def page_bytes(chunks: int, expanded: int) -> int:
    """Bytes of memory of a page with ``chunks`` chunks.

    ``expanded`` are the bytes on disk that the first read decodes and keeps.
    """
    return PAGE_BYTES + _CHUNK * chunks + _EXPANDED * expanded
