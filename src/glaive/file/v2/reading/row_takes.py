"""Few rows of several columns of mapped files, taken with one call of a kernel.

A column of few rows costs Python and Arrow more than its values do. Columns without lists, whose
rows lie in one page each, or in pages that are read as one, are taken together; the others one by
one, and all of them where the kernel finds damage: that way says what is wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.arrow.build import is_stored_as
from glaive.encodings.leaf import Layer, Leaf
from glaive.encodings.miniblock.levels import row_shapes
from glaive.encodings.miniblock.reader import MiniBlockReader
from glaive.file.bound import BoundField, FileColumns
from glaive.file.v2.reading.bound import FieldColumns
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.reading.list_rows import ListRows
from glaive.io.store import RangeReader
from glaive.kernels.row_takes import RowColumns, RowPages, take_rows
from glaive.memory import copy_of, items_of
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["ColumnTakes", "PagedColumns"]

_MOST_ROWS: Final = 1024
_MOST_SHARED: Final = 1 << 20
"""Rows of several columns that share their memory, and its bytes: of more, a column kept alone
would keep much."""

_DENSE: Final = 8
"""Rows of a chunk from which on it is decoded quicker as a whole, unless its values are texts."""

_MOST_PLANS: Final = 256
"""Combinations of pages that are kept; beyond, all are let go."""


class _Part(NamedTuple):
    """A leaf that is taken together with others.

    ``type`` is that of a column without lists and structs whose rows are taken as arrays of it
    have them; None: they have to become a leaf first.
    """

    pages: RowPages
    layers: tuple[Layer, ...]
    type: pa.DataType | None

    def array(self, memory: pa.Buffer, numbers: list[int], count: int, *, shared: bool) -> pa.Array:
        """Its rows as an array of ``type``; arguments are those of :meth:`leaf`."""
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
        """Its rows, of which ``numbers`` say where they are in the memory.

        Where too much memory is ``shared``, they get their own.
        """
        values, size, offsets, validity, nulls, levels = numbers
        data, bits = _part(memory, values, size, own=shared), self.pages.text_bits
        block: Block
        if bits:
            ends = _part(memory, offsets, (count + 1) * bits >> 3, own=shared)
            block = Variable(ends, bits, data, count)
        else:
            block = FixedWidth(data, self.pages.page.value_bits, count)
        leaf = Leaf(block, count, count, self.layers, null_count=nulls)
        if validity >= 0:
            leaf.validity = _part(memory, validity, (count + 7) >> 3, own=shared)
        if levels >= 0:
            definition = items_of(memory, "<u2", count, levels)
            if count == 1:
                leaf.shape = row_shapes(self.layers)[definition.item(0)]
            else:
                leaf.definition = definition
        return leaf


def _part(memory: pa.Buffer, start: int, size: int, *, own: bool) -> pa.Buffer:
    part = memory.slice(start, size)
    return copy_of(part) if own else part


class _Plan(NamedTuple):
    """How rows in one page of each column are taken.

    ``parts`` are the leaves of each column that one call takes with all others; none of a column
    that is taken alone, as ``alone`` says.
    """

    together: RowColumns | None
    parts: Sequence[Sequence[_Part]]
    alone: Sequence[Callable[[Int64s], pa.Array]]

    def is_quick(self, count: int) -> bool:
        """Whether so many rows are taken quicker here than column by column."""
        return count <= _MOST_ROWS or all(
            part.pages.text_bits or count <= _DENSE * len(part.pages.sizes)
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
        """The rows at these positions, in this order, one array per column."""
        columns, count = self._columns, len(rows)
        if count > _MOST_ROWS and len(columns) > 1:
            return [take(rows) for take in self.each]
        plan = taken = None
        if count:
            pages = self._pages(rows) if self._divided else ()
            plan = self._plans.get(pages) or self._plan(pages)
            if plan.together is not None and plan.is_quick(count):
                taken = take_rows(plan.together, rows)
        if plan is None:
            return [column.take(rows) for column in columns]
        if taken is None:
            return [take(rows) for take in plan.alone]
        memory, places = taken.memory, iter(taken.parts)
        shared = len(columns) > 1 and memory.size > _MOST_SHARED
        arrays = []
        for column, parts, take in zip(columns, plan.parts, plan.alone, strict=True):
            if parts and parts[0].type is not None:
                arrays.append(parts[0].array(memory, next(places), count, shared=shared))
            elif parts and isinstance(column, FieldColumns):
                leaves = [part.leaf(memory, next(places), count, shared=shared) for part in parts]
                arrays.append(column.finish(count, leaves))
            else:
                arrays.append(take(rows))
        return arrays

    @property
    def each(self) -> Sequence[Callable[[Int64s], pa.Array]]:
        """How each column is taken alone, into memory of its own."""
        if not self._each:
            self._each = [partial(_take_alone, ColumnTakes([column])) for column in self._columns]
        return self._each

    def _pages(self, rows: Int64s) -> tuple[int, ...]:
        """The page of each column with several that holds all rows, -1 where none does."""
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
        """The plan for rows in these pages of the columns that have several."""
        remaining = iter(pages)
        parts, alone = [], []
        for number, column in enumerate(self._columns):
            own: list[_Part] = []
            take = column.take
            if isinstance(column, FieldColumns):
                page = next(remaining) if len(column.segments) > 2 else len(column.segments) - 2
                known = self._parts.get((number, page))
                own = _parts(column, page) if known is None else known
                self._parts[number, page] = own
                if page >= 0:
                    lists = None if own else ListRows.of(column, page)
                    take = partial(column.take_within, page) if lists is None else lists.take
            parts.append(own)
            alone.append(take)
        together = [part.pages for own in parts for part in own]
        plan = _Plan(RowColumns(together) if together else None, parts, alone)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[pages] = plan
        return plan


def _take_alone(takes: ColumnTakes, rows: Int64s) -> pa.Array:
    return takes.take(rows)[0]


def _parts(column: FieldColumns, segment: int) -> list[_Part]:
    """The leaves of a column; none where they cannot be taken together."""
    if segment < 0 or len(column.segments) < 2:
        return []
    found = []
    first_row = column.segments[segment]
    for node, part in zip(column.node.leaves(), column.leaf_columns, strict=True):
        if part is None or node.kind != "leaf" or pa.types.is_dictionary(node.type):
            return []
        at = bisect_right(part.starts, first_row) - 1
        page = part.pages[at]
        pages = page.row_pages() if isinstance(page, MiniBlockReader) else None
        if not isinstance(page, MiniBlockReader) or pages is None:
            return []
        if part.starts[at]:
            pages = replace(pages, first_row=part.starts[at])
        found.append(_Part(pages, page.layout.layers, _plain_type(node, pages, page.layout.layers)))
    return found


def _plain_type(node: Node, pages: RowPages, layers: Sequence[Layer]) -> pa.DataType | None:
    """The type of a leaf whose rows are taken as arrays of it have them; None of others."""
    is_flat = len(layers) == len(node.layers) == 1 and not layers[0].is_list
    if not is_flat or node.layers[0] or node.members is not None:
        return None
    bits = pages.text_bits or pages.page.value_bits
    return node.type if is_stored_as(node.type, bits, texts=pages.text_bits > 0) else None


class PagedColumns(FileColumns):
    """Several fields of one file whose columns have pages of their own."""

    __slots__ = ("_takes",)

    def __init__(self, columns: Sequence[BoundField], rows: int, reader: RangeReader) -> None:
        super().__init__(columns, rows, reader)
        self._takes = ColumnTakes(columns) if reader.mapped else None

    def take(self, rows: Int64s) -> list[pa.Array]:
        """The rows at these positions, one array per field."""
        return super().take(rows) if self._takes is None else self._takes.take(rows)
