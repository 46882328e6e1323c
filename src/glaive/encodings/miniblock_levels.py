"""Levels of mini-block chunks: decoded, checked against the chunk table, cut to rows.

Without lists every entry is a row and has a value, so levels are looked up by position. With
lists rows are found by their repetition levels, and values by counting visible entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Constant, FixedWidth
from glaive.arrow.buffers import take_bits
from glaive.arrow.slices import count_bits, slice_bits
from glaive.encodings.chunk_table import ChunkTable
from glaive.encodings.miniblock_form import MiniBlockForm
from glaive.encodings.protocol import Leaf, ValueEncoding
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError
from glaive.kernels._tier import as_array
from glaive.kernels.bitpack import LevelForm, unpack_level_bits
from glaive.kernels.chunks import ChunkHeaders, count_levels, find_row
from glaive.types import Where

__all__ = [
    "NULL_BIT",
    "LevelReader",
    "ListChunks",
    "RowCut",
    "RowPick",
    "select_rows",
    "trim_rows",
]

NULL_BIT = pa.py_buffer(b"\0")
"""Validity bitmap of a single null."""

LEVEL_BITS = 16

Levels = NDArray[np.uint16]


class ListChunks(NamedTuple):
    """The levels of some chunks, one after the other.

    ``row_starts[i]`` is the number of the first row that starts in chunk i, ``row_counts[i]``
    how many do; its entries begin at ``firsts[i]`` (one item more: the end). ``visible`` is
    the number of entries that have a value; ``all_visible`` says that none can lack one.
    """

    rep: Levels
    definition: Levels | None
    firsts: NDArray[np.int64]
    row_starts: NDArray[np.int64]
    row_counts: NDArray[np.int64]
    visible: int
    all_visible: bool
    max_rep: int
    visible_max: int
    where: Where


class RowCut(NamedTuple):
    """The levels of a range of rows, and which of the chunks' values are theirs."""

    rep: Levels
    definition: Levels | None
    first_value: int
    values: int


class RowPick(NamedTuple):
    """The levels of picked rows, and the positions of their values among the chunks'."""

    rep: Levels
    definition: Levels | None
    values: NDArray[np.int64]


