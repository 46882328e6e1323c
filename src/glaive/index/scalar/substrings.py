"""Kinds of index that are never rebuilt: their segments cover nothing of the rewritten fragments.

Specification: "Kinds that are not rebuilt" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

from glaive.index.protocol import IndexKind
from glaive.index.registry import index_kind

__all__ = ["SubstringIndex"]


@index_kind
class SubstringIndex(IndexKind):
    """FM: the strings of a column compressed as one, from which no row can be removed."""

    name: ClassVar[str] = "fm"
    newest: ClassVar[int] = 10
