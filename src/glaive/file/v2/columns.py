"""Reading files of format 2.x."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from operator import is_
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import spread_equal
from glaive.dataclass import dataclass
from glaive.encodings.levels import Leaf
from glaive.encodings.miniblock.reader import join_mapped
from glaive.encodings.pages.blob import BlobPage
from glaive.encodings.protocol import Fetch, PageReader
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.blobs import is_described
from glaive.format.field import Field
from glaive.types import Int64s, Where

# --- The physical columns of a field, depth first, from format 2.1 on -------------------
# Only leaves own columns: structs and lists are stored in the levels of the leaves below them. A
# leaf is a primitive, a string or binary, a fixed-size list of a primitive, a packed struct, or a
# struct without fields.
#
# Specification: "Columns" in ``docs/format/schema.md``.

Kind = Literal["leaf", "struct", "list", "map", "fixed", "empty"]

Members = tuple[tuple[int, "Members | None"], ...]
"""Wanted members of a packed struct: their positions, and the members of nested structs."""


@dataclass(frozen=True, slots=True)
class Node:
    """One field with the shape that matters for reading and writing it.

    ``layers`` flags the lists on the path from here to the row, inner-most first; ``wide`` flags
    those with 64-bit offsets, outer-most first. ``sizes``, in the order of ``layers``, are the
    dimensions of fixed-size lists of structs, and 1 for other layers. ``column`` is the
    physical column of a leaf, None when the file lacks it. ``members`` are the wanted members
    of a packed struct, None for all. ``leaf_count`` leaves are below this node, or it is one.
    """

    kind: Kind
    name: str
    type: pa.DataType
    nullable: bool
    field: Field
    children: tuple[Node, ...]
    layers: tuple[bool, ...]
    wide: tuple[bool, ...]
    sizes: tuple[int, ...]
    column: int | None
    members: Members | None = None
    leaf_count: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        below = sum(child.leaf_count for child in self.children)
        object.__setattr__(self, "leaf_count", below or 1)

    @property
    def entries_per_row(self) -> int:
        """Entries of each row in the column of this leaf, lists not counted."""
        return prod(self.sizes)

    def leaves(self) -> Iterator[Node]:
        """Leaves below this node (or itself), depth first."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def number_columns(fields: Sequence[Field]) -> dict[int, int]:
    """Column index by field id when a file numbers the leaves of its own schema."""
    leaves = (leaf for field in fields for leaf in field.leaf_columns())
    return {leaf.id: column for column, leaf in enumerate(leaves)}


def column_tree(
    field: Field, column_of: Mapping[int, int], stored: Callable[[int], Field] | None = None
) -> Node:
    """The node of a top-level field.

    ``stored`` returns a field of the file's schema by id: a reader that wants some members of a
    packed struct must know all of them.

    Raises
    ------
    CorruptFileError
        A fixed-size list has no items.
    UnsupportedFeatureError
        A packed struct of the file lacks a wanted member.
    """
    return _node(field, column_of, stored, (), (), ())


def _kind(field: Field) -> Kind:
    logical = field.logical_type
    if logical == "struct":
        if field.is_packed:
            return "leaf"
        return "struct" if field.children else "empty"
    if logical in ("list", "list.struct", "large_list", "large_list.struct"):
        return "list"
    if logical == "map":
        return "map"
    return "fixed" if field.children else "leaf"


def _node(
    field: Field,
    column_of: Mapping[int, int],
    stored: Callable[[int], Field] | None,
    outside: tuple[bool, ...],
    wide_outside: tuple[bool, ...],
    sizes_outside: tuple[int, ...],
) -> Node:
    kind = _kind(field)
    arrow = field.to_arrow()
    is_list = kind in ("list", "map")
    layers = (is_list, *outside)
    wide = (*wide_outside, field.logical_type.startswith("large_list"))
    sizes = (_size(field, arrow.type) if kind == "fixed" else 1, *sizes_outside)
    children: tuple[Node, ...] = ()
    column = None
    if kind in ("leaf", "empty"):
        column = column_of.get(field.id)
        if column is not None and column < 0:
            column = None
    else:
        children = tuple(
            _node(child, column_of, stored, layers, wide, sizes) for child in field.children
        )
    if kind == "map":
        children = (_as_entries(children[0], arrow.type),)
    members = None
    if field.is_packed and not is_described(field) and column is not None and stored is not None:
        members = _wanted_members(field, stored(field.id))
    return Node(
        kind,
        field.name,
        arrow.type,
        field.nullable,
        field,
        children,
        layers,
        wide,
        sizes,
        column,
        members,
    )


