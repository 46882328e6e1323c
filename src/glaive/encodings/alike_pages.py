"""Pages of one form out of many small files, decoded with the calls that one page takes.

A page of a few rows costs far more to open than to decode. Here nothing is opened per page:
all pages lie in one buffer, numbers tell where, and every step is one array operation or one
codec call for all of them. Only the simplest pages are read like this, which are those that
small files have: chunks of values without a dictionary and without lists, or plain values
of a fixed width.

Specification: "Mini-block pages" and "Full-zip pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.chunk_table import MAX_CHUNK_VALUES
from glaive.encodings.miniblock_chunks import ChunkReader
from glaive.encodings.miniblock_form import MiniBlockForm
from glaive.encodings.miniblock_levels import LevelReader
from glaive.encodings.pages.full_zip import FullZipPage
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.protocol import Layer, Leaf, PageReader
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError
from glaive.kernels._tier import as_array
from glaive.kernels.zipped import gather_pieces
from glaive.types import Where

__all__ = ["AlikeChunks", "AlikeValues", "alike"]

Numbers = NDArray[np.int64]


def alike(page: PageReader) -> AlikeChunks | AlikeValues | None:
    """How to read the page together with others; they go together when this is equal.

    ``None`` for a page that is to be read alone.
    """
    if isinstance(page, MiniBlockPage):
        simple = page.form.rep is None and page.form.dictionary is None
        return AlikeChunks(page.form) if simple else None
    if isinstance(page, FullZipPage) and isinstance(page.values, Flat) and not page.index_width:
        width = page.form.width
        return None if page.form.control else AlikeValues(width, page.layers)
    return None


@dataclass(frozen=True, eq=False, slots=True)
class AlikeChunks:
    """Mini-block pages of one form."""

    form: MiniBlockForm

    def __eq__(self, other: object) -> bool:
        # Forms are kept by their bytes: those that are equal are the same object.
        return isinstance(other, AlikeChunks) and other.form is self.form

    def __hash__(self) -> int:
        return id(self.form)

    def read(self, data: pa.Buffer, starts: Numbers, sizes: Numbers, rows: Numbers) -> Leaf:
        """All rows of all pages, in order.

        Parameters
        ----------
        data
            What holds the pages.
        starts, sizes
            Where buffer ``b`` of page ``i`` lies: ``starts[i, b]``, in bytes, within ``data``.
        rows
            Rows of each page, as its layout says.

        Raises
        ------
        CorruptFileError
            One of the pages is damaged; which one is not told.
        """
        form = self.form
        where = Where("small files")
        places, lengths, counts = self._chunks(data, starts, sizes, rows, where)
        chunks = ChunkReader(form, where)
        headers = chunks.headers(data, places, lengths)
        values = chunks.decode(data, chunks.pieces_of(headers), counts, None)
        total = int(rows.sum())
        leaf = Leaf(values, total, total, form.layers)
        if form.definition is not None:
            LevelReader(form, where).read_flat(leaf, data, headers, counts, 0)
        return leaf

    def _chunks(
        self, data: pa.Buffer, starts: Numbers, sizes: Numbers, rows: Numbers, where: Where
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Where each chunk of all pages begins, its bytes and its values."""
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
        return starts[page, 1] + begins - begins[first][page], lengths, counts


@dataclass(frozen=True, slots=True)
class AlikeValues:
    """Full-zip pages of plain values of ``width`` bytes, without levels."""

    width: int
    layers: tuple[Layer, ...]

    def read(self, data: pa.Buffer, starts: Numbers, sizes: Numbers, rows: Numbers) -> Leaf:
        """All rows of all pages, in order; as for :class:`AlikeChunks`."""
        where = Where("small files")
        if not bool((sizes[:, 0] == rows * self.width).all()):
            raise CorruptFileError(
                "plain values", expected=f"{self.width} bytes each", found="others", where=where
            )
        total = int(rows.sum())
        values = gather_pieces(data, starts[:, 0], sizes[:, 0], where)
        return Leaf(FixedWidth(values, 8 * self.width, total), total, total, self.layers)
