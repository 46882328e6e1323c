"""BLOOMFILTER: a filter for the values of each stretch of rows.

Specification: "Kinds that are not rebuilt" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

from glaive.index.protocol import IndexKind
from glaive.index.registry import index_kind

__all__ = ["BloomFilter"]


@index_kind
class BloomFilter(IndexKind):
    """Filters of stretches of rows, which a rewrite cuts differently."""

    name: ClassVar[str] = "bloomfilter"
    newest: ClassVar[int] = 0