def _as_entries(node: Node, kind: Any) -> Node:
    """The entries of a map with the names that Arrow has for their parts, and keys never null.

    With those of the fields they are not what the map's type says: Arrow ends the process where it
    meets such a value.
    """
    return dataclasses.replace(node, type=pa.struct([kind.key_field, kind.item_field]))


def _wanted_members(field: Field, stored: Field) -> Members | None:
    positions = {child.id: at for at, child in enumerate(stored.children)}
    missing = [child.name for child in field.children if child.id not in positions]
    if missing:
        raise UnsupportedFeatureError(
            f"packed struct {field.name!r} of a file has no member {missing[0]!r}: a packed struct "
            "gets another member only when all of its files are rewritten"
        )
    wanted = tuple(
        (positions[child.id], _wanted_members(child, stored.children[positions[child.id]]))
        for child in field.children
    )
    whole = tuple((at, None) for at in range(len(positions)))
    return None if wanted == whole else wanted


def _size(field: Field, arrow: Any) -> int:
    if not pa.types.is_fixed_size_list(arrow):
        raise CorruptFileError(
            f"type of field {field.name!r}",
            expected="one that has fields below, as it does",
            found=str(arrow),
            where="schema",
        )
    size: int = arrow.list_size
    if size < 1:
        raise CorruptFileError(
            f"size of field {field.name!r}", expected="1 or more", found=str(size), where="schema"
        )
    return size


# --- The physical columns of a field in format 2.0 --------------------------------------
# Every struct and every list owns a column, before those of its children. A fixed-size list and a
# packed struct own a single column, which includes their children.
#
# Specification: "Columns of format 2.0" in ``docs/format/arrays.md``.

_LISTS = ("list", "list.struct", "large_list", "large_list.struct")


def column_owners(fields: Sequence[Field]) -> Iterator[Field]:
    """Fields at or below these that own a column, in column order."""
    for field in fields:
        yield field
        if _kind_of_array(field) != "leaf":
            yield from column_owners(field.children)


def number_array_columns(
    fields: Sequence[Field], width: Callable[[Field, int], int] | None = None
) -> dict[int, int]:
    """Column by field id when a file numbers the fields of its own schema.

    ``width`` returns the number of columns of a field without children, given its first column:
    Lance before 0.14 wrote two for strings.
    """
    columns: dict[int, int] = {}
    at = 0
    for field in column_owners(fields):
        columns[field.id] = at
        at += 1 if width is None else width(field, at)
    return columns


def array_tree(field: Field, column_of: Mapping[int, int]) -> Node:
    """The node of a top-level field; columns the file does not have are None.

    Raises
    ------
    UnsupportedFeatureError
        Format 2.0 has no such type.
    """
    kind = _kind_of_array(field)
    column = column_of.get(field.id)
    if column is not None and column < 0:
        column = None
    children: tuple[Node, ...] = ()
    if kind != "leaf":
        children = tuple(array_tree(child, column_of) for child in field.children)
    return Node(
        kind, field.name, field.arrow_type, field.nullable, field, children, (), (), (), column
    )


def _kind_of_array(field: Field) -> Kind:
    logical = field.logical_type
    if logical == "map":
        raise UnsupportedFeatureError(
            f"field {field.name!r} is a map, which format 2.0 does not support; 2.2 does"
        )
    if logical in _LISTS:
        return "list"
    if logical == "struct" and not field.is_packed:
        return "struct"
    return "leaf"


# --- Pages of fixed-size lists of structs, whose entries are items: several are a row ---


