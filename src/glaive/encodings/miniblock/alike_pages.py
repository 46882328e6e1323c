"""Pages of one form out of many small files, decoded with the calls that one page takes.

A page of a few rows costs far more to open than to decode. Here nothing is opened per page:
all pages lie in one buffer, numbers tell where, and every step is one array operation or one
codec call for all of them. Only the simplest pages are read like this, which are those that
small files have: chunks of values without lists, or plain values of a fixed width. Each page
may have a dictionary, or FSST symbols, of its own.

Specification: "Mini-block pages" and "Full-zip pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.encodings.miniblock.chunk_table import MAX_CHUNK_VALUES
from glaive.encodings.miniblock.chunks import ChunkReader, Items
from glaive.encodings.miniblock.layout import MiniBlockForm
from glaive.encodings.miniblock.levels import LevelReader
from glaive.encodings.pages.full_zip import FullZipPage
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.protocol import Layer, Leaf, PageReader
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.variable import Variable as Plain
from glaive.errors import CorruptFileError
from glaive.kernels.chunks import ChunkHeaders
from glaive.kernels.fsst_pages import decode_pages
from glaive.kernels.zipped import gather_pieces
from glaive.memory import as_array
from glaive.types import Where

__all__ = ["AlikeChunks", "AlikeValues", "alike"]

Numbers = NDArray[np.int64]


def alike(page: PageReader) -> AlikeChunks | AlikeValues | None:
    """How to read the page together with others; they go together when this is equal.

    ``None`` for a page that is to be read alone.
    """
    if isinstance(page, MiniBlockPage):
        form = page.form
        if form.rep is not None:
            return None
        return AlikeChunks(_shape(form), form, page.num_dictionary_items)
    if isinstance(page, FullZipPage) and isinstance(page.values, Flat) and not page.index_width:
        width = page.form.width
        return None if page.form.control else AlikeValues(width, page.layers)
    return None


def _shape(form: MiniBlockForm) -> MiniBlockForm:
    """What forms of pages have in common that are read together: all but FSST symbols."""
    value = form.value
    if not isinstance(value, Fsst) or not isinstance(value.values, Plain) or form.dictionary:
        return form
    return _kept(replace(form, value=value.values)) if value.table.encoded else form


@lru_cache(maxsize=64)
def _kept(form: MiniBlockForm) -> MiniBlockForm:
    """The first of equal forms."""
    return form


class _Chunks(NamedTuple):
    """Where each chunk of all pages begins, its bytes and values; and chunks per page."""

    places: Numbers
    lengths: Numbers
    counts: Numbers
    per_page: Numbers


@dataclass(frozen=True, eq=False, slots=True)
class AlikeChunks:
    """Mini-block pages of one shape. Of one page are its form and the items of its dictionary."""

    shape: MiniBlockForm
    form: MiniBlockForm
    items: int

    def __eq__(self, other: object) -> bool:
        # Forms are kept by their bytes: those that are equal are the same object.
        return isinstance(other, AlikeChunks) and other.shape is self.shape

    def __hash__(self) -> int:
        return id(self.shape)

    def read(
        self,
        data: pa.Buffer,
        starts: Numbers,
        sizes: Numbers,
        rows: Numbers,
        pages: Sequence[AlikeChunks | AlikeValues],
    ) -> Leaf:
        """All rows of all pages, in order.

        Parameters
        ----------
        data
            What holds the pages.
        starts, sizes
            Where buffer ``b`` of page ``i`` lies: ``starts[i, b]``, in bytes, within ``data``.
        rows
            Rows of each page, as its layout says.
        pages
            What each page is like; equal to this one.

        Raises
        ------
        CorruptFileError
            One of the pages is damaged; which one is not told.
        """
        form = self.form
        where = Where("small files")
        found = self._chunks(data, starts, sizes, rows, where)
        chunks = ChunkReader(form, where)
        headers = chunks.headers(data, found.places, found.lengths)
        alike_pages = [page for page in pages if isinstance(page, AlikeChunks)]
        if self.shape is not form:
            values = _decode_text(data, headers, found, alike_pages, where)
        else:
            items = None
            if form.dictionary is not None:
                items = _items(form, data, starts, sizes, found.per_page, alike_pages, where)
            values = chunks.decode(data, chunks.pieces_of(headers), found.counts, items)
        total = int(rows.sum())
        leaf = Leaf(values, total, total, form.layers)
        if form.definition is not None:
            LevelReader(form, where).read_flat(leaf, data, headers, found.counts, 0)
        return leaf

    def _chunks(
        self, data: pa.Buffer, starts: Numbers, sizes: Numbers, rows: Numbers, where: Where
    ) -> _Chunks:
        width = self.form.value_width
        per_page = sizes[:, 0] // width
        if not bool(((per_page > 0) & (per_page * width == sizes[:, 0])).all()):
            raise CorruptFileError(
                "chunk words", expected=f"{width} bytes each", found="others", where=where
            )
        ends = np.cumsum(per_page)
        first, last = ends - per_page, ends - 1
        page = np.repeat(np.arange(len(rows)), per_page)
        at = starts[page, 0] + width * (np.arange(len(page)) - first[page])
        raw = as_array(data)[at[:, None] + np.arange(width)]
        words = raw.view(f"<u{width}")[:, 0].astype(np.int64)
        logs, lengths = words & 15, ((words >> 4) + 1) << 3
        counts = np.left_shift(1, logs)
        begins = np.cumsum(lengths) - lengths
        held = np.add.reduceat(lengths, first)
        rest = rows - (np.add.reduceat(counts, first) - counts[last])
        room = np.maximum(MAX_CHUNK_VALUES, 8 * lengths[last])
        counted = (logs[last] == 0) | (counts[last] == rest)
        unfinished = np.delete(logs, last)  # all but the last say how many values they have
        sound = (held == sizes[:, 1]) & counted & (rest > 0) & (rest <= room)
        if not bool(sound.all() and unfinished.all()):
            raise CorruptFileError(
                "chunk words", expected="chunks with all values", found="others", where=where
            )
        counts[last] = rest
        return _Chunks(starts[page, 1] + begins - begins[first][page], lengths, counts, per_page)


def _decode_text(
    data: pa.Buffer,
    headers: ChunkHeaders,
    chunks: _Chunks,
    pages: Sequence[AlikeChunks],
    where: Where,
) -> Block:
    """Text of pages with FSST symbols of their own."""
    first = pages[0].form
    at = first.level_pieces
    tables = [page.form.value.table for page in pages if isinstance(page.form.value, Fsst)]
    bits = getattr(pages[0].shape.value, "offset_bits", 32)
    strings = decode_pages(
        tables,
        chunks.per_page,
        data,
        headers.starts[at],
        headers.sizes[at],
        chunks.counts,
        bits,
        where,
    )
    return Variable(*strings, int(chunks.counts.sum()))


def _items(
    form: MiniBlockForm,
    data: pa.Buffer,
    starts: Numbers,
    sizes: Numbers,
    chunks: Numbers,
    pages: Sequence[AlikeChunks],
    where: Where,
) -> Items | None:
    """The dictionaries of all pages as one."""
    if form.dictionary is None:
        return None
    counts = np.array([page.items for page in pages], np.int64)
    block = form.dictionary.decode_blocks(data, starts[:, 2], sizes[:, 2], counts, where)
    bases = np.cumsum(counts) - counts
    total = int(counts.sum())
    return Items(block, total, np.repeat(bases, chunks), np.repeat(counts, chunks))


@dataclass(frozen=True, slots=True)
class AlikeValues:
    """Full-zip pages of plain values of ``width`` bytes, without levels."""

    width: int
    layers: tuple[Layer, ...]

    def read(
        self,
        data: pa.Buffer,
        starts: Numbers,
        sizes: Numbers,
        rows: Numbers,
        _pages: Sequence[AlikeChunks | AlikeValues],
    ) -> Leaf:
        """All rows of all pages, in order; as for :class:`AlikeChunks`."""
        where = Where("small files")
        if not bool((sizes[:, 0] == rows * self.width).all()):
            raise CorruptFileError(
                "plain values", expected=f"{self.width} bytes each", found="others", where=where
            )
        total = int(rows.sum())
        values = gather_pieces(data, starts[:, 0], sizes[:, 0], where)
        return Leaf(FixedWidth(values, 8 * self.width, total), total, total, self.layers)
