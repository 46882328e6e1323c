"""Rows out of many pages of one form, which lie in one buffer: taken as from one page.

For takes that hit many small files. The chunk words of all pages are read with one pass; a
chunk is then found by a row number that counts through all pages.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.miniblock.alike_pages import AlikeValues
from glaive.encodings.miniblock.chunk_table import MAX_CHUNK_VALUES, ChunkTable
from glaive.encodings.miniblock.chunks import Items
from glaive.encodings.miniblock.layout import MiniBlockForm
from glaive.encodings.pages.miniblock import MiniBlockPage, Opened
from glaive.encodings.protocol import Leaf, PageBytes
from glaive.errors import CorruptFileError
from glaive.kernels.zipped import gather_pieces
from glaive.memory import as_array
from glaive.types import Where

__all__ = ["TakenPages", "take_values"]

Numbers = NDArray[np.int64]


class TakenPages(MiniBlockPage):
    """Mini-block pages of one form and without lists, as one page.

    Parameters
    ----------
    form
        Of all pages.
    data
        What holds the pages.
    starts, sizes
        Where buffer ``b`` of page ``i`` lies: ``starts[i, b]``, in bytes, within ``data``.
    rows, items
        Rows and dictionary items of each page, as its layout says.
    """

    def __init__(
        self,
        form: MiniBlockForm,
        data: pa.Buffer,
        starts: Numbers,
        sizes: Numbers,
        rows: Numbers,
        items: Numbers,
        where: Where,
    ) -> None:
        super().__init__(form, PageBytes((), [data, data], int(rows.sum()), where), 0, 0)
        self._starts, self._sizes, self._rows, self._items = starts, sizes, rows, items

    def _load(self, buffers: list[pa.Buffer]) -> Opened:
        """Read and check chunk words and dictionaries of all pages."""
        form, where = self.form, self.page.where
        table, chunks = self._table(buffers[0])
        items = None
        if form.dictionary is not None:
            block = form.dictionary.decode_blocks(
                buffers[0], self._starts[:, 2], self._sizes[:, 2], self._items, where
            )
            bases = np.cumsum(self._items) - self._items
            total = int(self._items.sum())
            items = Items(block, total, np.repeat(bases, chunks), np.repeat(self._items, chunks))
        self.small = small = Opened.of(form, table, items, where)
        return small

    def _table(self, data: pa.Buffer) -> tuple[ChunkTable, Numbers]:
        """One table for the chunks of all pages, and the number of chunks of each page."""
        width, rows = self.form.value_width, self._rows
        chunks = self._sizes[:, 0] // width
        if not bool(((chunks > 0) & (chunks * width == self._sizes[:, 0])).all()):
            raise self._other()
        after = np.cumsum(chunks)
        first, last = after - chunks, after - 1
        places = np.repeat(self._starts[:, 0] - width * first, chunks)
        places += width * np.arange(int(after[-1]))
        raw = as_array(data)[places[:, None] + np.arange(width)]
        words = raw.view(f"<u{width}")[:, 0].astype(np.int64)
        logs, lengths = words & 15, ((words >> 4) + 1) << 3
        counts = np.left_shift(1, logs)
        stated, logs_last = counts[last], logs[last]
        counts[last] = 0
        rest = rows - np.add.reduceat(counts, first)
        room = np.maximum(MAX_CHUNK_VALUES, 8 * lengths[last])
        good = (rest >= 0) & (rest <= room) & ((logs_last == 0) | (stated == rest))
        good &= np.add.reduceat(lengths, first) == self._sizes[:, 1]
        logs[last] = 1
        if not good.all() or not logs.all():
            raise self._other()
        counts[last] = rest
        values = np.zeros(len(words) + 1, np.int64)
        np.cumsum(counts, out=values[1:])
        ends = np.cumsum(lengths)
        offsets = np.empty(len(words) + 1, np.int64)
        moved = self._starts[:, 1] - (ends - lengths)[first]
        offsets[:-1] = ends - lengths + np.repeat(moved, chunks)
        offsets[-1] = offsets[-2] + lengths[-1]
        return ChunkTable(offsets, lengths, values, counts, -1), chunks

    def _other(self) -> CorruptFileError:
        return CorruptFileError(
            "chunk words", expected="chunks with all values", found="others", where=self.page.where
        )


def take_values(
    kin: AlikeValues,
    data: pa.Buffer,
    starts: Numbers,
    sizes: Numbers,
    rows: Numbers,
    page: Numbers,
    row: Numbers,
    where: Where,
) -> Leaf:
    """Row ``row[i]`` of full-zip page ``page[i]`` for every i; all pages of one kin.

    The other parameters are those of :class:`TakenPages`.
    """
    if not bool((sizes[:, 0] == rows * kin.width).all()):
        raise CorruptFileError(
            "plain values", expected=f"{kin.width} bytes each", found="others", where=where
        )
    places = starts[:, 0][page] + kin.width * row
    values = gather_pieces(data, places, np.full(len(row), kin.width), where)
    return Leaf(FixedWidth(values, 8 * kin.width, len(row)), len(row), len(row), kin.layers)
