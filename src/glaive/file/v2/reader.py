"""Read a 2.x file: schema and columns, each on first use.

Opening parses the footer. The schema, each column's metadata and each page's layout are
parsed on first use, so reading two of 10,000 columns parses the metadata of two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import starmap
from threading import RLock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import (
    Block,
    Dictionary,
    FixedWidth,
    Variable,
    align_bits,
    inverse_permutation,
    join_bits,
    number_array,
)
from glaive.arrow.build import is_stored_as
from glaive.arrow.chunked import concat_arrays, has_known_width, value_bytes
from glaive.dataclass import NamedTuple
from glaive.encodings.levels import Layer, Leaf
from glaive.encodings.pages.miniblock import MiniBlockReader, join_files
from glaive.encodings.protocol import Fetch, PageBytes, PageReader, and_then, join
from glaive.encodings.registry import open_page
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.errors import CorruptFileError
from glaive.file.protocol import BoundColumn, BoundField, FileColumns, FormatProfile, Proportion
from glaive.file.v2.columns import (
    COLUMN_BYTES,
    Column,
    Node,
    Resolved,
    Shapes,
    build,
    number_columns,
    resolve_page,
    stored_trees,
    unshred,
    unshred_flat,
    unshred_pages,
)
from glaive.file.v2.container import MAX_ROWS, Container
from glaive.format.blobs import DESCRIPTOR
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.io.mapped import readable_size
from glaive.io.store import RangeReader
from glaive.kernels.row_takes import RUNS, RowColumns, RowPages, take_rows
from glaive.process import fork_safe, lock_with_timeout
from glaive.types import ByteRange, FormatVersion, Int64s, Where, copy_of, items_of

if TYPE_CHECKING:
    from glaive.arrow.conditions import Condition
    from glaive.encodings.predicate import PagePredicate, RowBits


# --- Columns of a file bound to fields: read and take whole fields ----------------------
#
# Every field is divided into *segments*: ranges of rows with a single page of each leaf.
# A flat field has one segment per page. A field of many leaves may have far more segments than
# pages, because the pages of its leaves end at different rows. glaive reads such leaves page by
# page and joins the pages.

OFFSET_BYTES = 8
"""Bytes of an offset at most."""

_MAX_SEGMENTS_PER_PAGE: Final = 4
"""With so many segments to read per page, reads prefer ranges of several segments."""

_MAX_LIMITED_LEAVES: Final = 2
"""Maximum leaves that are limited page by page: each page has half of the limit."""


_ITEMS_SHARE: Final = 0.4
"""Share of rows up to which a take from lists of items of dictionaries is quicker than a read."""


class FieldColumns(BoundField):
    """A top-level field with all physical columns below it (a ``BoundColumn``)."""

    __slots__ = (
        "_counts_leaves",
        "_cuts",
        "_flat",
        "_pages",
        "_preferred_cuts",
        "_shapes",
        "leaf_columns",
        "node",
    )

    _where: Where

    def __init__(
        self, node: Node, columns: Sequence[Column | None], rows: int, reader: RangeReader
    ) -> None:
        present = [column for column in columns if column is not None]
        where = present[0].where if present else Where(reader.path, None, node.name)
        super().__init__(node.arrow, rows, reader, where)
        self.node = node
        self.leaf_columns = columns
        self._shapes: Shapes | None = None
        cuts = sorted({0, rows, *(row for column in present for row in column.starts)})
        self._cuts = cuts
        # Where pages of many leaves end at different rows, segments of each leaf are far more
        # than pages. Reads then take about a page's rows at once and join the pages.
        pages, segments = sum(len(column.starts) for column in present), len(cuts) * len(present)
        if segments > _MAX_SEGMENTS_PER_PAGE * pages:
            preferred = {0, rows, *cuts[:: segments // pages]}
        else:
            # Joined pages may be divided anywhere: the column with most cuts decides.
            preferred = {*cuts, *max((column.cuts for column in present), key=len, default=[])}
        self._preferred_cuts = np.array(sorted(preferred), np.int64)
        self._flat = not node.children and bool(present)
        # Each page has a limit. Of more leaves with values of any size, what all have is counted.
        self._counts_leaves = sum(map(_has_any_size, node.leaves())) > _MAX_LIMITED_LEAVES
        self._pages: Sequence[PageReader] = present[0].pages if self._flat else ()

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all columns below; an estimate."""
        own = sum(column.nbytes for column in self.leaf_columns if column is not None)
        return COLUMN_BYTES + own + 8 * len(self._preferred_cuts)

    @property
    def value_bytes(self) -> int:
        """Bytes of a decoded value, about: pages say how many items their lists have."""
        leaves = [
            (leaf, column)
            for leaf, column in zip(self.node.leaves(), self.leaf_columns, strict=True)
            if column is not None
        ]
        if not any(any(leaf.layers) for leaf, _ in leaves):
            return super().value_bytes
        size = sum(column.entries * value_bytes(leaf.type) for leaf, column in leaves)
        return OFFSET_BYTES + size // max(1, self.num_rows)

    @property
    def taken_share(self) -> float:
        """Share of rows up to which a take is quicker than a read.

        Lists of items of dictionaries are large: a take copies only the items that it returns.
        """
        leaves = zip(self.node.leaves(), self.leaf_columns, strict=True)
        return _ITEMS_SHARE if all(starmap(_copies_items, leaves)) else super().taken_share

    def cuts(self) -> Int64s:
        """Return row numbers at which to divide a read of all rows, ascending, with both ends."""
        return self._preferred_cuts

    def physical_pages(self) -> list[tuple[Sequence[int], Sequence[PageReader]]]:
        """Return first rows and pages of each physical column below."""
        present = [column for column in self.leaf_columns if column is not None]
        return [(column.starts, column.pages) for column in present]

    # ------------------------------------------------------------------ ranges

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Return ``read`` as a value."""
        self._check_range(start, stop)
        cuts = self._cuts
        first = bisect_right(cuts, start) - 1
        if start == stop:
            return self._no_rows()
        if stop <= cuts[first + 1]:
            return self._read_segment(start, stop)
        return self._by_page(stop - start, lambda column: column.read(start, stop))

    def _read_segment(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        if self._flat:
            starts = self.leaf_columns[0].starts  # type: ignore[union-attr]  # flat: one column
            at = bisect_right(starts, start) - 1
            step = self._pages[at].read(start - starts[at], stop - starts[at])
            return and_then(step, self._finish_flat)
        steps: list[Any] = []
        counted, finish = self._array_builder(stop - start)
        for column in self.leaf_columns:
            if column is None:
                steps.append(None)
                continue
            at = bisect_right(column.starts, start) - 1
            base = column.starts[at]
            steps.append(counted(column.pages[at].read(start - base, stop - base)))
        return join(steps, finish)

    def _proportion(self, rows: int) -> Proportion:
        """Return a check of what all leaves have of so many rows."""
        present = sum(column is not None for column in self.leaf_columns)
        return Proportion(rows * present, self.reader.size, self._where)

    def _array_builder(
        self, rows: int
    ) -> tuple[Callable[[Any], Any], Callable[[Sequence[Leaf | None]], pa.Array]]:
        """Return how to count leaves of so many rows, and how to make an array of them."""
        if not self._counts_leaves or rows <= 1:
            return _unchanged, partial(self._finish, rows)
        proportion = self._proportion(rows)

        def count(leaf: Leaf) -> Leaf:
            proportion.count(_text_bytes(leaf), rows)
            return leaf

        return partial(and_then, then=count), partial(self._finish_counted, rows)

    def _finish_counted(self, rows: int, leaves: Sequence[Leaf | None]) -> pa.Array:
        """Run ``_finish``, which expands leaves that are equal, or have a dictionary."""
        resolve = partial(self._resolve_page, proportion=self._proportion(rows), rows=rows)
        resolved = [
            None if leaf is None else resolve(at, leaf=leaf) for at, leaf in enumerate(leaves)
        ]
        return build(self.node, resolved, rows, self._where)

    def _by_page(
        self, rows: int, parts: Callable[[Column], Iterable[tuple[int, Fetch[Leaf] | Leaf]]]
    ) -> Fetch[pa.Array] | pa.Array:
        """Read each leaf page by page, independently of the pages of other leaves."""
        proportion = self._proportion(rows)
        steps: list[Any] = []
        for at, column in enumerate(self.leaf_columns):
            if column is None:
                steps.append(None)
                continue
            if self._flat:
                finish: Any = [self._finish_flat, proportion.array]
                pages = [reduce(and_then, finish, leaf) for _, leaf in parts(column)]
                return join(pages, concat_arrays)
            resolve: Any = partial(self._resolve_page, at, proportion)
            pages = [and_then(leaf, partial(resolve, count)) for count, leaf in parts(column)]
            steps.append(join(pages, list))
        return join(steps, lambda leaves: unshred_pages(self.node, leaves, rows, self._where))

    def _resolve_page(self, at: int, proportion: Proportion, rows: int, leaf: Leaf) -> Resolved:
        resolved = resolve_page(self._known_shapes, at, leaf, rows, self._where)
        proportion.count(resolved.nbytes, rows)
        return resolved

    @property
    def segments(self) -> Sequence[int]:
        """First row of each range with a single page of every leaf; then the number of rows."""
        return self._cuts

    def finish(self, rows: int, leaves: list[Leaf]) -> pa.Array:
        """Return the array of so many rows from all leaves, depth first."""
        return self._finish_flat(leaves[0]) if self._flat else self._finish(rows, leaves)

    def _finish_flat(self, leaf: Leaf) -> pa.Array:
        return unshred_flat(self.node, leaf, self._where)

    def _finish(self, rows: int, leaves: Sequence[Leaf | None]) -> pa.Array:
        return unshred(self.node, leaves, rows, self._where, self._known_shapes)

    @property
    def _known_shapes(self) -> Shapes:
        if self._shapes is None:
            present = [column is not None for column in self.leaf_columns]
            self._shapes = Shapes.of(self.node, present)
        return self._shapes

    def _no_rows(self) -> pa.Array:
        empty: pa.Array = pa.nulls(0, self.field.type)
        return empty

    # ------------------------------------------------------------------ conditions

    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        from glaive.kernels.match import list_rows

        parts = self._matches(predicate, start, stop)
        if parts is None:
            return None
        rows = [
            list_rows(matches.bits, matches.begin, count, first) for matches, first, count in parts
        ]
        return rows[0] if len(rows) == 1 else np.concatenate([np.empty(0, np.int64), *rows])

    def match(self, condition: Condition, start: int, stop: int) -> pa.Buffer | None:
        """Return one bit per row that passes; see ``BoundColumn``."""
        from glaive.encodings.predicate import page_predicate

        parts = self._matches(page_predicate(condition, self.field.type), start, stop)
        if parts is None:
            return None
        bits = [align_bits(matches.bits, matches.begin, count) for matches, _, count in parts]
        return bits[0] if len(bits) == 1 else join_bits(bits, [count for _, _, count in parts])

    def _matches(
        self, predicate: PagePredicate, start: int, stop: int
    ) -> list[tuple[RowBits, int, int]] | None:
        """Return the rows that pass by page, with the page's first row and number of rows."""
        from glaive.encodings.predicate import mask_matches

        self._check_range(start, stop)
        if not self._flat or self.node.kind != "leaf" or not self.reader.mapped:
            return None
        parts: list[tuple[RowBits, int, int]] = []
        cuts = self._cuts
        at = bisect_right(cuts, start) - 1
        while start < stop:
            end = min(stop, cuts[at + 1])
            matches = self._search_page(predicate, at, start - cuts[at], end - cuts[at])
            if matches is None:
                if not parts:
                    return None
                matches = mask_matches(self.read(start, end), predicate)
            parts.append((matches, start, end - start))
            start, at = end, at + 1
        return parts

    def _search_page(
        self, predicate: PagePredicate, at: int, start: int, stop: int
    ) -> RowBits | None:
        from glaive.encodings.predicate import leaf_matches

        page = self._pages[at]
        matches = page.find(predicate, start, stop)
        if matches is not None or not predicate.any_width:
            return matches
        leaf = page.read(start, stop)
        return None if isinstance(leaf, Fetch) else leaf_matches(leaf, predicate, self._where)

    # ------------------------------------------------------------------ positions

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Return ``take`` as a value."""
        if len(self._cuts) == 2:  # one segment: the common case
            return self._take_segment(rows, 0) if len(rows) else self._no_rows()
        if len(rows) <= 1:
            if len(rows) == 0:
                return self._no_rows()
            return self._take_segment(rows, bisect_right(self._cuts, int(rows[0])) - 1)
        segments = np.searchsorted(self._cuts, rows, side="right") - 1
        first = int(segments[0])
        if (segments == first).all():
            return self._take_segment(rows, first)
        is_ascending = bool((rows[1:] >= rows[:-1]).all())
        order = None if is_ascending else np.argsort(rows, kind="stable")
        ascending = rows if order is None else rows[order]
        step = self._by_page(len(rows), lambda column: column.take(ascending))
        return and_then(step, partial(_restore, order))

    def _take_segment(self, rows: Int64s, segment: int) -> Fetch[pa.Array] | pa.Array:
        begin = self._cuts[segment]
        if self._flat:
            # The segments of a flat field are its pages.
            step = self._pages[segment].take(rows - begin if begin else rows)
            return and_then(step, self._finish_flat)
        counted, finish = self._array_builder(len(rows))
        steps: list[Any] = []
        for column in self.leaf_columns:
            if column is None:
                steps.append(None)
                continue
            at = bisect_right(column.starts, begin) - 1
            steps.append(counted(column.pages[at].take(rows - column.starts[at])))
        return join(steps, finish)


def _unchanged(step: Any) -> Any:
    return step


def _has_any_size(leaf: Node) -> bool:
    """Return whether a row may have any number of bytes in this leaf."""
    return bool(leaf.layers) or not has_known_width(leaf.type)


def _copies_items(leaf: Node, column: Column | None) -> bool:
    """Return whether a leaf has lists whose values are copied from a dictionary."""
    page = column.pages[0] if column is not None and column.pages else None
    if not isinstance(page, MiniBlockReader) or pa.types.is_dictionary(leaf.type):
        return False
    return bool(page.num_dictionary_items and page.layout.limits.max_rep)


def _text_bytes(leaf: Leaf) -> int:
    """Return the bytes of strings in memory; dictionaries and a repeated string come later."""
    block = leaf.values
    if not isinstance(block, Variable) or not block.count:
        return 0
    dtype = np.int64 if block.offset_bits == 64 else np.int32
    ends = items_of(block.offsets, dtype, block.count + 1)
    return int(ends[-1]) - int(ends[0])


def _restore(order: Int64s | None, array: Any) -> Any:
    return array if order is None else array.take(number_array(inverse_permutation(order)))


# --- The same column of several mapped files as one column, whose rows are theirs in order
#
# A take of a few rows from each of many files costs Python steps for every file and column.
# Here neighbouring pages of equal signatures are one run, so only columns cost Python steps.

_OVER_READ: Final = 512
"""Bytes that a kernel may load beyond what it uses, within the memory that it is given."""


def join_columns(columns: Sequence[BoundColumn]) -> FieldColumns | None:
    """Return one column that joins the same field of several files.

    Returns
    -------
    FieldColumns or None
        ``None`` where the files cannot be read as one column. This is so if a file is not mapped,
        lacks a physical column, or has pages that need more than their own buffers.
    """
    fields = [column for column in columns if isinstance(column, FieldColumns)]
    if len(fields) != len(columns) or any(_shape(field) != _shape(fields[0]) for field in fields):
        return None
    if not all(field.reader.mapped for field in fields):
        return None
    joined = []
    for parts in zip(*[field.leaf_columns for field in fields], strict=True):
        present = [part for part in parts if part is not None]
        if len(present) < len(parts):
            return None
        pages = [page for part in present for page in part.pages]
        sizes = [
            field.reader.size
            for field, part in zip(fields, present, strict=True)
            for _ in part.pages
        ]
        if not all(map(_is_whole, pages, sizes)):
            return None
        joined.append(Column(join_files(pages), present[0].where))
    rows = sum(field.num_rows for field in fields)
    return FieldColumns(fields[0].node, joined, rows, fields[0].reader)


def _shape(field: FieldColumns) -> Hashable:
    """Return what fields of several files must share: types, and locations of packed members."""

    def members(node: Node) -> Hashable:
        return node.members, tuple(map(members, node.children))

    return field.field, members(field.node)


def _is_whole(page: PageReader, file_size: int) -> bool:
    """Return whether all that a page needs is mapped, and memory continues after it.

    A run spans several mappings, so a load past the last bytes of one could hit unmapped memory.
    """
    last = page.mapped_end
    return last is not None and last + _OVER_READ <= readable_size(file_size)


# --- Few rows of several columns of mapped files, taken with one call of a kernel -------
#
# A column of few rows costs Python and Arrow more than its values do. This takes columns outside of
# lists together if the rows lie in one page each, or in pages that are read as one. It takes other
# columns one by one. Where the kernel finds damage it takes all columns one by one, because that
# path says what is wrong.

_MAX_SHARED_ROWS: Final = 1024
_MAX_SHARED_BYTES: Final = 1 << 20
"""Rows of several columns that share their memory, and its bytes: of more, a column kept alone
would keep much."""

_MAX_ROWS_PER_CHUNK: Final = 8
"""With so many rows of a chunk, decoding all of it is quicker, unless it holds strings."""

_TAKEN: Final = Where("rows taken together")

_MAX_PLANS: Final = 256
"""Combinations of pages that are kept; with more, all are dropped."""


class _Part(NamedTuple):
    """A leaf that is taken together with others.

    ``type`` is the type of a flat column whose rows become arrays directly. ``None``: the rows have
    to become a leaf first. ``lists`` is the encoding of values that are fixed-size lists, and
    ``items`` is the dictionary of values that are numbers of its items.
    """

    pages: RowPages
    layers: tuple[Layer, ...]
    type: pa.DataType | None
    lists: FixedSizeList | None
    items: Block | None

    def array(self, memory: pa.Buffer, numbers: list[int], count: int, *, shared: bool) -> pa.Array:
        """Return its rows as an array of ``type``; :meth:`leaf` describes the arguments."""
        values, size, offsets, validity, nulls, _ = numbers
        data, bits = _part(memory, values, size, own=shared), self.pages.text_bits
        valid = None
        if validity >= 0:
            valid = _part(memory, validity, (count + 7) >> 3, own=shared)
        buffers: list[pa.Buffer | None] = [valid, data]
        if bits:
            buffers.insert(1, _part(memory, offsets, (count + 1) * bits >> 3, own=shared))
        return pa.Array.from_buffers(self.type, count, buffers, nulls)

    def leaf(
        self, memory: pa.Buffer, numbers: list[int], count: int, *, shared: bool = False
    ) -> Leaf:
        """Return its rows; ``numbers`` locate them in the memory.

        Where too much memory is ``shared``, they get their own.
        """
        values, size, offsets, validity, nulls, levels = numbers
        data, bits = _part(memory, values, size, own=shared), self.pages.text_bits
        block: Block
        if bits:
            ends = _part(memory, offsets, (count + 1) * bits >> 3, own=shared)
            block = Variable(ends, bits, data, count)
        else:
            block = FixedWidth(data, self.pages.value_bits, count)
            if self.lists is not None:
                block = self.lists.decode_values(block, _TAKEN)
            elif self.items is not None:
                block = Dictionary(block, self.items, count)
        leaf = Leaf(block, count, count, self.layers, null_count=nulls)
        if validity >= 0:
            leaf.validity = _part(memory, validity, (count + 7) >> 3, own=shared)
        if levels >= 0:
            leaf.definition = items_of(memory, "<u2", count, levels)
        return leaf


def _part(memory: pa.Buffer, start: int, size: int, *, own: bool) -> pa.Buffer:
    part = memory.slice(start, size)
    return copy_of(part) if own else part


class _Plan(NamedTuple):
    """How rows in one page of each column are taken.

    ``parts`` are the leaves of each column that one call takes with all others. They are empty for
    a column that is taken alone.
    """

    together: RowColumns | None
    parts: Sequence[Sequence[_Part]]

    def is_faster(self, count: int) -> bool:
        """Return whether taking so many rows here is quicker than column by column."""
        return count <= _MAX_SHARED_ROWS or all(
            (part.pages.text_bits and part.pages.page.values != RUNS)
            or count <= _MAX_ROWS_PER_CHUNK * len(part.pages.sizes)
            for own in self.parts
            for part in own
        )


class ColumnTakes:
    """Columns of mapped files, for takes of few rows.

    Parameters
    ----------
    columns
        Columns with the same number of rows.
    """

    __slots__ = ("_columns", "_divided", "_each", "_parts", "_plans")

    def __init__(self, columns: Sequence[BoundField]) -> None:
        self._columns = columns
        self._each: Sequence[Callable[[Int64s], pa.Array]] = ()
        self._divided = [
            column.segments
            for column in columns
            if isinstance(column, FieldColumns) and len(column.segments) > 2
        ]
        self._plans: dict[tuple[int, ...], _Plan] = {}
        self._parts: dict[tuple[int, int], list[_Part]] = {}

    def take(self, rows: Int64s) -> list[pa.Array]:
        """Return the rows at these positions, in this order, one array per column."""
        columns, count = self._columns, len(rows)
        if count > _MAX_SHARED_ROWS and len(columns) > 1:
            return [take(rows) for take in self.each]
        plan = taken = None
        if count:
            pages = self._pages(rows) if self._divided else ()
            plan = self._plans.get(pages) or self._plan(pages)
            if plan.together is not None and plan.is_faster(count):
                taken = take_rows(plan.together, rows)
        if plan is None or taken is None:
            return [column.take(rows) for column in columns]
        memory, places = taken.memory, iter(taken.parts)
        shared = len(columns) > 1 and memory.size > _MAX_SHARED_BYTES
        arrays = []
        for column, parts in zip(columns, plan.parts, strict=True):
            if parts and parts[0].type is not None:
                arrays.append(parts[0].array(memory, next(places), count, shared=shared))
            elif parts and isinstance(column, FieldColumns):
                leaves = [part.leaf(memory, next(places), count, shared=shared) for part in parts]
                arrays.append(column.finish(count, leaves))
            else:
                arrays.append(column.take(rows))
        return arrays

    @property
    def each(self) -> Sequence[Callable[[Int64s], pa.Array]]:
        """How each column is taken alone, into memory of its own."""
        if not self._each:
            self._each = [partial(_take_alone, ColumnTakes([column])) for column in self._columns]
        return self._each

    def _pages(self, rows: Int64s) -> tuple[int, ...]:
        """Return for each column of several pages the page that holds all rows, or -1."""
        low = high = rows.item(0)
        if len(rows) > 1:
            low, high = int(rows.min()), int(rows.max())
        pages = []
        for segments in self._divided:
            page = bisect_right(segments, low) - 1
            is_one = 0 <= page < len(segments) - 1 and high < segments[page + 1]
            pages.append(page if is_one else -1)
        return tuple(pages)

    def _plan(self, pages: tuple[int, ...]) -> _Plan:
        """Return the plan for rows in these pages of the columns that have several."""
        remaining = iter(pages)
        parts = []
        for number, column in enumerate(self._columns):
            own: list[_Part] = []
            if isinstance(column, FieldColumns):
                page = next(remaining) if len(column.segments) > 2 else len(column.segments) - 2
                known = self._parts.get((number, page))
                own = _parts(column, page) if known is None else known
                self._parts[number, page] = own
            parts.append(own)
        together = [part.pages for own in parts for part in own]
        plan = _Plan(RowColumns(together) if together else None, parts)
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[pages] = plan
        return plan


def _take_alone(takes: ColumnTakes, rows: Int64s) -> pa.Array:
    return takes.take(rows)[0]


def _parts(column: FieldColumns, segment: int) -> list[_Part]:
    """Return the leaves of a column; empty where they must be taken alone."""
    if segment < 0 or len(column.segments) < 2:
        return []
    found = []
    first_row = column.segments[segment]
    for node, part in zip(column.node.leaves(), column.leaf_columns, strict=True):
        if part is None or node.kind != "leaf":
            return []
        at = bisect_right(part.starts, first_row) - 1
        page = part.pages[at]
        if not isinstance(page, MiniBlockReader):
            return []
        is_dictionary = pa.types.is_dictionary(node.type)
        pages = page.row_pages(numbers=is_dictionary)
        items = page.small.items if page.small is not None and is_dictionary else None
        if pages is None or is_dictionary != (pages.limit > 0):
            return []
        if part.starts[at]:
            pages = replace(pages, first_row=part.starts[at])
        layers, value = page.layout.layers, page.layout.value
        lists = value if isinstance(value, FixedSizeList) else None
        block, kind = items and items.block, _plain_type(node, pages, layers)
        found.append(_Part(pages, layers, kind, lists, block))
    return found


def _plain_type(node: Node, pages: RowPages, layers: Sequence[Layer]) -> pa.DataType | None:
    """Return the type of a leaf whose rows become arrays directly; ``None`` for other leaves."""
    is_flat = len(layers) == len(node.layers) == 1 and not layers[0].is_list
    if not is_flat or node.layers[0] or node.members is not None:
        return None
    texts = pages.text_bits > 0
    return node.type if is_stored_as(node.type, pages.value_bits, texts=texts) else None


class PagedColumns(FileColumns):
    """Several fields of one file whose columns have pages of their own."""

    __slots__ = ("_takes",)

    def __init__(self, columns: Sequence[BoundField], rows: int, reader: RangeReader) -> None:
        super().__init__(columns, rows, reader)
        self._takes = ColumnTakes(columns) if reader.mapped else None

    def take(self, rows: Int64s) -> list[pa.Array]:
        """Return the rows at these positions, one array per field."""
        return super().take(rows) if self._takes is None else self._takes.take(rows)


FILE_BYTES = 4 * 1024
"""Bytes of memory of an opened file besides its metadata."""

SCHEMA_FACTOR = 16
"""Approximate bytes of memory of a parsed schema per byte on disk."""


class FileV2:
    """An opened data file of version 2.1 or newer (a ``FileReader``)."""

    def __init__(self, container: Container, profile: FormatProfile) -> None:
        self.reader: RangeReader = container.reader
        self.path = container.path
        self.container = container
        self.profile = profile
        self.version: FormatVersion = profile.version
        self.num_columns = container.footer.columns
        # Weak: columns are kept only while they are in use.
        self._columns: WeakValueDictionary[int, Column] = WeakValueDictionary()
        self._counted: dict[int, object] = {}
        self._page_bytes = 0
        self._descriptor: Any = None
        self._schema: LanceSchema | None = None
        self._lock = fork_safe(RLock())

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory held, except by bound columns."""
        schema = 0 if self._descriptor is None else self._descriptor.ByteSize()
        return FILE_BYTES + self.container.nbytes + SCHEMA_FACTOR * schema

    @property
    def _description(self) -> Any:
        if self._descriptor is None:
            self._descriptor = self.container.descriptor()
        return self._descriptor

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return int(self._description.length)

    @property
    def schema(self) -> LanceSchema:
        """The schema stored in the file."""
        if self._schema is None:
            wire = self._description.schema
            self._schema = LanceSchema.from_wire(wire.fields, dict(wire.metadata), where=self.path)
        return self._schema

    def column_numbers(self) -> dict[int, int]:
        """Return the column index by field id, in the numbering of the file's own schema."""
        return number_columns(self.schema.fields)

    def bind(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int] | None = None,
        rows: int | None = None,
    ) -> PagedColumns:
        """Bind columns to fields; see :class:`glaive.file.protocol.FileReader`.

        With ``rows``, the number of rows, the schema stays unread.
        """
        if column_of is None:
            column_of = self.column_numbers()
        count = self.num_rows if rows is None else rows
        return PagedColumns(self._bound(fields, column_of, count), count, self.reader)

    def _bound(
        self, fields: Sequence[Field], column_of: Mapping[int, int], rows: int
    ) -> Sequence[BoundField]:
        nodes = stored_trees(fields, column_of, self._stored)
        self._prepare(leaf.column for node in nodes for leaf in node.leaves())
        return [self._bind(node, rows) for node in nodes]

    def _stored(self, field_id: int) -> Field:
        return self.schema.field_by_id(field_id)

    def _prepare(self, columns: Iterable[int | None]) -> None:
        """Fetch the metadata of unknown columns in one batch."""
        known = self._columns
        self.container.prepare(
            [column for column in columns if column is not None and column not in known]
        )

    def _bind(self, node: Node, rows: int) -> FieldColumns:
        columns: list[Column | None] = []
        for leaf in node.leaves():
            if leaf.column is None:
                columns.append(None)
                continue
            column = self.column(leaf.column, leaf.name)
            if pa.types.is_large_binary(leaf.type):
                column = column.with_values(self.container.footer.metadata_start)
            elif leaf.type == DESCRIPTOR:
                column = column.with_inline_descriptors()
            column = column.grouped(leaf.entries_per_row)
            if column.rows != rows:
                raise CorruptFileError(
                    "page rows",
                    expected=f"{rows} in all (the rows of the file)",
                    found=f"{column.rows}",
                    where=column.where,
                )
            columns.append(column)
        return FieldColumns(node, columns, rows, self.reader)

    def column(self, index: int, name: str | None = None) -> Column:
        """Return a physical column with its pages, parsed on first use."""
        column = self._columns.get(index)
        if column is None:
            with lock_with_timeout(self._lock):
                column = self._columns.get(index)
                if column is None:
                    column = self._columns[index] = self._open_column(index, name)
        return column

    def _open_column(self, index: int, name: str | None) -> Column:
        message = self.container.column(index, name)
        pages = [
            self._open_page(page, Where(self.path, index, name, number))
            for number, page in enumerate(message.pages)
        ]
        column = Column(pages, Where(self.path, index, name))
        self._count_bytes(index, message, column.where)
        return column

    def _count_bytes(self, index: int, message: Any, where: Where) -> None:
        """Refuse bytes that several pages share: what all keep is in proportion to their bytes.

        Each column counts once, also where two calls open it at a time.
        """
        size, mine = sum(sum(page.buffer_sizes) for page in message.pages), object()
        if self._counted.setdefault(index, mine) is not mine:
            return
        end = self.container.footer.metadata_start
        total = self._page_bytes = self._page_bytes + size
        if total > end:
            self._page_bytes -= size
            del self._counted[index]
            raise CorruptFileError(
                "page buffers",
                expected=f"at most {end} bytes in all columns, as the file has",
                found=f"{total} up to this column",
                where=where,
            )

    def _open_page(self, page: Any, where: Where) -> PageReader:
        layout = self.container.page_layout(page.encoding, where)
        return open_page(layout, self.page_bytes(page, where))

    def page_bytes(self, page: Any, where: Where) -> PageBytes:
        """Return the buffers of a page, checked to be within the file."""
        end = self.container.footer.metadata_start
        if page.length > MAX_ROWS:
            raise CorruptFileError(
                "page rows", expected=f"at most {MAX_ROWS}", found=str(page.length), where=where
            )
        offsets, sizes = list(page.buffer_offsets), list(page.buffer_sizes)
        if len(offsets) != len(sizes):
            raise CorruptFileError(
                "page buffers",
                expected=f"as many sizes as offsets ({len(offsets)})",
                found=f"{len(sizes)}",
                where=where,
            )
        ranges = tuple(map(ByteRange, offsets, sizes))
        for at, (offset, size) in enumerate(ranges):
            if offset + size > end:
                raise CorruptFileError(
                    f"page buffer {at}",
                    expected=f"bytes within 0..{end}",
                    found=f"{size} bytes at {offset}",
                    where=where,
                )
        read = self.reader.read if self.reader.mapped else None
        return PageBytes(ranges, None, int(page.length), where, read)

    def close(self) -> None:
        """Close the file; arrays read from it stay valid."""
        self.reader.close()
