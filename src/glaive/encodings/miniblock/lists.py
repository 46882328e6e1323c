"""Levels of mini-block chunks with lists: ranges of rows, and rows selected one by one.

Rows are found by their repetition levels, and their values by counting visible entries.
There are two ways to the same result: one pass over header and levels of each chunk
(``glaive.kernels.list_levels``), for the encodings of levels that are in use and levels that
are right; and the general one, for everything else, which says what is wrong.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import spread
from glaive.encodings.miniblock.chunk_table import ChunkTable, RowIndex
from glaive.encodings.miniblock.chunks import ChunkReader, ValuePieces
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.miniblock.levels import LevelReader, Levels, level_form
from glaive.encodings.values.general import General
from glaive.errors import CorruptFileError
from glaive.kernels.chunks import find_row, max_levels
from glaive.kernels.list_levels import LocatedRows, read_levels, select_levels
from glaive.kernels.records import LevelPage
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, Where

__all__ = ["ListReader", "RowCut", "RowPick"]

LEVEL_BITS = 16


class _Chunks(NamedTuple):
    """The levels of some chunks, one after the other; chunk i from entry ``firsts[i]`` on."""

    rep: Levels
    definition: Levels | None
    firsts: Int64s
    pieces: ValuePieces


class RowCut(NamedTuple):
    """The levels of a range of rows, and which of the chunks' values are theirs."""

    rep: Levels
    definition: Levels | None
    first_value: int
    values: int
    pieces: ValuePieces


class RowPick(NamedTuple):
    """The levels of selected rows; value j is number ``places[j]`` of chunk ``slots[j]``."""

    rep: Levels
    definition: Levels | None
    slots: Int64s
    places: Int64s
    pieces: ValuePieces


