"""Levels of mini-block chunks without lists; and what all levels have in common.

Without lists every entry is a row and has a value, so levels are looked up by position. For
lists see ``glaive.encodings.miniblock.lists``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Constant, FixedWidth
from glaive.arrow.buffers import take_bits
from glaive.arrow.slices import count_bits, slice_bits
from glaive.encodings.leaf import Layer, Leaf, Slots
from glaive.encodings.levels.layers import level_limits, level_plan
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError
from glaive.kernels.bitpack import unpack_one_of_blocks
from glaive.kernels.chunks import ChunkHeaders, count_levels
from glaive.kernels.level_bits import LevelEncoding, unpack_level_bits, unpack_run_bits
from glaive.memory import as_array
from glaive.types import Int64s, UInt16s, Where

__all__ = ["NULL_BIT", "LevelReader", "Levels", "empty_leaf", "level_form", "row_shapes"]

NULL_BIT = pa.py_buffer(b"\0")
"""Validity bitmap of a single null."""

LEVEL_BITS = 16

Levels = UInt16s


class LevelReader:
    """Decodes the levels of any chunks of one page."""

    __slots__ = ("_bits", "_layout", "_where")

    def __init__(self, layout: MiniBlockLayout, where: Where) -> None:
        self._layout = layout
        self._where = where
        self._bits = _bit_form(layout.definition) if layout.nullable_item else None

    # ------------------------------------------------------------------ without lists

    def read_flat(
        self, leaf: Leaf, data: pa.Buffer, headers: ChunkHeaders, counts: Int64s, low: int
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
        levels = self.decode(self._layout.definition, data, headers, 0)
        leaf.definition = levels[low : low + leaf.rows]
        self.check(None, leaf.definition)

    def pick_flat(
        self, leaf: Leaf, data: pa.Buffer, headers: ChunkHeaders, counts: Int64s, position: Int64s
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
        leaf.definition = self.decode(self._layout.definition, data, headers, 0)[position]
        self.check(None, leaf.definition)

    def one(
        self, data: pa.Buffer, piece: tuple[int, int], levels: int, count: int, index: int
    ) -> int:
        """Return level ``index`` of the one chunk whose definition levels are ``piece``."""
        start, size = piece
        if levels != count:
            raise self.uneven(levels, count)
        codec = self._layout.definition
        if isinstance(codec, OutOfLineBitpacking) and codec.bits == LEVEL_BITS:
            level = unpack_one_of_blocks(
                data, start, size, levels, index, LEVEL_BITS, codec.width, self._where
            )
        else:
            headers = ChunkHeaders(np.array([levels]), np.array([[start]]), np.array([[size]]))
            level = self.decode(codec, data, headers, 0).item(index)
        if level > self._layout.limits.max_def:
            self.check(None, np.array([level], np.uint16))
        return level

    def _level_bits(
        self, data: pa.Buffer, headers: ChunkHeaders, counts: Int64s
    ) -> tuple[pa.Buffer, int] | None:
        if (headers.levels != counts).any():
            at = int(np.argmax(headers.levels != counts))
            raise self.uneven(int(headers.levels[at]), int(counts[at]))
        codec = self._layout.definition
        if self._layout.nullable_item and codec is not None and codec.wire_name == "rle":
            from glaive.encodings.values.rle import RunLength

            if isinstance(codec, RunLength) and codec.bits == LEVEL_BITS:
                runs = codec.block_runs(data, headers.starts[0], headers.sizes[0], self._where)
                return unpack_run_bits(data, *runs, headers.levels, self._where)
        if self._bits is None:
            return None
        form, width = self._bits
        return unpack_level_bits(
            data, headers.starts[0], headers.sizes[0], headers.levels, form, self._where, width
        )

    # ------------------------------------------------------------------ both

    def decode(
        self, codec: ValueEncoding | None, data: pa.Buffer, headers: ChunkHeaders, piece: int
    ) -> Levels:
        """All levels of piece ``piece`` of the chunks."""
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

    def check(self, rep: Levels | None, definition: Levels | None) -> tuple[int, int]:
        """Row starts and visible entries; no level is above what the layers allow."""
        limits = self._layout.limits
        return count_levels(
            rep,
            definition,
            max_rep=limits.max_rep,
            visible_max=limits.visible_def,
            max_def=limits.max_def,
            where=self._where,
        )

    def uneven(self, levels: int, values: int) -> CorruptFileError:
        """The error for a chunk with too few levels."""
        each = "≥ " if self._layout.limits.max_rep else "one per value, "
        return CorruptFileError(
            "level count of a mini-block chunk",
            expected=f"{each}{values}",
            found=f"{levels}",
            where=self._where,
        )


@lru_cache(maxsize=256)
def row_shapes(layers: tuple[Layer, ...]) -> tuple[tuple[Slots, ...], ...]:
    """What a row without lists looks like at each definition level."""
    nulls = [null for null, _ in level_plan(layers)]
    return tuple(
        tuple(Slots(1, NULL_BIT, 1) if 0 < level == null else Slots(1, None, 0) for null in nulls)
        for level in range(level_limits(layers).max_def + 1)
    )


def empty_leaf(layout: MiniBlockLayout) -> Leaf:
    """No rows, with levels where the page has them."""
    rep = np.empty(0, np.uint16) if layout.rep is not None else None
    definition = None
    if layout.definition is not None and not layout.nullable_item:
        definition = np.empty(0, np.uint16)
    return Leaf(None, 0, 0, layout.layers, rep, definition)


def level_form(codec: ValueEncoding | None) -> tuple[int, int] | None:
    """Number and width of an encoding of levels in ``LevelPage``; None for others."""
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


def _bit_form(codec: ValueEncoding | None) -> tuple[LevelEncoding, int] | None:
    """How to read levels of 0 and 1 straight into a bitmap, if their encoding allows it."""
    if isinstance(codec, InlineBitpacking) and codec.bits == LEVEL_BITS:
        return "inline", 0
    if isinstance(codec, OutOfLineBitpacking) and codec.bits == LEVEL_BITS:
        return "out_of_line", codec.width
    if isinstance(codec, Flat) and codec.bits == LEVEL_BITS:
        return "flat", LEVEL_BITS
    return None