class LevelReader:
    """Decodes the levels of any chunks of one page."""

    __slots__ = ("_bits", "_form", "_where")

    def __init__(self, form: MiniBlockForm, where: Where) -> None:
        self._form = form
        self._where = where
        self._bits = _bit_form(form.definition) if form.nullable_item else None

    def empty_leaf(self) -> Leaf:
        """No rows, with levels where the page has them."""
        form = self._form
        rep = np.empty(0, np.uint16) if form.rep is not None else None
        definition = None
        if form.definition is not None and not form.nullable_item:
            definition = np.empty(0, np.uint16)
        return Leaf(None, 0, 0, form.layers, rep, definition)

    # ------------------------------------------------------------------ without lists

    def read_flat(
        self,
        leaf: Leaf,
        data: pa.Buffer,
        headers: ChunkHeaders,
        counts: NDArray[np.int64],
        low: int,
    ) -> None:
        """Put the levels of ``leaf.rows`` entries from entry ``low`` of the chunks on."""
        bits = self._level_bits(data, headers, counts)
        if bits is not None:
            bitmap, nulls = bits
            if nulls and leaf.rows != headers.levels.sum():
                bitmap = slice_bits(bitmap, low, leaf.rows)
                nulls = leaf.rows - count_bits(bitmap, leaf.rows)
            if nulls:
                leaf.validity, leaf.null_count = bitmap, nulls
            return
        levels = self._decode(self._form.definition, data, headers, 0)
        leaf.definition = levels[low : low + leaf.rows]
        self._check(None, leaf.definition)

    def pick_flat(
        self,
        leaf: Leaf,
        data: pa.Buffer,
        headers: ChunkHeaders,
        counts: NDArray[np.int64],
        position: NDArray[np.int64],
    ) -> None:
        """Put the levels of the entries at these positions of the chunks."""
        bits = self._level_bits(data, headers, counts)
        if bits is not None:
            bitmap, nulls = bits
            if nulls:
                bitmap = take_bits(bitmap, position)
                nulls = leaf.rows - count_bits(bitmap, leaf.rows)
            if nulls:
                leaf.validity, leaf.null_count = bitmap, nulls
            return
        leaf.definition = self._decode(self._form.definition, data, headers, 0)[position]
        self._check(None, leaf.definition)

    def one(
        self, data: pa.Buffer, piece: tuple[int, int], levels: int, count: int, index: int
    ) -> int:
        """Return level ``index`` of the one chunk whose definition levels are ``piece``."""
        start, size = piece
        if levels != count:
            raise self._uneven(levels, count)
        if self._bits is not None and self._bits[1] == 1:
            tail = levels & 1023
            # Blocks of 1,024 levels are packed; so is a shorter last one that is worth it.
            packed = index < levels - tail or tail > LEVEL_BITS * 4
            at = index >> 10 << 7 | (index & 63) << 1
            if packed and at + 2 <= size:
                # Word l holds levels l, l + 128, l + 256, … and then l + 64, l + 192, …
                bit = (index >> 7 & 7) | (index >> 6 & 1) << 3
                word = int.from_bytes(data[start + at : start + at + 2], "little")
                return word >> bit & 1
        headers = ChunkHeaders(np.array([levels]), np.array([[start]]), np.array([[size]]))
        level = self._decode(self._form.definition, data, headers, 0).item(index)
        if level > self._form.limits.max_def:
            self._check(None, np.array([level], np.uint16))
        return level

    def _level_bits(
        self, data: pa.Buffer, headers: ChunkHeaders, counts: NDArray[np.int64]
    ) -> tuple[pa.Buffer, int] | None:
        if (headers.levels != counts).any():
            at = int(np.argmax(headers.levels != counts))
            raise self._uneven(int(headers.levels[at]), int(counts[at]))
        if self._bits is None:
            return None
        form, width = self._bits
        return unpack_level_bits(
            data, headers.starts[0], headers.sizes[0], headers.levels, form, self._where, width
        )

    # ------------------------------------------------------------------ with lists

    def read_lists(
        self,
        data: pa.Buffer,
        headers: ChunkHeaders,
        table: ChunkTable,
        ids: slice | NDArray[np.int64],
    ) -> ListChunks:
        """Decode the levels of the chunks ``ids``; they must agree with the chunk table."""
        form, index = self._form, table.rows
        if index is None:
            raise TypeError("a page with lists has a repetition index")
        counts, row_starts = table.counts[ids], index.starts[:-1][ids]
        row_counts = index.starts[1:][ids] - row_starts
        if (headers.levels < np.maximum(counts, 1)).any():
            at = int(np.argmax(headers.levels < np.maximum(counts, 1)))
            raise self._uneven(int(headers.levels[at]), int(counts[at]))
        firsts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(headers.levels, out=firsts[1:])
        rep = self._decode(form.rep, data, headers, 0)
        definition = None
        if form.definition is not None:
            definition = self._decode(form.definition, data, headers, 1)
        rows, visible = self._check(rep, definition)
        enters = rep[firsts[:-1]] != form.limits.max_rep
        if rows != row_counts.sum() or (enters != index.enters[:-1][ids]).any():
            raise CorruptFileError(
                "repetition levels",
                expected=f"the {row_counts.sum()} rows of the repetition index",
                found=f"{rows} rows, or rows that start elsewhere",
                where=self._where,
            )
        if visible != counts.sum():
            raise CorruptFileError(
                "definition levels",
                expected=f"{counts.sum()} entries with a value",
                found=f"{visible}",
                where=self._where,
            )
        return ListChunks(
            rep,
            definition,
            firsts,
            row_starts,
            row_counts,
            visible,
            definition is None or form.limits.visible_def == form.limits.max_def,
            form.limits.max_rep,
            form.limits.visible_def,
            self._where,
        )

    # ------------------------------------------------------------------ both

    def _decode(
        self, codec: ValueEncoding | None, data: pa.Buffer, headers: ChunkHeaders, piece: int
    ) -> Levels:
        if codec is None:
            raise TypeError("these levels are not in the page")
        block = codec.decode_blocks(
            data, headers.starts[piece], headers.sizes[piece], headers.levels, self._where
        )
        entries = int(headers.levels.sum())
        kind = block.value if isinstance(block, Constant) else block
        if not isinstance(kind, FixedWidth) or kind.bits != LEVEL_BITS or block.count != entries:
            raise CorruptFileError(
                "levels",
                expected=f"{entries} numbers of {LEVEL_BITS} bits",
                found=f"{block.count} values of {codec.wire_name!r}",
                where=self._where,
            )
        levels: Levels = as_array(kind.values, "<u2")
        return levels[:entries] if kind is block else np.full(entries, levels[0])

    def _check(self, rep: Levels | None, definition: Levels | None) -> tuple[int, int]:
        limits = self._form.limits
        return count_levels(
            rep,
            definition,
            max_rep=limits.max_rep,
            visible_max=limits.visible_def,
            max_def=limits.max_def,
            where=self._where,
        )

    def _uneven(self, levels: int, values: int) -> CorruptFileError:
        each = "≥ " if self._form.limits.max_rep else "one per value, "
        return CorruptFileError(
            "level count of a mini-block chunk",
            expected=f"{each}{values}",
            found=f"{levels}",
            where=self._where,
        )