class ListReader:
    """Reads the levels of any chunks of one page with lists."""

    __slots__ = ("_all_visible", "_chunks", "_layout", "_levels", "_page", "_where")

    def __init__(
        self, layout: MiniBlockLayout, chunks: ChunkReader, levels: LevelReader, where: Where
    ) -> None:
        self._layout = layout
        self._chunks = chunks
        self._levels = levels
        self._where = where
        limits = layout.limits
        self._all_visible = layout.definition is None or limits.visible_def == limits.max_def
        self._page: LevelPage | None = None
        rep = level_form(layout.rep)
        definition = level_form(layout.definition)
        if rep is not None and (definition is not None or layout.definition is None):
            self._page = LevelPage(
                rep=rep[0],
                rep_width=rep[1],
                definition=definition[0] if definition else 0,
                def_width=definition[1] if definition else 0,
                value_buffers=layout.pieces - layout.level_buffers,
                value_width=layout.value_width,
                max_rep=limits.max_rep,
                visible_max=limits.visible_def,
                max_def=limits.max_def,
            )

    @property
    def page(self) -> LevelPage | None:
        """Encodings and limits for kernels; None where these do not support them."""
        return self._page

    # ------------------------------------------------------------------ ranges

    def read(
        self, data: pa.Buffer, starts: Int64s, table: ChunkTable, ids: slice, start: int, stop: int
    ) -> RowCut:
        """The rows ``start`` to ``stop`` out of the chunks ``ids``, which hold them."""
        rows = _index(table)
        decoded = self._decode(data, starts, table, ids)
        rep, definition, max_rep = decoded.rep, decoded.definition, self._layout.limits.max_rep
        visible = int(table.firsts[ids.stop] - table.firsts[ids.start])
        first = int(rows.starts[ids.start])
        begin, end = 0, len(rep)
        if start != first or rows.enters[ids.start]:
            begin = find_row(rep, max_rep, start - first)
        if stop != rows.starts[ids.stop] or rows.enters[ids.stop]:
            # It lies in the last chunk: rows that go on from there are not wanted.
            at = int(decoded.firsts[-1]) if len(decoded.firsts) else 0
            nth = stop - int(rows.starts[ids.stop - 1])
            end = at + find_row(rep[at:], max_rep, nth)
        if begin == 0 and end == len(rep):
            return RowCut(rep, definition, 0, visible, decoded.pieces)
        cut = rep[begin:end]
        if definition is None:
            return RowCut(cut, None, begin, end - begin, decoded.pieces)
        if self._all_visible:
            return RowCut(cut, definition[begin:end], begin, end - begin, decoded.pieces)
        top = self._layout.limits.visible_def
        before = int(np.count_nonzero(definition[:begin] <= top))
        after = int(np.count_nonzero(definition[end:] <= top))
        return RowCut(cut, definition[begin:end], before, visible - before - after, decoded.pieces)

    def _decode(
        self, data: pa.Buffer, starts: Int64s, table: ChunkTable, ids: slice | Int64s
    ) -> _Chunks:
        """All levels of the chunks; they agree with the chunk table."""
        index = _index(table)
        if self._page is not None and isinstance(ids, slice):
            levels = read_levels(
                data,
                starts,
                table.sizes[ids],
                table.counts[ids],
                index.starts[ids.start : ids.stop + 1],
                index.enters[ids],
                self._page,
            )
            if levels is not None:
                pieces = ValuePieces(levels.starts, levels.sizes)
                return _Chunks(levels.rep, levels.definition, levels.firsts, pieces)
        headers = self._chunks.headers(data, starts, table.sizes[ids])
        counts, row_starts = table.counts[ids], index.starts[:-1][ids]
        row_counts = index.starts[1:][ids] - row_starts
        if (headers.levels < np.maximum(counts, 1)).any():
            at = int(np.argmax(headers.levels < np.maximum(counts, 1)))
            raise self._levels.uneven(int(headers.levels[at]), int(counts[at]))
        ends = np.cumsum(headers.levels)
        firsts = ends - headers.levels
        self._check_room(int(ends[-1]), table, ids)
        rep = self._levels.decode(self._layout.rep, data, headers, 0)
        definition = None
        if self._layout.definition is not None:
            definition = self._levels.decode(self._layout.definition, data, headers, 1)
        rows, visible = self._levels.check(rep, definition)
        begins = np.flatnonzero(rep == self._layout.limits.max_rep)
        found_rows = begins.searchsorted(ends) - begins.searchsorted(firsts)
        enters = rep[firsts] != self._layout.limits.max_rep
        if (found_rows != row_counts).any() or (enters != index.enters[:-1][ids]).any():
            raise CorruptFileError(
                "repetition levels",
                expected=f"the {row_counts.sum()} rows of the repetition index",
                found=f"{rows} rows, or rows that start elsewhere",
                where=self._where,
            )
        seen = ends
        if definition is not None:
            seen = np.append(0, np.cumsum(definition <= self._layout.limits.visible_def))[ends]
        if (np.diff(seen, prepend=0) != counts).any():
            raise CorruptFileError(
                "definition levels",
                expected=f"{counts.sum()} entries with a value, each in its chunk",
                found=f"{visible}, or in other chunks",
                where=self._where,
            )
        return _Chunks(rep, definition, firsts, self._chunks.pieces_of(headers))

    def _check_room(self, levels: int, table: ChunkTable, ids: slice | Int64s) -> None:
        """Refuse more levels than the chunks can have, before memory is made for them."""
        if isinstance(self._layout.rep, General):
            return  # a chunk has 65,535 at most
        rows = _index(table).starts
        counts = np.append(0, np.cumsum((rows[1:] - rows[:-1])[ids]))
        max_rep = self._layout.limits.max_rep
        most = max_levels(table.counts[ids], counts, table.sizes[ids], max_rep=max_rep)
        if levels > most:
            raise CorruptFileError(
                "level counts of mini-block chunks",
                expected=f"at most {most}, as there are {counts[-1]} rows",
                found=str(levels),
                where=self._where,
            )

    # ------------------------------------------------------------------ positions

    def pick(
        self,
        data: pa.Buffer,
        starts: Int64s,
        table: ChunkTable,
        rows: Int64s,
        located: LocatedRows,
        order: Int64s | None,
    ) -> RowPick:
        """The rows at these positions, out of the chunks located.

        Row i comes to place ``order[i]``, when that is given.
        """
        index = _index(table)
        if self._page is not None:
            selected = select_levels(
                data,
                starts,
                table.sizes,
                table.counts,
                index.starts,
                index.enters,
                rows,
                located,
                self._page,
                order,
            )
            if selected is not None:
                pieces = ValuePieces(selected.starts, selected.sizes)
                return RowPick(
                    selected.rep, selected.definition, selected.slots, selected.positions, pieces
                )
        if order is not None:
            back = np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
            rows = rows[back]
            located = LocatedRows(located.ids, located.begin[back], located.last[back])
        return self._select(self._decode(data, starts, table, located.ids), table, rows, located)

    def _select(
        self, chunks: _Chunks, table: ChunkTable, rows: Int64s, located: LocatedRows
    ) -> RowPick:
        index, ids = _index(table), located.ids
        row_starts = index.starts[ids]
        row_counts = index.starts[ids + 1] - row_starts
        starts = np.flatnonzero(chunks.rep == self._layout.limits.max_rep)
        before = np.cumsum(row_counts) - row_counts
        number = rows + (before - row_starts)[located.begin]
        begin = starts[number]
        # A row ends where the next one starts, or with its last chunk: the chunk that comes
        # next here need not be its neighbour in the page.
        following = np.append(starts, len(chunks.rep))[number + 1]
        ends = np.append(chunks.firsts[1:], len(chunks.rep))
        end = np.minimum(following, ends[located.last])
        entries = spread(begin, end - begin)
        rep = chunks.rep[entries]
        definition, values = None, entries
        if chunks.definition is not None:
            definition = chunks.definition[entries]
            top = self._layout.limits.visible_def
            position = np.cumsum(chunks.definition <= top) - 1
            values = position[entries[definition <= top]]
        counts = table.counts[ids]
        last = np.cumsum(counts)
        slots = last.searchsorted(values, "right")
        return RowPick(rep, definition, slots, values - (last - counts)[slots], chunks.pieces)


def _index(table: ChunkTable) -> RowIndex:
    if table.rows is None:
        raise TypeError("a page with lists has a repetition index")
    return table.rows
