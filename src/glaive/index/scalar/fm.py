"""FM: where runs of bytes occur in the texts of a column.

Specification: "Kinds that are not rebuilt" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

from glaive.index.protocol import IndexKind
from glaive.index.registry import index_kind

__all__ = ["SubstringIndex"]


@index_kind
class SubstringIndex(IndexKind):
    """Texts as one compressed whole, of which no row can be left out."""

    name: ClassVar[str] = "fm"
    newest: ClassVar[int] = 10
