"""How much memory an opened page takes, for caches with a budget: estimates, without reading."""

from __future__ import annotations

__all__ = ["PAGE_BYTES", "page_bytes"]

PAGE_BYTES = 2 * 1024
"""Bytes of an opened page that keeps nothing else."""

_CHUNK = 48
"""Bytes per entry of a chunk table, with the rows that begin in the chunk."""

_EXPANDED = 6
"""Bytes in memory per byte of a dictionary or of structure on disk, about."""


def page_bytes(chunks: int, expanded: int) -> int:
    """Bytes of memory of a page with so many chunks.

    ``expanded`` are bytes on disk that are decoded when the page is first read from, and kept.
    """
    return PAGE_BYTES + _CHUNK * chunks + _EXPANDED * expanded
