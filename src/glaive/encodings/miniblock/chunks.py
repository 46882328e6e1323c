"""Chunks of a mini-block page into values: headers, value buffers, dictionary indices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Constant, Dictionary, FixedWidth, slice_block
from glaive.arrow.build import expand
from glaive.dataclass import NamedTuple
from glaive.encodings.compression import check_decoded
from glaive.encodings.levels import ANY_LEVEL, Leaf, check_levels
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.protocol import MiniChunks, ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError
from glaive.kernels.chunks import ChunkHeaders, parse_headers
from glaive.kernels.levels import LEVEL_BITS, validity_from_levels
from glaive.types import Int64s, UInt16s, Where, as_array, as_buffer

# --- Levels of mini-block chunks of flat columns; and what all levels have in common ----
#
# In a flat column every entry is a row and has a value, so levels are looked up by position. For
# lists see ``glaive.encodings.miniblock.lists``.

Levels = UInt16s


class LevelReader:
    """Decodes the levels of any chunks of one page."""

    __slots__ = ("_layout", "_where")

    def __init__(self, layout: MiniBlockLayout, where: Where) -> None:
        self._layout = layout
        self._where = where

    # ------------------------------------------------------------------ flat columns

    def read_flat(
        self, leaf: Leaf, data: pa.Buffer, headers: ChunkHeaders, counts: Int64s, low: int
    ) -> None:
        """Put the levels of ``leaf.rows`` entries from entry ``low`` of the chunks on."""
        self._put(leaf, self._flat(data, headers, counts)[low : low + leaf.rows])

    def pick_flat(
        self, leaf: Leaf, data: pa.Buffer, headers: ChunkHeaders, counts: Int64s, position: Int64s
    ) -> None:
        """Put the levels of the entries at these positions of the chunks."""
        self._put(leaf, self._flat(data, headers, counts)[position])

    def _flat(self, data: pa.Buffer, headers: ChunkHeaders, counts: Int64s) -> Levels:
        if np.count_nonzero(headers.levels != counts):
            at = int(np.argmax(headers.levels != counts))
            raise self.uneven(int(headers.levels[at]), int(counts[at]))
        return self.decode(self._layout.definition, data, headers, 0)

    def _put(self, leaf: Leaf, levels: Levels) -> None:
        check_levels(None, levels, self._layout.limits, self._where)
        if self._layout.nullable_item:
            leaf.validity, leaf.null_count, _ = validity_from_levels(
                levels, slot_max=ANY_LEVEL, null_level=1
            )
        else:
            leaf.definition = levels

    # ------------------------------------------------------------------ both

    def decode(
        self, codec: ValueEncoding | None, data: pa.Buffer, headers: ChunkHeaders, piece: int
    ) -> Levels:
        """Return all levels of piece ``piece`` of the chunks."""
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

    def uneven(self, levels: int, values: int) -> CorruptFileError:
        """Return the error for a chunk with too few levels."""
        each = "≥ " if self._layout.limits.max_rep else "one per value, "
        return CorruptFileError(
            "level count of a mini-block chunk",
            expected=f"{each}{values}",
            found=f"{levels}",
            where=self._where,
        )


def empty_leaf(layout: MiniBlockLayout) -> Leaf:
    """Return a leaf of 0 rows, with levels where the page has them."""
    rep = np.empty(0, np.uint16) if layout.rep is not None else None
    definition = None
    if layout.definition is not None and not layout.nullable_item:
        definition = np.empty(0, np.uint16)
    return Leaf(None, 0, 0, layout.layers, rep, definition)


def level_form(codec: ValueEncoding | None) -> tuple[int, int] | None:
    """Number and width of an encoding of levels in ``LevelPage``; ``None`` for others."""
    if isinstance(codec, Flat) and codec.bits == LEVEL_BITS:
        return 1, LEVEL_BITS
    if isinstance(codec, OutOfLineBitpacking) and codec.bits == LEVEL_BITS:
        return 2, codec.width
    if isinstance(codec, InlineBitpacking) and codec.bits == LEVEL_BITS:
        return 3, LEVEL_BITS
    if codec is not None and codec.wire_name == "rle":
        from glaive.encodings.values.rle import RunLength

        if isinstance(codec, RunLength) and codec.bits == LEVEL_BITS:
            return 4, LEVEL_BITS
    return None


_OFFSET_BITS = 32
"""Bits of the offset that an item of variable width takes in memory besides its bytes."""


class ValuePieces(NamedTuple):
    """Value piece p of chunk i lies at ``starts[p, i]`` and has ``sizes[p, i]`` bytes."""

    starts: Int64s
    sizes: Int64s


class Items(NamedTuple):
    """The dictionary of a page, or the distinct dictionaries of several, one after the other.

    Chunk i has indices below ``limits[i]``, counted from item ``bases[i]`` on; both are ``None``
    for a single dictionary, where all chunks have indices below ``total``.
    """

    block: Block
    total: int
    bases: Int64s | None = None
    limits: Int64s | None = None

    @classmethod
    def of_pages(
        cls,
        encoding: ValueEncoding,
        data: pa.Buffer,
        starts: Int64s,
        sizes: Int64s,
        counts: Int64s,
        chunks: Int64s,
        where: Where,
    ) -> Items:
        """Decode the dictionaries of pages.

        Parameters
        ----------
        data, starts, sizes
            That of page i is ``data[starts[i] : starts[i] + sizes[i]]``.
        counts, chunks
            Items of each dictionary, and chunks of each page.

        Raises
        ------
        CorruptFileError
            A dictionary is damaged.
        UnsupportedFeatureError
            They are larger than ``max_decoded_bytes_per_page``, and few bytes encode them.
        """
        number = np.arange(len(counts))
        if len(counts) > 1:
            own, number = _distinct(data, starts, sizes, counts)
            starts, sizes, counts = starts[own], sizes[own], counts[own]
        total = int(counts.sum())
        bits = encoding.number_bits or _OFFSET_BITS
        check_decoded(total * bits // 8, int(sizes.sum()), where)
        block = encoding.decode_blocks(data, starts, sizes, counts, where)
        if len(counts) == 1:
            return cls(block, total)
        bases = counts.cumsum() - counts
        of_chunk = number.repeat(chunks)
        return cls(block, total, bases[of_chunk], counts[of_chunk])

    def of(self, ids: slice | Int64s) -> Items:
        """Return the same for some of the chunks; neighbours get only the items that they use."""
        if self.bases is None or self.limits is None:
            return self
        bases, limits = self.bases[ids], self.limits[ids]
        if not isinstance(ids, slice) or not len(bases):
            return Items(self.block, self.total, bases, limits)
        low = int(bases.min())
        count = int((bases + limits).max()) - low
        return Items(slice_block(self.block, low, count), count, bases - low, limits)


def _distinct(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s
) -> tuple[Int64s, Int64s]:
    """Return the pages with distinct dictionaries, and for each page which of them it has."""
    memory = memoryview(data)
    known: dict[tuple[int, bytes], int] = {}
    number = [
        known.setdefault((count, bytes(memory[start : start + size])), len(known))
        for start, size, count in zip(starts.tolist(), sizes.tolist(), counts.tolist(), strict=True)
    ]
    return np.unique(number, return_index=True)[1], np.array(number)


class ChunkReader:
    """Parses headers and decodes values of any chunks of one page."""

    __slots__ = ("_layout", "_where")

    def __init__(self, layout: MiniBlockLayout, where: Where) -> None:
        self._layout = layout
        self._where = where

    def headers(self, data: pa.Buffer, starts: Int64s, sizes: Int64s) -> ChunkHeaders:
        """Parse the headers of the chunks at ``starts``; every piece lies in its chunk."""
        layout = self._layout
        return parse_headers(
            data,
            starts,
            sizes,
            level_buffers=layout.level_buffers,
            value_buffers=layout.pieces - layout.level_buffers,
            value_width=layout.value_width,
            where=self._where,
        )

    def pieces_of(self, headers: ChunkHeaders) -> ValuePieces:
        """Return the pieces of the values, which follow the levels."""
        first = self._layout.level_buffers
        return ValuePieces(headers.starts[first:], headers.sizes[first:])

    def decode(
        self, data: pa.Buffer, pieces: ValuePieces, counts: Int64s, items: Items | None
    ) -> Block:
        """Return all values of the chunks in order; ``items`` is :meth:`Items.of` these chunks."""
        chunks = MiniChunks(data, tuple(pieces.starts), tuple(pieces.sizes), counts, self._where)
        block = self._layout.value.decode_mini(chunks)
        if items is None:
            return block
        return self._resolve(block, items, counts)

    def pick(
        self,
        data: pa.Buffer,
        pieces: ValuePieces,
        counts: Int64s,
        items: Items | None,
        slot: Int64s,
        index: Int64s,
        block: Block | None = None,
    ) -> Block:
        """Return value ``index[i]`` of chunk ``slot[i]`` per i; ``items`` as for :meth:`decode`.

        ``block`` has these values, if a kernel read them before.
        """
        if block is None:
            starts, sizes = tuple(pieces.starts), tuple(pieces.sizes)
            chunks = MiniChunks(data, starts, sizes, counts, self._where)
            block = self._layout.value.take_mini(chunks, slot, index)
        return block if items is None else self._resolve(block, items.of(slot), None)

    def _resolve(self, block: Block, items: Items, counts: Int64s | None) -> Block:
        """Tie indices to the dictionary; they are checked here and trusted later.

        Of several dictionaries, whose items may be equal, return the values themselves.
        ``items`` is for all values, or has one item per chunk of ``counts`` values, or, when
        that is ``None``, one per value.
        """
        if not isinstance(block, FixedWidth) or block.bits not in (8, 16, 32, 64):
            raise self._range_error(items.total, f"a block of {type(block).__name__}")
        if not block.count:
            return Dictionary(block, items.block, 0)
        indices = as_array(block.values, f"<u{block.bits // 8}")[: block.count]
        if items.bases is None or items.limits is None:
            top = indices.item(0) if block.count == 1 else int(indices.max())
            if top >= items.total:
                raise self._range_error(items.total, f"index {top}")
            return Dictionary(block, items.block, block.count)
        # As wide as needed to count the items of all dictionaries.
        bits = max(block.bits, 32 if items.total > 1 << block.bits else 0)
        moved = np.empty(block.count, f"<u{bits // 8}")
        if counts is None:
            bad = indices.astype(np.uint64) >= items.limits.astype(np.uint64)
            if bad.any():
                at = int(np.argmax(bad))
                raise self._range_error(int(items.limits[at]), f"index {indices[at]}")
            np.add(indices, items.bases.astype(moved.dtype), out=moved)
        else:
            # Neighbouring chunks share a dictionary: as many steps as there are pages.
            firsts = np.diff(items.bases, prepend=-1).nonzero()[0]
            values = np.append(0, counts.cumsum())
            ends = np.append(values[firsts[1:]], values[-1]).tolist()
            for begin, end, base, limit in zip(
                values[firsts].tolist(),
                ends,
                items.bases[firsts].tolist(),
                items.limits[firsts].tolist(),
                strict=True,
            ):
                top = int(indices[begin:end].max(initial=0))
                if top >= limit:
                    raise self._range_error(limit, f"index {top}")
                np.add(indices[begin:end], moved.dtype.type(base), out=moved[begin:end])
        numbers = FixedWidth(as_buffer(moved), bits, block.count)
        return expand(Dictionary(numbers, items.block, block.count))

    def _range_error(self, limit: int, found: str) -> CorruptFileError:
        return CorruptFileError(
            "dictionary indices",
            expected=f"unsigned numbers below {limit}",
            found=found,
            where=self._where,
        )
