"""Fields of a 2.0 file: read and take arrays from pages that may begin at different rows.

A list column reads its offsets, then that range of the child column, whose pages are
independent. Everything is a step: a ``Fetch``, or the array when the bytes are in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import (
    MAX_IMPLIED_POSITIONS,
    flags_of,
    inverse_permutation,
    pack_flags,
    spread,
    total_of,
)
from glaive.arrow.build import all_null
from glaive.arrow.chunked import take_values
from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.list_arrays import list_array
from glaive.encodings.array_protocol import ArrayEncoding, Source
from glaive.encodings.arrays.list import List
from glaive.encodings.fetch import Fetch, and_then, join
from glaive.encodings.predicate import PagePredicate, mask_matches
from glaive.errors import CapacityError, CorruptFileError
from glaive.file.bound import Proportion
from glaive.file.v2.reading.container import MAX_ROWS
from glaive.kernels.end_offsets import NullableOffsets, Spans
from glaive.kernels.match import list_rows
from glaive.memory import as_buffer, items_of
from glaive.types import MAX_OFFSET, Flags, Int64s, Where

__all__ = [
    "ArrayColumn",
    "ArrayPage",
    "LeafReader",
    "ListReader",
    "MissingReader",
    "NodeReader",
    "StructReader",
    "TextReader",
]

Step = Fetch[Any] | Any


class ArrayPage:
    """One page: its encoding and its bytes."""

    __slots__ = ("encoding", "rows", "source")

    def __init__(self, encoding: ArrayEncoding, source: Source) -> None:
        self.encoding = encoding
        self.source = source
        self.rows = source.page.rows


class ArrayColumn:
    """One physical column: its pages, and the first value of each."""

    __slots__ = ("__weakref__", "_file_size", "pages", "starts", "where")

    def __init__(self, pages: Sequence[ArrayPage], where: Where, file_size: int) -> None:
        self._file_size = file_size
        self.pages = [page for page in pages if page.rows]
        self.where = where
        self.starts = [0]
        for page in self.pages:
            self.starts.append(self.starts[-1] + page.rows)
        if self.rows > MAX_ROWS:
            expected, found = f"at most {MAX_ROWS} in all", f"{self.rows}"
            raise CorruptFileError("page rows", expected=expected, found=found, where=where)

    @property
    def rows(self) -> int:
        """Values of the column."""
        return self.starts[-1]

    def read(self, start: int, stop: int) -> list[tuple[int, Step]]:
        """Steps that read the parts of a range, each with the number of its page."""
        steps, checked = [], self._checked(stop - start)
        at = bisect_right(self.starts, start) - 1
        while start < stop:
            page, base = self.pages[at], self.starts[at]
            end = min(stop, base + page.rows)
            step = page.encoding.read(page.source, start - base, end - base)
            steps.append((at, and_then(step, checked)))
            start, at = end, at + 1
        return steps

    def take(self, rows: Int64s) -> tuple[list[tuple[int, Step]], Int64s | None]:
        """Steps that take rows page by page, and the position of each row (None: in order)."""
        if len(self.pages) == 1:
            page = self.pages[0]
            return [(0, page.encoding.take(page.source, rows))], None
        numbers = np.searchsorted(np.array(self.starts), rows, side="right") - 1
        order = np.argsort(numbers, kind="stable")
        used, bounds = np.unique(numbers[order], return_index=True)
        steps, checked = [], self._checked(len(rows))
        for at, part in zip(used.tolist(), np.split(rows[order], bounds[1:]), strict=True):
            page = self.pages[at]
            step = page.encoding.take(page.source, part - self.starts[at])
            steps.append((at, and_then(step, checked)))
        if bool((order[1:] > order[:-1]).all()):
            return steps, None
        return steps, inverse_permutation(order)

    def _checked(self, rows: int) -> Callable[[Any], Any]:
        """A check of the values that each page has of so many rows; offsets are in the file."""
        check = Proportion(rows, self._file_size, self.where).array
        return lambda part: check(part) if isinstance(part, pa.Array) else part


class NodeReader(Protocol):
    """A field, or one level of a nested one."""

    rows: int

    def cuts(self) -> set[int]:
        """Rows at which pages begin, both ends included."""

    def read(self, start: int, stop: int) -> Step:
        """Rows ``start`` to ``stop`` as one array."""

    def take(self, rows: Int64s) -> Step:
        """The rows at these positions."""


class LeafReader:
    """Values of a column that is not nested."""

    def __init__(self, column: ArrayColumn, kind: pa.DataType) -> None:
        self._column = column
        self._kind = kind
        self.rows = column.rows

    def cuts(self) -> set[int]:
        """Rows at which pages begin."""
        return set(self._column.starts)

    def read(self, start: int, stop: int) -> Step:
        """Join the values of the pages in the range."""
        if start == stop:
            return all_null(self._kind, 0)
        return join([step for _, step in self._column.read(start, stop)], concat_arrays)

    def take(self, rows: Int64s) -> Step:
        """Take page by page, then put in order."""
        if not len(rows):
            return all_null(self._kind, 0)
        steps, back = self._column.take(rows)
        return join([step for _, step in steps], partial(self._restored, back))

    def find(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        """Rows that pass, page by page; None when the first page cannot be tested."""
        column = self._column
        parts: list[Int64s] = []
        at = bisect_right(column.starts, start) - 1
        while start < stop:
            page, base = column.pages[at], column.starts[at]
            end = min(stop, base + page.rows)
            matches = page.encoding.find(page.source, predicate, start - base, end - base)
            if matches is None:
                if not parts or not page.source.at_hand:
                    return None
                array: Any = page.encoding.read(page.source, start - base, end - base)
                matches = mask_matches(array, predicate)
            parts.append(list_rows(matches.bits, matches.begin, end - start, start))
            start, at = end, at + 1
        return np.concatenate([np.empty(0, np.int64), *parts]) if len(parts) != 1 else parts[0]

    def _restored(self, back: Int64s | None, arrays: list[Any]) -> Any:
        array = concat_arrays(arrays)
        return array if back is None else take_values(array, back)


class MissingReader:
    """A field that the file lacks."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind = kind
        self.rows = rows

    def cuts(self) -> set[int]:
        """Both ends."""
        return {0, self.rows}

    def read(self, start: int, stop: int) -> Any:
        """Nulls."""
        return all_null(self._kind, stop - start)

    def take(self, rows: Int64s) -> Any:
        """Nulls."""
        return all_null(self._kind, len(rows))