def _bit_form(codec: ValueEncoding | None) -> tuple[LevelForm, int] | None:
    """How to read levels of 0 and 1 straight into a bitmap, if their encoding allows it."""
    if isinstance(codec, InlineBitpacking) and codec.bits == LEVEL_BITS:
        return "inline", 0
    if isinstance(codec, OutOfLineBitpacking) and codec.bits == LEVEL_BITS:
        return "out_of_line", codec.width
    if isinstance(codec, Flat) and codec.bits == LEVEL_BITS:
        return "flat", LEVEL_BITS
    return None


def trim_rows(lists: ListChunks, first: int, rows: int) -> RowCut:
    """Cut ``rows`` rows from neighbouring chunks, from the ``first``-th that starts there on."""
    entries = len(lists.rep)
    begin = find_row(lists.rep, lists.max_rep, first)
    end = find_row(lists.rep, lists.max_rep, first + rows)
    if begin == 0 and end == entries:
        return RowCut(lists.rep, lists.definition, 0, lists.visible)
    rep = lists.rep[begin:end]
    if lists.definition is None or lists.all_visible:
        definition = None if lists.definition is None else lists.definition[begin:end]
        return RowCut(rep, definition, begin, end - begin)
    before = int(np.count_nonzero(lists.definition[:begin] <= lists.visible_max))
    after = int(np.count_nonzero(lists.definition[end:] <= lists.visible_max))
    return RowCut(rep, lists.definition[begin:end], before, lists.visible - before - after)


def select_rows(
    lists: ListChunks,
    rows: NDArray[np.int64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> RowPick:
    """Pick rows, in the order given.

    ``first[i]`` and ``last[i]`` are the first and the last of these chunks (counted here) that
    hold entries of row ``rows[i]``.
    """
    starts = np.flatnonzero(lists.rep == lists.max_rep)
    before = np.cumsum(lists.row_counts) - lists.row_counts
    if (starts.searchsorted(lists.firsts[:-1]) != before).any():
        raise CorruptFileError(
            "repetition levels",
            expected="as many rows per chunk as the repetition index says",
            found="the same number of rows, but in other chunks",
            where=lists.where,
        )
    number = rows + (before - lists.row_starts)[first]
    begin = starts[number]
    # A row ends where the next one starts, or with its last chunk: the chunk that comes
    # next here need not be its neighbour in the page.
    following = np.append(starts, len(lists.rep))[number + 1]
    end = np.minimum(following, lists.firsts[last + 1])
    entries = _spread(begin, end - begin)
    rep = lists.rep[entries]
    if lists.definition is None or lists.all_visible:
        definition = None if lists.definition is None else lists.definition[entries]
        return RowPick(rep, definition, entries)
    definition = lists.definition[entries]
    visible = lists.definition <= lists.visible_max
    position = np.cumsum(visible) - 1
    return RowPick(rep, definition, position[entries[definition <= lists.visible_max]])


def _spread(begin: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """``begin[i], begin[i] + 1, …`` (``lengths[i]`` numbers) for each i, one after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(begin - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
