"""Reading files of format 2.x."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import is_
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, Struct, join_bits, pack_flags, spread_equal
from glaive.arrow.build import all_null, expand, list_array, to_array
from glaive.arrow.chunked import concat_arrays
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.levels import Layer, LayerStep, Leaf, Slots, layer_steps, list_layers
from glaive.encodings.pages.blob import BlobPage
from glaive.encodings.pages.miniblock import join_mapped
from glaive.encodings.protocol import Fetch, PageReader
from glaive.errors import CapacityError, CorruptFileError, UnsupportedFeatureError
from glaive.file.protocol import memory_bytes
from glaive.format.blobs import is_described, stored
from glaive.format.field import Field
from glaive.kernels.levels import resolve_lists, validity_from_levels
from glaive.types import MAX_OFFSET, Int64s, UInt16s, Where, as_buffer, items_of

# --- The physical columns of a field, depth first, from format 2.1 on -------------------
#
# Only leaves own columns: structs and lists are stored in the levels of the leaves below them. A
# leaf is a primitive, a string or binary, a fixed-size list of a primitive, a packed struct, or an
# empty struct.
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
    physical column of a leaf, ``None`` when the file lacks it. ``members`` are the wanted members
    of a packed struct, ``None`` for all. ``leaf_count`` leaves are below this node, or it is one.
    ``entries_per_row`` are entries of each row in the column of a leaf, lists not counted.
    """

    kind: Kind
    name: str
    type: pa.DataType
    nullable: bool
    field: Field
    arrow: pa.Field
    children: tuple[Node, ...]
    layers: tuple[bool, ...]
    wide: tuple[bool, ...]
    sizes: tuple[int, ...]
    column: int | None
    members: Members | None = None
    leaf_count: int = dataclasses.field(init=False)
    entries_per_row: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        below = sum(child.leaf_count for child in self.children)
        object.__setattr__(self, "leaf_count", below or 1)
        object.__setattr__(self, "entries_per_row", prod(self.sizes))

    def leaves(self) -> Iterator[Node]:
        """Yield the leaves below this node (or itself), depth first."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def number_columns(fields: Sequence[Field]) -> dict[int, int]:
    """Return the column index by field id when a file numbers the leaves of its own schema."""
    leaves = (leaf for field in fields for leaf in field.leaf_columns())
    return {leaf.id: column for column, leaf in enumerate(leaves)}


def column_tree(
    field: Field, column_of: Mapping[int, int], in_file: Callable[[int], Field] | None = None
) -> Node:
    """Return the node of a top-level field.

    ``in_file`` returns a field of the file's schema by id: a reader that wants some members of a
    packed struct must know all of them.

    Raises
    ------
    CorruptFileError
        A fixed-size list has zero items.
    UnsupportedFeatureError
        A packed struct of the file lacks a wanted member.
    """
    return _node(field, column_of, in_file, (), (), ())


_MAX_CACHED_COLUMNS: Final = 1_000


def stored_trees(
    fields: Sequence[Field], column_of: Mapping[int, int], in_file: Callable[[int], Field]
) -> Sequence[Node]:
    """Return the nodes of top-level fields as files store them.

    Equal fields in the same columns share their nodes. ``in_file`` returns a field of the file's
    schema, which packed structs need.
    """
    nodes = None
    if len(column_of) <= _MAX_CACHED_COLUMNS:
        nodes = _stored_trees(tuple(fields), tuple(column_of.items()))
    return nodes or [column_tree(stored(field), column_of, in_file) for field in fields]


@lru_cache(maxsize=64)
def _stored_trees(
    fields: tuple[Field, ...], columns: tuple[tuple[int, int], ...]
) -> Sequence[Node] | None:
    nodes = [column_tree(stored(field), dict(columns)) for field in fields]
    leaves = [leaf.field for node in nodes for leaf in node.leaves()]
    are_packed = any(leaf.is_packed and not is_described(leaf) for leaf in leaves)
    return None if are_packed else nodes


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
    in_file: Callable[[int], Field] | None,
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
            _node(child, column_of, in_file, layers, wide, sizes) for child in field.children
        )
    if kind == "map":
        children = (_as_entries(children[0], arrow.type),)
    members = None
    if field.is_packed and not is_described(field) and column is not None and in_file is not None:
        members = _wanted_members(field, in_file(field.id))
    return Node(
        kind,
        field.name,
        arrow.type,
        field.nullable,
        field,
        arrow,
        children,
        layers,
        wide,
        sizes,
        column,
        members,
    )


def _as_entries(node: Node, kind: Any) -> Node:
    """Return the entries of a map with Arrow's names for their parts, and required keys.

    The names of the fields would contradict the map's type, and Arrow ends the process when it
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
            expected="a type with fields below, as it has them",
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
#
# Every struct and every list owns a column, before the columns of its children. A fixed-size list
# and a packed struct own a single column, which includes their children.
#
# Specification: "Columns of format 2.0" in ``docs/format/arrays.md``.

