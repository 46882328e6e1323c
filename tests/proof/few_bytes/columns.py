"""Columns that trials have: their Arrow type, and what pages are to hold."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from tests.proof.few_bytes.chunks import Kind
from tests.proof.few_bytes.draws import Draws
from tests.proof.few_bytes.pages import Shape

__all__ = ["Column", "column_of"]

_NUMBER = Kind(32)
_TEXT = Kind(32, is_text=True)


class Column(NamedTuple):
    """A field with lists of 4 items where the file is to say ``size``."""

    name: str
    kind: pa.DataType
    shape: Shape
    size: int = 4
    versions: tuple[str, ...] = ("2.1", "2.2", "2.3")


def _lists(bits: int, size: int) -> Kind:
    return Kind(bits, size=size, inner=Kind(bits))


def column_of(draw: Draws) -> Column:
    """Any column."""
    size = draw.of([4, 16, 1024, 1 << 16, 1 << 18])
    four, whole, small = pa.float32(), pa.int32(), pa.int8()
    flags, pair = pa.struct([("x", pa.bool_())]), pa.struct([("x", whole), ("y", whole)])
    vector, null = _lists(32, size), Kind(0, size=size, inner=Kind(1))
    lists_within = pa.struct([("x", pa.list_(small))])
    wide = Kind(64, size=size, inner=_lists(32, 2))
    inside, later, latest = ("item", size), ("2.2", "2.3"), ("2.3",)
    options = [
        Column("int", whole, Shape(_NUMBER)),
        Column("long", pa.int64(), Shape(Kind(64))),
        Column("byte", pa.uint8(), Shape(Kind(8))),
        Column("flag", pa.bool_(), Shape(Kind(1))),
        Column("text", pa.string(), Shape(_TEXT)),
        Column("large text", pa.large_string(), Shape(Kind(64, is_text=True))),
        Column("bytes", pa.binary(3), Shape(Kind(24))),
        Column("vector", pa.list_(four, 4), Shape(vector), size),
        Column("flags", pa.list_(pa.bool_(), 4), Shape(_lists(1, size)), size),
        Column("bytes of a vector", pa.list_(pa.uint8(), 4), Shape(_lists(8, size)), size),
        Column("vectors", pa.list_(pa.list_(four, 2), 4), Shape(wide), size),
        Column("nulls of a vector", pa.list_(pa.null(), 4), Shape(null), size),
        Column("list", pa.list_(whole), Shape(_NUMBER, ("list",))),
        Column("list of flags", pa.list_(pa.bool_()), Shape(Kind(1), ("list",))),
        Column("lists", pa.list_(pa.list_(whole)), Shape(_NUMBER, ("list", "list"))),
        Column("list of texts", pa.list_(pa.string()), Shape(_TEXT, ("list",))),
        Column("list of vectors", pa.list_(pa.list_(four, 4)), Shape(vector, ("list",)), size),
        Column("struct", pa.struct([("x", whole)]), Shape(_NUMBER, ("item",))),
        Column("list of structs", pa.list_(pair), Shape(_NUMBER, ("item", "list"))),
        Column("vector of structs", pa.list_(flags, 4), Shape(Kind(1), inside), size, later),
        Column(
            "list of vectors of structs",
            pa.list_(pa.list_(flags, 4)),
            Shape(Kind(1), (*inside, "list")),
            size,
            latest,
        ),
        Column(
            "vector of lists in structs",
            pa.list_(lists_within, 4),
            Shape(Kind(8), ("list", *inside)),
            size,
            latest,
        ),
        Column("dictionary", pa.dictionary(whole, pa.string()), Shape(_TEXT)),
        Column("dictionary of numbers", pa.dictionary(whole, pa.int64()), Shape(Kind(64))),
        Column("null", pa.null(), Shape(Kind(8))),
    ]
    return draw.of(options)
