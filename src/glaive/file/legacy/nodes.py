"""Fields of a 0.1 file, which assemble their values from pages.

A field has one page per batch; structs have none, only their members have. The format has no
validity: nulls read as the value in their slot. Only empty strings and binary read as null,
in nullable fields.

Specification: "Pages" and "Nulls" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.buffers import pack_flags
from glaive.arrow.build import all_null, leaf_bits, offset_bits, to_array
from glaive.arrow.list_arrays import list_array
from glaive.dataclass import dataclass
from glaive.encodings.fetch import Fetch, and_then, join
from glaive.encodings.legacy.dictionary import keys_into
from glaive.encodings.legacy.lists import ListParts, read_lists
from glaive.encodings.legacy.pages import Pages, Spans
from glaive.encodings.legacy.plain import read_plain
from glaive.encodings.legacy.var_binary import read_var_binary
from glaive.errors import UnsupportedFeatureError
from glaive.format.fields import Field
from glaive.kernels.strings import value_lengths
from glaive.memory import items_of
from glaive.types import Where

__all__ = ["Node", "Opener", "open_node", "plain_bits"]

Opener = Callable[[Field, int, int], Pages | None]
"""Pages of a field, by the bits of its values and how many more values a page has than the page
table says; None when the file does not have the field."""

Step = Fetch[pa.Array] | pa.Array


class Node(ABC):
    """One field, with all fields below."""

    __slots__ = ()

    kind: pa.DataType

    @abstractmethod
    def read(self, spans: Spans) -> Step:
        """The values of spans, in order, as one array."""


@dataclass(slots=True)
class _Plain(Node):
    kind: pa.DataType
    pages: Pages
    values: int

    def read(self, spans: Spans) -> Step:
        return and_then(read_plain(self.pages, spans, self.values), self._finish)

    def _finish(self, block: FixedWidth) -> pa.Array:
        return to_array(block, self.kind, None, 0, self.pages.where)


@dataclass(slots=True)
class _Strings(Node):
    kind: pa.DataType
    pages: Pages
    offset_bits: int
    nullable: bool

    def read(self, spans: Spans) -> Step:
        return and_then(read_var_binary(self.pages, spans, self.offset_bits), self._finish)

    def _finish(self, block: Variable) -> pa.Array:
        validity, nulls = None, 0
        bits, count = block.offset_bits, block.count
        if self.nullable and count:
            shortest, _ = value_lengths(block.offsets, bits, block.data, count)
            if shortest == 0:
                ends = items_of(block.offsets, f"<i{bits // 8}", count + 1)
                flags = ends[1:] != ends[:-1]
                validity, nulls = pack_flags(flags), count - int(np.count_nonzero(flags))
        return to_array(block, self.kind, validity, nulls, self.pages.where)


@dataclass(slots=True)
class _Keys(Node):
    kind: Any
    pages: Pages
    items: Callable[[], Step]
    known: pa.Array | None = field(default=None)

    def read(self, spans: Spans) -> Step:
        keys = read_plain(self.pages, spans)
        items = self.known if self.known is not None else self.items()
        return join([keys, items], self._finish)

    def _finish(self, parts: list[Any]) -> pa.Array:
        keys, self.known = parts
        return keys_into(keys, self.kind, parts[1], self.pages.where)


@dataclass(slots=True)
class _Lists(Node):
    kind: pa.DataType
    pages: Pages
    items: Node

    def read(self, spans: Spans) -> Step:
        return and_then(read_lists(self.pages, spans), self._items)

    def _items(self, parts: ListParts) -> Step:
        return and_then(self.items.read(parts.items), partial(self._finish, parts))

    def _finish(self, parts: ListParts, items: pa.Array) -> pa.Array:
        width = self.pages.bits // 8
        slots = parts.offsets.size // width - 1
        return list_array(self.kind, slots, None, 0, parts.offsets, items, self.pages.where)


@dataclass(slots=True)
class _Struct(Node):
    kind: pa.DataType
    members: tuple[Node, ...]

    def read(self, spans: Spans) -> Step:
        return join(
            [member.read(spans) for member in self.members], partial(self._finish, spans.total)
        )

    def _finish(self, rows: int, members: list[pa.Array]) -> pa.Array:
        return pa.Array.from_buffers(self.kind, rows, [None], 0, children=members)


@dataclass(slots=True)
class _Nulls(Node):
    """A column of nulls, or one that the file does not have."""

    kind: pa.DataType

    def read(self, spans: Spans) -> Step:
        return all_null(self.kind, spans.total)


def plain_bits(kind: pa.DataType) -> tuple[int, int]:
    """Bits of a value of a fixed-width type, and the booleans in one value, else 1."""
    bits = leaf_bits(kind)
    if bits is None or bits == 0:
        raise UnsupportedFeatureError(f"format 0.1 has no plain values of type {kind}")
    inner: Any = kind
    while pa.types.is_fixed_size_list(inner):
        inner = inner.value_type
    return bits, bits if pa.types.is_boolean(inner) else 1


def open_node(field: Field, pages: Opener, items: Callable[[Field], Step], where: Where) -> Node:
    """The node of a field and those below.

    Parameters
    ----------
    pages
        Finds the pages of a field.
    items
        Reads the items of a dictionary field.

    Raises
    ------
    UnsupportedFeatureError
        0.1 files cannot contain such fields.
    """
    kind: Any = field.arrow_type
    logical = field.logical_type
    if field.is_blob_v2:
        raise UnsupportedFeatureError(
            f"column {field.name!r} has blobs, of which files of format 0.1 have no descriptions "
            f"(in {where})"
        )
    if logical == "struct":
        members = tuple(open_node(child, pages, items, where) for child in field.children)
        if members and all(isinstance(member, _Nulls) for member in members):
            missing = not any(pa.types.is_null(leaf.arrow_type) for leaf in field.leaves())
            if missing:
                return _Nulls(kind)
        return _Struct(kind, members)
    if logical.startswith(("list", "large_list")):
        own_pages = pages(field, 64 if logical.startswith("large") else 32, 0)
        if own_pages is None:
            return _Nulls(kind)
        return _Lists(kind, own_pages, open_node(field.children[0], pages, items, where))
    if field.children:
        raise UnsupportedFeatureError(
            f"field {field.name!r} has logical type {logical!r}, which files of format 0.1 do not "
            f"support (in {where})"
        )
    if pa.types.is_null(kind):
        return _Nulls(kind)
    width = offset_bits(kind)
    if width is not None:
        own_pages = pages(field, 64, 1)
        if own_pages is None:
            return _Nulls(kind)
        return _Strings(kind, own_pages, width, field.nullable)
    if pa.types.is_dictionary(kind):
        own_pages = pages(field, int(kind.index_type.bit_width), 0)
        return _Nulls(kind) if own_pages is None else _Keys(kind, own_pages, partial(items, field))
    bits, values = plain_bits(kind)
    own_pages = pages(field, bits, 0)
    return _Nulls(kind) if own_pages is None else _Plain(kind, own_pages, values)