_LISTS = ("list", "list.struct", "large_list", "large_list.struct")


def column_owners(fields: Sequence[Field]) -> Iterator[Field]:
    """Yield the fields at or below these that own a column, in column order."""
    for field in fields:
        yield field
        if _kind_of_array(field) != "leaf":
            yield from column_owners(field.children)


def number_array_columns(
    fields: Sequence[Field], width: Callable[[Field, int], int] | None = None
) -> dict[int, int]:
    """Return the column by field id when a file numbers the fields of its own schema.

    ``width`` returns the number of columns of a leaf, given its first column: Lance before 0.14
    wrote two for strings.
    """
    columns: dict[int, int] = {}
    at = 0
    for field in column_owners(fields):
        columns[field.id] = at
        at += 1 if width is None else width(field, at)
    return columns


def array_tree(field: Field, column_of: Mapping[int, int]) -> Node:
    """Return the node of a top-level field; columns that the file lacks are ``None``.

    Raises
    ------
    UnsupportedFeatureError
        Format 2.0 lacks this type.
    """
    kind = _kind_of_array(field)
    column = column_of.get(field.id)
    if column is not None and column < 0:
        column = None
    children: tuple[Node, ...] = ()
    if kind != "leaf":
        children = tuple(array_tree(child, column_of) for child in field.children)
    arrow = field.to_arrow()
    return Node(
        kind, field.name, arrow.type, field.nullable, field, arrow, children, (), (), (), column
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
        """Number of entries of the page."""
        return self.page.entries

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the page."""
        return self.page.nbytes

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Return all entries of the rows."""
        return self.page.read(start * self.size, stop * self.size)

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """Return all entries of the rows, row by row.

        Raises
        ------
        CapacityError
            Several rows have more entries than are listed at once.
        """
        if len(rows) == 1:  # implied: the type alone says how many there are
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
        """Entries of all rows, as the pages state them."""
        return sum(page.entries for page in self.pages)

    def read(self, start: int, stop: int) -> Iterator[tuple[int, Fetch[Leaf] | Leaf]]:
        """Yield the rows ``start`` to ``stop``, page by page, with the number of rows of each."""
        at = bisect_right(self.starts, start) - 1
        while start < stop:
            first, end = self.starts[at], min(stop, self.starts[at + 1])
            yield end - start, self.pages[at].read(start - first, end - first)
            start, at = end, at + 1

    def take(self, rows: Int64s) -> Iterator[tuple[int, Fetch[Leaf] | Leaf]]:
        """Yield the rows at these ascending positions, page by page, with the number of each."""
        pages = np.searchsorted(self.starts, rows, side="right") - 1
        edges = (pages[1:] != pages[:-1]).nonzero()[0] + 1
        numbers = pages[np.append(0, edges)].tolist()
        for part, at in zip(np.split(rows, edges), numbers, strict=True):
            yield len(part), self.pages[at].take(part - self.starts[at])

    def with_values(self, end: int) -> Column:
        """Return the same column with blobs as values, which are stored before ``end``."""
        pages = [page.with_values(end) for page in self.pages]
        if all(map(is_, pages, self.pages)):
            return self
        return Column(pages, self.where)

    def with_inline_descriptors(self) -> Column:
        """Return the same column with ``lance.blob.v2`` descriptors where a page has older ones."""
        if not any(isinstance(page, BlobPage) for page in self.pages):
            return self
        pages = [
            page.with_inline_descriptors() if isinstance(page, BlobPage) else page
            for page in self.pages
        ]
        return Column(pages, self.where)

    def grouped(self, size: int) -> Column:
        """Return the same column for rows of ``size`` entries each.

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


# --- Leaves whose layers are resolved, page by page, and their join ---------------------


@dataclass(slots=True)
class ResolvedLayer:
    """One resolved layer: validity, and offsets for a list."""

    slots: int
    validity: pa.Buffer | None
    null_count: int
    offsets: pa.Buffer | None

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(one.size for one in (self.validity, self.offsets) if one is not None)


class Resolved(NamedTuple):
    """Rows of a leaf whose layers are resolved.

    Parameters
    ----------
    values
        The innermost layer.
    layers
        Outer-most first; ``None`` where other leaves define the shape.
    rows
        Number of requested rows.
    """

    values: pa.Array
    layers: Sequence[ResolvedLayer | None]
    rows: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values and layers."""
        layers = sum(layer.nbytes for layer in self.layers if layer is not None)
        return memory_bytes(self.values) + layers


def join_pages(leaf: Node, pages: Sequence[Resolved], where: Where) -> Resolved:
    """Return a leaf of one page after the other as if it were in one page."""
    if len(pages) == 1:
        return pages[0]
    layers: list[ResolvedLayer | None] = []
    inner: Sequence[ResolvedLayer] = ()
    by_layer = zip(*(page.layers[::-1] for page in pages), strict=True)
    for wide, same in zip(leaf.wide[::-1], by_layer, strict=True):
        parts = [layer for layer in same if layer is not None]
        layers.append(_join_layers(parts, inner, wide=wide, where=where) if parts else None)
        inner = parts
    rows = sum(page.rows for page in pages)
    return Resolved(concat_arrays([page.values for page in pages]), layers[::-1], rows)


def check_page_ends(
    node: Node,
    leaves: Sequence[Sequence[Resolved] | None],
    joined: Sequence[Resolved | None],
    where: Where,
) -> None:
    """Compare where each page ends with the shape that other leaves define.

    One page may have too few items and another too many, while all pages together have as many
    as the other leaves. All rows between would then have items of other rows.

    Parameters
    ----------
    node
        The field.
    leaves
        Its leaves, depth first, page by page; ``None`` where the file lacks one.
    joined
        The same leaves, each as :func:`join_pages` joins it.

    Raises
    ------
    CorruptFileError
        A page ends within a row.
    """
    ends = [None if pages is None else np.cumsum([page.rows for page in pages]) for pages in leaves]
    _check_below(node, leaves, joined, ends, 0, where)


def _check_below(
    node: Node,
    leaves: Sequence[Sequence[Resolved] | None],
    joined: Sequence[Resolved | None],
    ends: Sequence[Int64s | None],
    depth: int,
    where: Where,
) -> None:
    """Check below a node; ``ends`` are its slots before each page's end, by leaf."""
    defining = (leaf.layers[depth] for leaf in joined if leaf is not None)
    layer = next((layer for layer in defining if layer is not None), None)
    below: list[Int64s | None] = []
    for pages, expected in zip(leaves, ends, strict=True):
        if pages is None or expected is None or layer is None:
            below.append(None)
            continue
        if expected[-1] != layer.slots:
            raise _ends_mismatch(int(expected[-1]), layer.slots, where)
        own = [page.layers[depth] for page in pages]
        slots = [part.slots for part in own if part is not None]
        if not slots:
            below.append(_ends_of_items(node, layer, expected))
            continue
        found = np.cumsum(slots)
        if (wrong := found != expected).any():
            at = int(wrong.argmax())
            raise _ends_mismatch(int(expected[at]), int(found[at]), where)
        below.append(None)  # its layers further inside are its own
    first = 0
    for child in node.children:
        here = slice(first, first + child.leaf_count)
        first += child.leaf_count
        if any(of_leaf is not None for of_leaf in below[here]):
            _check_below(child, leaves[here], joined[here], below[here], depth + 1, where)


def _ends_of_items(node: Node, layer: ResolvedLayer, ends: Int64s) -> Int64s:
    """Return the slots of the next inner layer before these slots of a layer."""
    if layer.offsets is not None:
        kind = np.dtype(np.int64 if pa.types.is_large_list(node.type) else np.int32)
        return items_of(layer.offsets, kind, layer.slots + 1)[ends].astype(np.int64)
    return ends * node.sizes[0]


def _ends_mismatch(expected: int, found: int, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "items before the end of a page", expected=f"{expected}", found=f"{found}", where=where
    )


def _join_layers(
    parts: Sequence[ResolvedLayer], inner: Sequence[ResolvedLayer], *, wide: bool, where: Where
) -> ResolvedLayer:
    """Return the same layer of several pages; lists count the slots of the next inner layer."""
    counts = [part.slots for part in parts]
    validity = offsets = None
    if any(part.validity is not None for part in parts):
        validity = join_bits(
            [part.validity or pack_flags(np.ones(part.slots, bool)) for part in parts], counts
        )
    if parts[0].offsets is not None:
        offsets = _join_offsets(parts, [part.slots for part in inner], wide=wide, where=where)
    return ResolvedLayer(sum(counts), validity, sum(part.null_count for part in parts), offsets)


def _join_offsets(
    parts: Sequence[ResolvedLayer], items: Sequence[int], *, wide: bool, where: Where
) -> pa.Buffer:
    total, kind = sum(items), np.dtype(np.int64 if wide else np.int32)
    if not wide and total > MAX_OFFSET:
        raise CapacityError.of(total, "items of lists", where=where, instead="a large_list")
    joined, first = [np.zeros(1, kind)], 0
    for part, count in zip(parts, items, strict=True):
        if part.offsets is None:
            raise CorruptFileError("list", expected="offsets", found="none", where=where)
        ends = items_of(part.offsets, kind, part.slots + 1)
        if ends[-1] != count:
            expected, found = f"{ends[-1]} items", f"{count}"
            raise CorruptFileError("items of lists", expected=expected, found=found, where=where)
        joined.append(ends[1:] + kind.type(first))
        first += count
    return as_buffer(np.concatenate(joined))


# --- Unshredding: leaves with levels become nested Arrow arrays -------------------------
#
# Unshredding resolves the layers of each leaf from the inside out, then builds the arrays from the
# outside in. Structs and lists above several leaves take their shape from one leaf, and the other
# leaves must agree with it.
#
# Specification: "Levels" in ``docs/format/levels.md``.


def unshred_flat(node: Node, leaf: Leaf, where: Where) -> pa.Array:
    """Build the array of a leaf at the top level."""
    if leaf.rep is not None or len(leaf.layers) != 1 or leaf.layers[0].is_list:
        raise _layers_mismatch(node, leaf, where)
    if node.kind == "empty":
        return pa.StructArray.from_buffers(node.type, leaf.rows, [None], 0)
    if leaf.values is None:
        return all_null(node.type, leaf.rows)
    validity, nulls = leaf.validity, leaf.null_count
    if leaf.definition is not None:
        validity, nulls, _ = validity_from_levels(leaf.definition, slot_max=1, null_level=1)
    if leaf.values.count != leaf.rows:
        raise _count_mismatch(leaf.rows, leaf.values.count, where)
    return _leaf_array(leaf.values, node, validity, nulls, where)


def _leaf_array(
    block: Block, node: Node, validity: pa.Buffer | None, null_count: int, where: Where
) -> pa.Array:
    if isinstance(block, Dictionary) and not pa.types.is_dictionary(node.type):
        block = expand(block)
    if node.members is not None:
        block = _select_members(block, node.members, where)
    return to_array(block, node.type, validity, null_count, where)


def _select_members(block: Block, members: Members, where: Where) -> Block:
    """Return the wanted members of a packed struct, and of nested structs."""
    if not isinstance(block, Struct):
        return block
    last = max((at for at, _ in members), default=0)
    if last >= len(block.members):
        raise CorruptFileError(
            "packed struct",
            expected=f"{last + 1} members or more, as in the schema",
            found=f"{len(block.members)}",
            where=where,
        )
    selected = [
        block.members[at] if below is None else _select_members(block.members[at], below, where)
        for at, below in members
    ]
    return Struct(tuple(selected), block.count)


class Shapes(NamedTuple):
    """Which leaves below a field define the shape of what is above them.

    Parameters
    ----------
    nodes
        The leaves, depth first.
    layers
        The number of layers of each, from the inside, that define a shape.
    """

    nodes: Sequence[Node]
    layers: Sequence[int]

    @classmethod
    def of(cls, node: Node, present: Sequence[bool]) -> Shapes:
        """Return the shapes of a field whose leaves the file has in part."""
        return cls(list(node.leaves()), _shaping_layers(node, present, 0))


def unshred(
    node: Node, leaves: Sequence[Leaf | None], rows: int, where: Where, shapes: Shapes | None = None
) -> pa.Array:
    """Build the array of a top-level field from its leaves, depth first.

    ``shapes`` may be given by callers that unshred often.
    """
    if shapes is None:
        shapes = Shapes.of(node, [leaf is not None for leaf in leaves])
    if not any(shapes.layers):
        return all_null(node.type, rows)
    resolved = [
        None if leaf is None else _resolve(at, leaf, claim, rows, where)
        for at, leaf, claim in zip(shapes.nodes, leaves, shapes.layers, strict=True)
    ]
    return build(node, resolved, rows, where)


def build(node: Node, resolved: Sequence[Resolved | None], rows: int, where: Where) -> pa.Array:
    """Build the array of a top-level field from its leaves, each resolved."""
    array = _build(node, resolved, 0, where)
    if len(array) != rows:
        raise _count_mismatch(rows, len(array), where)
    return array


def resolve_page(shapes: Shapes, at: int, leaf: Leaf, rows: int, where: Where) -> Resolved:
    """Resolve so many rows of a page of the leaf at a position; see :func:`unshred_pages`."""
    return _resolve(shapes.nodes[at], leaf, shapes.layers[at], rows, where)


def unshred_pages(
    node: Node, leaves: Sequence[Sequence[Resolved] | None], rows: int, where: Where
) -> pa.Array:
    """Run ``unshred`` on leaves that each have pages of their own, resolved one by one.

    This takes one step per page, however many leaves are in pages that end at other rows.
    """
    resolved = [
        None if pages is None else join_pages(leaf, pages, where)
        for leaf, pages in zip(node.leaves(), leaves, strict=True)
    ]
    check_page_ends(node, leaves, resolved, where)
    return build(node, resolved, rows, where)


def _shaping_layers(node: Node, present: Sequence[bool], first: int) -> list[int]:
    """Return how many layers of each leaf below a node, from the inside, define a shape.

    A struct or list takes its shape from the first leaf below it that the file has. The same layer
    of other leaves may stay unresolved. Empty structs come last: their columns omit nulls.
    """
    if not node.children:
        return [int(present[first])]
    layers: list[int] = []
    for child in node.children:
        layers += _shaping_layers(child, present, first + len(layers))
    claiming = [at for at, claim in enumerate(layers) if claim]
    if claiming:
        kinds = [leaf.kind for leaf in node.leaves()]
        layers[next((at for at in claiming if kinds[at] != "empty"), claiming[0])] += 1
    return layers


def _resolve(node: Node, leaf: Leaf, claim: int, rows: int, where: Where) -> Resolved:
    """Resolve the inner ``claim`` layers of a leaf; the list is outer-most first."""
    if node.kind == "empty" and len(leaf.layers) == 1 and not any(node.layers):
        # pylance omits the layers around an empty struct.
        return _no_levels(node, leaf, claim, rows)
    if list_layers(leaf.layers) != node.layers:
        raise _layers_mismatch(node, leaf, where)
    if leaf.shape is None:
        done = _from_levels(node, leaf, layer_steps(leaf.layers), claim, where)
    else:
        done = _from_shape(node, leaf.shape[:claim], where)
    count = done[0].slots
    if node.kind == "empty":
        values = pa.StructArray.from_buffers(node.type, count, [None], 0)
    else:
        values = _values(node, leaf, count, done[0].validity, done[0].null_count, where)
    return Resolved(values, [*([None] * (len(node.layers) - claim)), *done[::-1]], rows)


def _values(
    node: Node, leaf: Leaf, count: int, validity: pa.Buffer | None, nulls: int, where: Where
) -> pa.Array:
    """Return the array of a leaf whose innermost layer is resolved."""
    if leaf.values is None:
        return all_null(node.type, count)
    if leaf.values.count != count:
        raise _count_mismatch(count, leaf.values.count, where)
    return _leaf_array(leaf.values, node, validity, nulls, where)


def _no_levels(node: Node, leaf: Leaf, claim: int, rows: int) -> Resolved:
    """Return a valid empty struct."""
    done: list[ResolvedLayer] = []
    count = leaf.entries
    for size in node.sizes[:claim]:
        count //= size
        done.append(ResolvedLayer(count, None, 0, None))
    values = pa.StructArray.from_buffers(node.type, leaf.entries, [None], 0)
    return Resolved(values, [*([None] * (len(node.layers) - claim)), *done[::-1]], rows)


def _from_shape(node: Node, shape: Sequence[Slots], where: Where) -> list[ResolvedLayer]:
    """Use the layers of the page; the list is inner-most first."""
    done = []
    for slots, wide in zip(shape, node.wide[::-1], strict=False):
        offsets = None
        if slots.offsets is not None:
            if not wide and slots.offsets.dtype.itemsize > 4 and slots.offsets[-1] > MAX_OFFSET:
                count = int(slots.offsets[-1])
                raise CapacityError.of(count, "items of lists", where=where, instead="a large_list")
            offsets = as_buffer(slots.offsets.astype(np.int64 if wide else np.int32, copy=False))
        done.append(ResolvedLayer(slots.count, slots.validity, slots.null_count, offsets))
    return done


def _from_levels(
    node: Node, leaf: Leaf, steps: Sequence[LayerStep], claim: int, where: Where
) -> list[ResolvedLayer]:
    """Resolve the levels, layer by layer; the list is inner-most first."""
    rep, definition = leaf.rep, leaf.definition
    if rep is None and any(node.layers):
        raise CorruptFileError(
            "repetition levels", expected="levels, since there are lists", found="none", where=where
        )
    entries = leaf.entries
    done: list[ResolvedLayer] = []
    for at, step in enumerate(steps[:claim]):
        if node.sizes[at] > 1:
            entries, definition = _divide(node, at, entries, definition, where)
        if not step.is_list or rep is None:
            done.append(_item_layer(step, leaf, at, entries, definition))
            continue
        wide = node.wide[len(steps) - 1 - at]
        if not wide and entries > MAX_OFFSET:
            raise CapacityError.of(entries, "items of lists", where=where, instead="a large_list")
        lists = resolve_lists(
            rep,
            definition,
            visible_max=step.visible_max,
            resolved_max=step.resolved_max,
            slot_max=step.slot_max,
            null_level=step.null_level,
            offset_bits=64 if wide else 32,
            outer=at + 1 < claim,
            capacity=None if step.list_outside else leaf.rows,
        )
        if lists is None:
            expected = f"at most {leaf.rows}, one per row, and no items in what is null or empty"
            raise CorruptFileError("lists", expected=expected, found="more", where=where)
        for inner in done:
            if inner.slots < 0:
                inner.slots = lists.visible
        done.append(ResolvedLayer(lists.slots, lists.validity, lists.null_count, lists.offsets))
        rep, definition = lists.rep, lists.definition
        if rep is not None:
            entries = len(rep)
    for inner, step in zip(done, steps, strict=False):
        if inner.slots < 0 and definition is not None:
            # The outer list is resolved with another leaf.
            inner.slots = int(np.count_nonzero(definition <= step.slot_max))
    return done


def _divide(
    node: Node, at: int, entries: int, definition: UInt16s | None, where: Where
) -> tuple[int, UInt16s | None]:
    """Return one entry per fixed-size list: all entries of a list have the levels of the list."""
    if any(node.layers[at + 1 :]):
        raise UnsupportedFeatureError(
            f"column {node.name!r} has lists of fixed-size lists of structs (in {where}): "
            "pages with levels do not store where the inner ones begin. Format 2.3 does."
        )
    size = node.sizes[at]
    if entries % size:
        raise CorruptFileError(
            "entries of fixed-size lists",
            expected=f"a multiple of {size}",
            found=str(entries),
            where=where,
        )
    return entries // size, None if definition is None else definition[::size]


def _item_layer(
    step: LayerStep, leaf: Leaf, at: int, entries: int, definition: UInt16s | None
) -> ResolvedLayer:
    """Resolve a layer that is not a list; -1 slots when the outer list determines them."""
    if definition is None:
        if at == 0:
            return ResolvedLayer(entries, leaf.validity, leaf.null_count, None)
        return ResolvedLayer(entries, None, 0, None)
    if step.null_level == 0:
        return ResolvedLayer(-1 if step.list_outside else entries, None, 0, None)
    validity, nulls, slots = validity_from_levels(
        definition, slot_max=step.slot_max, null_level=step.null_level
    )
    return ResolvedLayer(slots, validity, nulls, None)


def _build(node: Node, resolved: Sequence[Resolved | None], depth: int, where: Where) -> pa.Array:
    if not node.children:
        leaf = resolved[0]
        if leaf is None:
            raise CorruptFileError("column", expected="a leaf", found="none", where=where)
        return leaf.values
    layer = None
    for leaf in resolved:
        if leaf is not None and (layer := leaf.layers[depth]) is not None:
            break
    if layer is None:
        raise CorruptFileError("column", expected="a shape", found="none", where=where)
    if node.kind in ("list", "map"):
        items = _build(node.children[0], resolved, depth + 1, where)
        if layer.offsets is None:
            raise CorruptFileError("list", expected="offsets", found="none", where=where)
        if node.kind == "map":
            _check_entries(items, where)
        return list_array(
            node.type, layer.slots, layer.validity, layer.null_count, layer.offsets, items, where
        )
    if node.kind == "fixed":
        items = _build(node.children[0], resolved, depth + 1, where)
        if len(items) != layer.slots * node.sizes[0]:
            raise _count_mismatch(layer.slots * node.sizes[0], len(items), where)
        return pa.Array.from_buffers(
            node.type, layer.slots, [layer.validity], layer.null_count, children=[items]
        )
    children, first = [], 0
    for child in node.children:
        below = resolved[first : first + child.leaf_count]
        first += child.leaf_count
        if all(leaf is None for leaf in below):
            array = all_null(child.type, layer.slots)
        else:
            array = _build(child, below, depth + 1, where)
        if len(array) != layer.slots:
            raise _count_mismatch(layer.slots, len(array), where)
        children.append(array)
    return pa.Array.from_buffers(
        node.type, layer.slots, [layer.validity], layer.null_count, children=children
    )


def _layers_mismatch(node: Node, leaf: Leaf, where: Where) -> CorruptFileError:
    shape = ["list" if flag else "item" for flag in node.layers]
    return CorruptFileError(
        "page layers",
        expected=", ".join(shape) + " (inner-most first)",
        found=", ".join(Layer(layer).name.lower() for layer in leaf.layers) or "none",
        where=where,
    )


def _count_mismatch(expected: int, found: int, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "page values", expected=f"{expected} values", found=f"{found}", where=where
    )


def _check_entries(entries: Any, where: Where) -> None:
    """Refuse entries or keys of maps that are null: Arrow ends the process when it meets them."""
    for what, values in (("entries", entries), ("keys", entries.field(0))):
        if values.null_count:
            raise CorruptFileError(
                f"{what} of maps",
                expected="none that is null",
                found=f"{values.null_count} of {len(values)}",
                where=where,
            )
