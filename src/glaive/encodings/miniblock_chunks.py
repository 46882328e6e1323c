"""Chunks of a mini-block page into values: headers, value buffers, dictionary indices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.encodings.miniblock_form import MiniBlockForm
from glaive.encodings.protocol import MiniChunks
from glaive.errors import CorruptFileError
from glaive.kernels._tier import as_array
from glaive.kernels.chunks import ChunkHeaders, parse_headers
from glaive.types import Where

__all__ = ["ChunkReader"]



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

    def decode(
        self,
        data: pa.Buffer,
        headers: ChunkHeaders,
        counts: NDArray[np.int64],
        items: Block | None,
    ) -> Block:
        """All values of the chunks, in order."""
        chunks = self._value_chunks(data, headers, counts)
        return self._resolve(self._form.value.decode_mini(chunks), items)

    def pick(
        self,
        data: pa.Buffer,
        headers: ChunkHeaders,
        counts: NDArray[np.int64],
        items: Block | None,
        slot: NDArray[np.int64],
        index: NDArray[np.int64],
    ) -> Block:
        """Value ``index[i]`` of chunk ``slot[i]`` for every i."""
        chunks = self._value_chunks(data, headers, counts)
        return self._resolve(self._form.value.take_mini(chunks, slot, index), items)

    def pick_one(
        self,
        data: pa.Buffer,
        pieces: list[tuple[int, int]],
        count: int,
        items: Block | None,
        index: int,
    ) -> Block:
        """Value ``index`` of the one chunk with these pieces and ``count`` values."""
        form = self._form
        values = pieces[form.level_pieces :]
        block = form.value.take_one(data, values, count, index, self._where)
        return block if items is None else self._resolve(block, items)

    def _value_chunks(
        self, data: pa.Buffer, headers: ChunkHeaders, counts: NDArray[np.int64]
    ) -> MiniChunks:
        first = self._form.level_pieces
        starts, sizes = tuple(headers.starts[first:]), tuple(headers.sizes[first:])
        return MiniChunks(data, starts, sizes, counts, self._where)

    def _resolve(self, block: Block, items: Block | None) -> Block:
        """Tie indices to the page's dictionary; they are checked here and trusted later."""
        if items is None:
            return block
        limit = self._form.num_dictionary_items
        if isinstance(block, FixedWidth) and block.bits in (8, 16, 32, 64):
            width = block.bits // 8
            if block.count == 1:
                top = int.from_bytes(block.values[:width], "little")
            else:
                top = int(as_array(block.values, f"<u{width}")[: block.count].max(initial=0))
            if top < limit or not block.count:
                return Dictionary(block, items, block.count)
            found = f"index {top}"
        else:
            found = f"a block of {type(block).__name__}"
        raise CorruptFileError(
            "dictionary indices",
            expected=f"unsigned numbers below {limit}",
            found=found,
            where=self._where,
        )
