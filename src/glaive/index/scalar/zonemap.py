"""ZONEMAP: least and greatest value of each stretch of rows.

Specification: "Kinds that are not rebuilt" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

from glaive.index.protocol import IndexKind
from glaive.index.registry import index_kind

__all__ = ["ZoneMap"]


@index_kind
class ZoneMap(IndexKind):
    """Bounds of stretches of rows, which a rewrite cuts differently."""

    name: ClassVar[str] = "zonemap"
    newest: ClassVar[int] = 0