class StructReader:
    """A struct: its members. Its own column has only a number of rows."""

    def __init__(self, children: Sequence[NodeReader], kind: pa.DataType, rows: int) -> None:
        self._children = children
        self._kind = kind
        self.rows = rows

    def cuts(self) -> set[int]:
        """Rows at which pages of any member begin."""
        return {0, self.rows}.union(*(child.cuts() for child in self._children))

    def read(self, start: int, stop: int) -> Step:
        """Read all members at once."""
        steps = [child.read(start, stop) for child in self._children]
        return join(steps, partial(self._struct, stop - start))

    def take(self, rows: Int64s) -> Step:
        """Take from all members at once."""
        steps = [child.take(rows) for child in self._children]
        return join(steps, partial(self._struct, len(rows)))

    def _struct(self, rows: int, members: list[Any]) -> Any:
        return pa.Array.from_buffers(self._kind, rows, [None], 0, children=members)


class ListReader:
    """A list: its offsets, then the items they span."""

    def __init__(self, column: ArrayColumn, items: NodeReader, kind: pa.DataType) -> None:
        self._column = column
        self._items = items
        self._kind = kind
        self.rows = column.rows
        counts = [0]
        for page in column.pages:
            if not isinstance(page.encoding, List):
                raise CorruptFileError(
                    "array encoding",
                    expected="a list, since the column holds lists",
                    found=page.encoding.wire_name,
                    where=page.source.where,
                )
            counts.append(counts[-1] + page.encoding.num_items)
        if counts[-1] != items.rows:
            raise CorruptFileError(
                "items of lists",
                expected=f"{counts[-1]} in the column below",
                found=f"{items.rows}",
                where=column.where,
            )
        self._bases = counts

    def cuts(self) -> set[int]:
        """Rows at which pages of offsets begin."""
        return set(self._column.starts)

    def read(self, start: int, stop: int) -> Step:
        """Read the offsets of all pages in the range, then one range of items."""
        if start == stop:
            return all_null(self._kind, 0)
        steps = self._column.read(start, stop)
        pages = [at for at, _ in steps]

        def with_ends(parts: list[NullableOffsets]) -> Step:
            ends = parts[0] if len(parts) == 1 else _join_ends(parts, self._column.where)
            first = self._bases[pages[0]] + parts[0].start
            last = self._bases[pages[-1]] + parts[-1].stop
            # Items behind the last list of a page would be taken for those of the next page.
            if (spanned := ends.stop - ends.start) != last - first:
                raise CorruptFileError(
                    "items of the lists of several pages",
                    expected=f"{last - first}, as their pages say",
                    found=f"{spanned}",
                    where=self._column.where,
                )
            items = self._items.read(first, last)
            return and_then(items, partial(self._build, ends, stop - start))

        return join([step for _, step in steps], with_ends)

    def take(self, rows: Int64s) -> Step:
        """Take the spans of the lists, then their items."""
        if not len(rows):
            return all_null(self._kind, 0)
        steps, back = self._column.take(rows)
        bases = [self._bases[at] for at, _ in steps]

        def with_spans(parts: list[Spans]) -> Step:
            starts = np.concatenate(
                [spans.starts + base for spans, base in zip(parts, bases, strict=True)]
            )
            sizes = np.concatenate([spans.sizes for spans in parts])
            valid = None
            if any(spans.valid is not None for spans in parts):
                valid = np.concatenate(
                    [np.ones(len(s.sizes), np.bool_) if s.valid is None else s.valid for s in parts]
                )
            if back is not None:
                starts, sizes = starts[back], sizes[back]
                valid = None if valid is None else valid[back]
            ends = self._ends(sizes, valid)
            items = self._take_items(starts, sizes)
            return and_then(items, partial(self._build, ends, len(rows)))

        return join([step for _, step in steps], with_spans)

    def _take_items(self, starts: Int64s, sizes: Int64s) -> Step:
        if len(starts) == 1 or bool((starts[1:] == starts[:-1] + sizes[:-1]).all()):
            return self._items.read(int(starts[0]), int(starts[-1] + sizes[-1]))
        return self._items.take(spread(starts, sizes, MAX_IMPLIED_POSITIONS))

    def _ends(self, sizes: Int64s, valid: Flags | None) -> NullableOffsets:
        encoding: Any = self._column.pages[0].encoding
        bits, total = int(encoding.bits), total_of(sizes)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if bits == 32 and total > MAX_OFFSET:
            raise CapacityError.of(total, f"items of {self._kind}", where=self._column.where)
        validity = None if valid is None else pack_flags(valid)
        stored = as_buffer(offsets.astype(f"<i{bits // 8}"))
        return NullableOffsets(stored, bits, validity, 0 if validity is None else -1, 0, total)

    def _build(self, ends: NullableOffsets, rows: int, items: Any) -> Any:
        where = self._column.where
        return list_array(
            self._kind, rows, ends.validity, ends.null_count, ends.offsets, items, where
        )