class GroupedPage(PageReader):
    """A page of fixed-size lists of structs: ``size`` entries are a row.

    Specification: "Fixed-size lists of structs" in ``docs/format/levels.md``.
    """

    def __init__(self, page: PageReader, size: int) -> None:
        self.page = page
        self.size = size
        self.rows = page.rows // size
        self.cuts = [cut // size for cut in page.cuts if cut % size == 0]

    @property
    def entries(self) -> int:
        """Those of the page."""
        return self.page.entries

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the page."""
        return self.page.nbytes

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """All entries of the rows."""
        return self.page.read(start * self.size, stop * self.size)

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """All entries of the rows, row by row.

        Raises
        ------
        CapacityError
            Several rows have more entries than are listed at once.
        """
        if len(rows) == 1:  # not listed: the type alone says how many there are
            row = rows.item(0)
            return self.read(row, row + 1)
        return self.page.take(spread_equal(rows, self.size))


# --- One physical column of a file: its pages -------------------------------------------

COLUMN_BYTES = 512
"""Bytes of memory of a column besides its pages."""


class Column:
    """One physical column: its pages, and the first row of each.

    ``cuts`` are the rows at which a reader of all rows should divide it.
    """

    __slots__ = ("__weakref__", "cuts", "pages", "starts", "where")

    def __init__(self, pages: Sequence[PageReader], where: Where) -> None:
        self.pages = join_mapped([page for page in pages if page.rows])
        self.where = where
        self.starts = [0]
        self.cuts: list[int] = []
        for page in self.pages:
            start = self.starts[-1]
            self.cuts += [start, *[start + cut for cut in page.cuts]]
            self.starts.append(start + page.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held after all pages were read from; an estimate."""
        return COLUMN_BYTES + sum(page.nbytes for page in self.pages)

    @property
    def rows(self) -> int:
        """Rows of the column."""
        return self.starts[-1]

    @property
    def entries(self) -> int:
        """Entries of all rows, by what the pages say of themselves."""
        return sum(page.entries for page in self.pages)

    def read(self, start: int, stop: int) -> Iterator[tuple[int, Fetch[Leaf] | Leaf]]:
        """Rows ``start`` to ``stop``, page by page, with the number of rows of each."""
        at = bisect_right(self.starts, start) - 1
        while start < stop:
            first, end = self.starts[at], min(stop, self.starts[at + 1])
            yield end - start, self.pages[at].read(start - first, end - first)
            start, at = end, at + 1

    def take(self, rows: Int64s) -> Iterator[tuple[int, Fetch[Leaf] | Leaf]]:
        """The rows at these ascending positions, page by page, with the number of each."""
        pages = np.searchsorted(self.starts, rows, side="right") - 1
        edges = np.flatnonzero(pages[1:] != pages[:-1]) + 1
        numbers = pages[np.append(0, edges)].tolist()
        for part, at in zip(np.split(rows, edges), numbers, strict=True):
            yield len(part), self.pages[at].take(part - self.starts[at])

    def with_values(self, end: int) -> Column:
        """The same column with blobs as values, which are stored before ``end``."""
        pages = [page.with_values(end) for page in self.pages]
        if all(map(is_, pages, self.pages)):
            return self
        return Column(pages, self.where)

    def with_inline_descriptors(self) -> Column:
        """The same column with descriptors of ``lance.blob.v2`` where a page has older ones."""
        if not any(isinstance(page, BlobPage) for page in self.pages):
            return self
        pages = [
            page.with_inline_descriptors() if isinstance(page, BlobPage) else page
            for page in self.pages
        ]
        return Column(pages, self.where)

    def grouped(self, size: int) -> Column:
        """The same column for rows of ``size`` entries each.

        Raises
        ------
        CorruptFileError
            A page ends within a row.
        """
        if size == 1:
            return self
        uneven = next((page.rows for page in self.pages if page.rows % size), None)
        if uneven is not None:
            raise CorruptFileError(
                "page rows", expected=f"a multiple of {size}", found=str(uneven), where=self.where
            )

        return Column([GroupedPage(page, size) for page in self.pages], self.where)
