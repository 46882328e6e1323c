"""Chunks of a mini-block page into values: headers, value buffers, dictionary indices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.encodings.miniblock_form import MiniBlockForm
from glaive.encodings.protocol import MiniChunks
from glaive.errors import CorruptFileError
from glaive.kernels._tier import as_array, as_buffer
from glaive.kernels.chunks import ChunkHeaders, parse_headers
from glaive.types import Where

__all__ = ["ChunkReader", "Items", "ValuePieces"]


class ValuePieces(NamedTuple):
    """Value piece p of chunk i lies at ``starts[p, i]`` and has ``sizes[p, i]`` bytes."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Items(NamedTuple):
    """The dictionary of a page, or of several pages, one after the other.

    Chunk i has indices below ``limits[i]``, counted from item ``bases[i]`` on; both are None
    for a single page, where all chunks have indices below ``count``.
    """

    block: Block
    count: int
    bases: NDArray[np.int64] | None = None
    limits: NDArray[np.int64] | None = None

    def of(self, ids: slice | NDArray[np.int64]) -> Items:
        """The same for some of the chunks."""
        if self.bases is None or self.limits is None:
            return self
        return Items(self.block, self.count, self.bases[ids], self.limits[ids])


class ChunkReader:
    """Parses headers and decodes values of any chunks of one page."""

    __slots__ = ("_form", "_where")

    def __init__(self, form: MiniBlockForm, where: Where) -> None:
        self._form = form
        self._where = where

    def header(self, data: pa.Buffer, start: int, size: int) -> tuple[int, list[tuple[int, int]]]:
        """Return one chunk's level count, and ``(start, size)`` of each piece.

        The scalar form of :meth:`headers`, for the few chunks where arrays cost more.
        """
        form = self._form
        if form.header.size <= size and start + size <= data.size:
            levels, *lengths = form.header.unpack_from(data, start)
            position, end = start + form.header_room, start + size
            pieces = []
            for length in lengths:
                pieces.append((position, length))
                position += (length + 7) & ~7
            if position <= end:
                return levels, pieces
        raise CorruptFileError(
            "mini-block chunk header",
            expected=f"a header and {form.pieces} buffers within {size} bytes",
            found="sizes that add up to more",
            where=f"{self._where}, chunk at byte {start}",
        )

    def headers(
        self, data: pa.Buffer, starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> ChunkHeaders:
        """Parse the headers of the chunks at ``starts``; every piece lies in its chunk."""
        form = self._form
        if len(starts) == 1:
            levels, pieces = self.header(data, starts.item(0), sizes.item(0))
            places = np.array(pieces, np.int64)
            return ChunkHeaders(np.array([levels]), places[:, :1], places[:, 1:])
        return parse_headers(
            data,
            starts,
            sizes,
            level_pieces=form.level_pieces,
            value_pieces=form.pieces - form.level_pieces,
            value_width=form.value_width,
            where=self._where,
        )

    def pieces_of(self, headers: ChunkHeaders) -> ValuePieces:
        """The pieces that are no levels."""
        first = self._form.level_pieces
        return ValuePieces(headers.starts[first:], headers.sizes[first:])

    def decode(
        self,
        data: pa.Buffer,
        pieces: ValuePieces,
        counts: NDArray[np.int64],
        items: Items | None,
    ) -> Block:
        """All values of the chunks, in order; ``items`` are :meth:`Items.of` these chunks."""
        chunks = MiniChunks(data, tuple(pieces.starts), tuple(pieces.sizes), counts, self._where)
        block = self._form.value.decode_mini(chunks)
        if items is None:
            return block
        if items.bases is None or items.limits is None:
            return self._resolve(block, items)
        if len(counts) and items.bases[0] == items.bases[-1]:
            one = Items(items.block, items.count, items.bases[:1], items.limits[:1])
            return self._resolve(block, one)
        bases, limits = np.repeat(items.bases, counts), np.repeat(items.limits, counts)
        return self._resolve(block, Items(items.block, items.count, bases, limits))

    def pick(
        self,
        data: pa.Buffer,
        pieces: ValuePieces,
        counts: NDArray[np.int64],
        items: Items | None,
        slot: NDArray[np.int64],
        index: NDArray[np.int64],
    ) -> Block:
        """Value ``index[i]`` of chunk ``slot[i]`` for every i."""
        chunks = MiniChunks(data, tuple(pieces.starts), tuple(pieces.sizes), counts, self._where)
        block = self._form.value.take_mini(chunks, slot, index)
        return block if items is None else self._resolve(block, items.of(slot))

    def pick_one(
        self,
        data: pa.Buffer,
        pieces: list[tuple[int, int]],
        count: int,
        items: Items | None,
        index: int,
    ) -> Block:
        """Value ``index`` of the one chunk with these pieces and ``count`` values."""
        form = self._form
        values = pieces[form.level_pieces :]
        block = form.value.take_one(data, values, count, index, self._where)
        return block if items is None else self._resolve(block, items)

    def _resolve(self, block: Block, items: Items) -> Block:
        """Tie indices to the dictionary; they are checked here and trusted later.

        ``items`` has a base and a limit for each value, or one for all.
        """
        expected = items.count if items.limits is None else int(items.limits.max(initial=0))
        if isinstance(block, FixedWidth) and block.bits in (8, 16, 32, 64):
            if block.count == 0:
                return Dictionary(block, items.block, 0)
            indices = as_array(block.values, f"<u{block.bits // 8}")[: block.count]
            if items.bases is None or items.limits is None:
                if block.count == 1:
                    top = indices.item(0)
                else:
                    top = int(indices.max())
                if top < items.count:
                    return Dictionary(block, items.block, block.count)
            else:
                limits = items.limits.astype(indices.dtype, copy=False)
                if (indices < limits).all():
                    moved = as_buffer(indices + items.bases.astype(indices.dtype, copy=False))
                    return Dictionary(
                        FixedWidth(moved, block.bits, block.count), items.block, block.count
                    )
                top = int(indices.max())
            found = f"index {top}"
        else:
            found = f"a block of {type(block).__name__}"
        raise CorruptFileError(
            "dictionary indices",
            expected=f"unsigned numbers below {expected}",
            found=found,
            where=self._where,
        )