class TextReader(ListReader):
    """Strings that Lance before 0.14 wrote as lists of bytes, in two columns."""

    def _build(self, ends: NullableOffsets, rows: int, items: Any) -> Any:
        data = items.buffers()[1]
        data = pa.py_buffer(b"") if data is None else data.slice(items.offset, len(items))
        buffers = [ends.validity, ends.offsets, data]
        return pa.Array.from_buffers(self._kind, rows, buffers, ends.null_count)


def _join_ends(parts: list[NullableOffsets], where: Where) -> NullableOffsets:
    """Ends of consecutive pages as those of one."""
    bits = parts[0].bits
    dtype = f"<i{bits // 8}"
    sizes = [part.stop - part.start for part in parts]
    if bits == 32 and sum(sizes) > MAX_OFFSET:
        raise CapacityError.of(sum(sizes), "items of lists", where=where, instead="a large_list")
    offsets, flags = [np.zeros(1, dtype)], []
    before = 0
    for part, size in zip(parts, sizes, strict=True):
        own = items_of(part.offsets, dtype, part.offsets.size * 8 // bits)
        offsets.append(own[1:] + np.array(before, dtype))
        count = len(own) - 1
        flags.append(
            np.ones(count, np.bool_) if part.validity is None else flags_of(part.validity, count)
        )
        before += size
    nulls = sum(part.null_count for part in parts)
    validity = pack_flags(np.concatenate(flags)) if nulls else None
    return NullableOffsets(as_buffer(np.concatenate(offsets)), bits, validity, nulls, 0, before)
