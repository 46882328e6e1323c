"""Pages without lists, as the kernel that takes rows of several columns at once reads them.

What it does not support is taken by :mod:`glaive.encodings.miniblock.reader`, column by column,
which also says what is wrong with a damaged page.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Variable as Texts
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.miniblock.levels import level_form
from glaive.encodings.miniblock.opened import Opened
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.fsst_tables import FsstTables
from glaive.encodings.values.variable import Variable
from glaive.kernels.records import LevelPage
from glaive.kernels.row_takes import CODES, STRINGS, RowItems, RowPages, join_symbols
from glaive.kernels.strings import Strings
from glaive.types import Int64s, UInt8s

__all__ = ["row_pages"]

_WORD_BITS: Final = (1, 8, 16, 32, 64)
_PLAIN, _INLINE = 1, 3


def row_pages(layout: MiniBlockLayout, small: Opened, data: pa.Buffer) -> RowPages | None:
    """The pages of a layout with their chunks in memory, opened; None for others.

    Strings of dictionaries become strings.
    """
    table, definition = small.table, (0, 0)
    value = _value_form(layout.value)
    if value is None or layout.rep is not None or layout.pieces != layout.level_buffers + 1:
        return None
    if layout.definition is not None:
        form = level_form(layout.definition)
        if form is None:
            return None
        definition = form
    items = None
    if layout.dictionary is not None:
        items = _items(small)
        if items is None or value[0] >= STRINGS or value[1] == 1:
            return None
    first_chunks = np.array([0, table.chunks]) if table.pages is None else table.pages
    symbols = _symbols(layout.value, len(first_chunks) - 1)
    page = LevelPage(
        rep=0,
        rep_width=0,
        definition=definition[0],
        def_width=definition[1],
        value_buffers=1,
        value_width=layout.value_width,
        max_rep=0,
        visible_max=0,
        max_def=layout.limits.max_def,
        null_item=int(layout.nullable_item),
        values=value[0],
        value_bits=value[1],
    )
    starts = np.ascontiguousarray(table.offsets[:-1])
    shift, firsts = table.shift, table.firsts
    return RowPages(
        data, starts, table.sizes, firsts, table.counts, first_chunks, shift, page, symbols, items
    )


def _value_form(codec: ValueEncoding) -> tuple[int, int] | None:
    """Number and width of an encoding of values in ``RowPages``; None for others."""
    if isinstance(codec, Flat) and codec.bits in _WORD_BITS:
        return _PLAIN, codec.bits
    if isinstance(codec, InlineBitpacking):
        return _INLINE, codec.bits
    if isinstance(codec, Variable):
        return STRINGS, codec.offset_bits
    if isinstance(codec, FsstTables):
        return CODES, codec.offset_bits
    if isinstance(codec, Fsst) and codec.joins and isinstance(codec.values, Variable):
        return CODES, codec.values.offset_bits
    return None


def _symbols(codec: ValueEncoding, pages: int) -> UInt8s | None:
    """FSST symbols of each page."""
    if isinstance(codec, FsstTables):
        return join_symbols(codec.tables)
    return join_symbols([codec.table] * pages) if isinstance(codec, Fsst) else None


def _items(small: Opened) -> RowItems | None:
    """The dictionaries of all pages, where their items are strings."""
    items = small.items
    if items is None or not isinstance(items.block, Texts):
        return None
    block, chunks = items.block, small.table.chunks
    bases: Int64s = np.zeros(chunks, np.int64) if items.bases is None else items.bases
    limits: Int64s = np.full(chunks, items.total) if items.limits is None else items.limits
    strings = Strings(block.offsets, block.offset_bits, block.data)
    return RowItems(strings, block.count, bases, limits)
