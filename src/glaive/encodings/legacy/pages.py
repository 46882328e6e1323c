"""Where the values of a 0.1 column are stored: pages, spans of pages, and their bytes.

A column has one page per batch of rows. A read is a list of *spans*: a page, a first value and
a number of values. A scan has one span per batch, a take one per row, and the items of lists
one per list or batch; all spans are handled in one step.

Specification: "Page table" and "Pages" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import total_of
from glaive.dataclass import dataclass
from glaive.encodings.fetch import Fetch
from glaive.encodings.row_ranges import join_buffers
from glaive.errors import CorruptFileError
from glaive.kernels.full_zip import gather_ranges
from glaive.memory import as_array
from glaive.types import ByteRange, Int64s, Where

__all__ = ["Ends", "FileBytes", "Pages", "Spans", "adjacent"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileBytes:
    """The bytes of a file that pages may occupy.

    Parameters
    ----------
    whole
        All of them when the file is memory-mapped, else None.
    size
        Bytes before the metadata at the file's end.
    """

    whole: pa.Buffer | None
    size: int

    def fetch(
        self,
        starts: Int64s,
        sizes: Int64s,
        then: Callable[[pa.Buffer, Int64s], Fetch[T] | T],
        where: Where,
    ) -> Fetch[T] | T:
        """Call ``then`` once ``sizes[i]`` bytes from ``starts[i]`` on are in memory.

        ``then`` gets a buffer and the position of each range in it. Adjacent ranges are
        requested as one.

        Raises
        ------
        CorruptFileError
            A range does not lie within the file.
        """
        bad = (starts < 0) | (sizes < 0) | (starts > self.size - sizes)
        if bad.any():
            at = int(bad.argmax())
            raise CorruptFileError(
                "page",
                expected=f"bytes within 0..{self.size}",
                found=f"{sizes[at]} bytes at {starts[at]}",
                where=where,
            )
        if self.whole is not None:
            return then(self.whole, starts)
        if not sizes.any():
            return then(pa.py_buffer(b""), np.zeros_like(starts))
        used = np.flatnonzero(sizes)
        order = used[np.argsort(starts[used], kind="stable")]
        begins, ends = starts[order], starts[order] + sizes[order]
        reach = np.maximum.accumulate(ends)
        opens = np.concatenate(([True], begins[1:] > reach[:-1]))
        first = np.flatnonzero(opens)
        range_starts = begins[first]
        range_sizes = np.maximum.reduceat(ends, first) - range_starts
        group = np.cumsum(opens) - 1
        placed = np.zeros_like(starts)
        joined = np.cumsum(range_sizes) - range_sizes
        placed[order] = begins - range_starts[group] + joined[group]
        pairs = zip(range_starts.tolist(), range_sizes.tolist(), strict=True)
        ranges = [ByteRange(*pair) for pair in pairs]
        return Fetch(ranges, lambda buffers: then(join_buffers(buffers), placed))


@dataclass(frozen=True, slots=True)
class Spans:
    """``count[i]`` values of page ``page[i]`` from value ``first[i]`` on, back to back."""

    page: Int64s
    first: Int64s
    count: Int64s

    @property
    def total(self) -> int:
        """Values of all spans.

        Raises
        ------
        CapacityError
            Lists claim more items than can be counted: those without bytes have no other limit.
        """
        return total_of(self.count)


@dataclass(frozen=True, slots=True)
class Ends:
    """First and last offset of each span, and the length of each value, in order."""

    firsts: Int64s
    lasts: Int64s
    lengths: NDArray[np.signedinteger]


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one column, batch by batch.

    Parameters
    ----------
    positions
        Where each page begins in the file.
    lengths
        Number of its values; for lists, of offsets: one more than lists.
    bits
        Bits of a value: pages have been checked to lie within the file.
    """

    positions: Int64s
    lengths: Int64s
    bits: int
    data: FileBytes
    where: Where

    def __post_init__(self) -> None:
        size, bits = self.data.size, self.bits
        positions, lengths = self.positions, self.lengths
        bad = (positions < 0) | (positions > size) | (lengths < 0)
        if not bad.any():
            bad = lengths // 8 > (size - positions) // bits
            bad |= (lengths * bits + 7) // 8 > size - positions
        if bad.any():
            at = int(bad.argmax())
            raise CorruptFileError(
                "page table",
                expected=f"values of {bits} bits within 0..{size}",
                found=f"{lengths[at]} at {positions[at]}",
                where=self._where(at),
            )
        # Pages do not overlap: this limits what a reader allocates for a damaged table.
        if int(lengths.sum(dtype=np.float64)) // 8 > size // bits + len(lengths):
            raise CorruptFileError(
                "page table",
                expected=f"pages within {size} bytes in all",
                found=f"{lengths.sum()} values of {bits} bits",
                where=self.where,
            )

    @property
    def nbytes(self) -> float:
        """Bytes of all pages in the file, not those of texts, which lie elsewhere in it."""
        return float(self.lengths.sum(dtype=np.float64)) * self.bits / 8

    def once(self, spans: Spans) -> Int64s:
        """One span for each value that spans begin at, in the order of the pages.

        Those without values are none: they may begin where another one does.
        """
        filled = np.flatnonzero(spans.count)
        before = np.cumsum(self.lengths) - self.lengths
        begins = (before[spans.page] + spans.first)[filled]
        return filled[np.unique(begins, return_index=True)[1]]

    def check(self, spans: Spans, beyond: int = 0) -> None:
        """Refuse spans that end less than ``beyond`` values before the end of their page."""
        have = self.lengths[spans.page]
        bad = spans.count > have - beyond - spans.first  # sums of what a file says may wrap
        if bad.any():
            at = int(bad.argmax())
            raise CorruptFileError(
                "page",
                expected=f"{int(spans.first[at]) + int(spans.count[at]) + beyond} values or more",
                found=f"{have[at]}",
                where=self._where(int(spans.page[at])),
            )

    def ends(self, spans: Spans) -> Fetch[Ends] | Ends:
        """Read the offsets around the values of spans, from pages of offsets.

        Raises
        ------
        CorruptFileError
            Offsets are negative or do not ascend.
        """
        self.check(spans, beyond=1)
        width = self.bits // 8
        starts = self.positions[spans.page] + spans.first * width
        sizes = (spans.count + 1) * width

        def then(data: pa.Buffer, at: Int64s) -> Ends:
            whole = gather_ranges(data, at, sizes, self.where)
            offsets = as_array(whole, f"<i{width}")
            return self._lengths(offsets, spans)

        return self.data.fetch(starts, sizes, then, self.where)

    def _lengths(self, offsets: NDArray[np.signedinteger], spans: Spans) -> Ends:
        edges = np.cumsum(spans.count + 1)
        firsts = offsets[edges - spans.count - 1].astype(np.int64)
        lasts = offsets[edges - 1].astype(np.int64)
        if len(offsets) and int(offsets.min()) < 0:
            raise self._descending()
        lengths = np.diff(offsets)  # without overflow: none is negative
        if len(edges) > 1:
            lengths = np.delete(lengths, edges[:-1] - 1)
        if len(lengths) and int(lengths.min()) < 0:
            raise self._descending()
        return Ends(firsts, lasts, lengths)

    def _descending(self) -> CorruptFileError:
        return CorruptFileError(
            "offsets", expected="0 or more, ascending", found="others", where=self.where
        )

    def _where(self, batch: int) -> Where:
        where = self.where
        return Where(where.path, where.column, where.name, batch)


def adjacent(starts: Int64s, sizes: Int64s) -> bool:
    """Whether each range begins where the one before ends."""
    return bool((starts[1:] == starts[:-1] + sizes[:-1]).all())
