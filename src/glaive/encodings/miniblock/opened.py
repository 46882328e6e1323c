"""What the small buffers of mini-block pages say, and readers of their levels and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import block_bytes
from glaive.dataclass import dataclass
from glaive.encodings.kept import Kept
from glaive.encodings.miniblock.chunk_table import ChunkTable, PageClaims
from glaive.encodings.miniblock.chunks import ChunkReader, Items
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.miniblock.levels import LevelReader
from glaive.named_tuple import NamedTuple
from glaive.types import Where

if TYPE_CHECKING:
    from glaive.encodings.miniblock.filter import Evaluated
    from glaive.encodings.miniblock.item_lists import ItemListReader
    from glaive.encodings.miniblock.lists import ListReader
    from glaive.kernels.row_takes import RowPages

__all__ = ["Dictionaries", "KeptOpened", "Opened", "without_chunks"]

T = TypeVar("T")


class Dictionaries(NamedTuple):
    """The dictionary of page i: ``data[starts[i] : starts[i] + sizes[i]]``, ``counts[i]`` items."""

    data: pa.Buffer
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(slots=True)
class Opened:
    """What the small buffers say, and readers of levels and values; kept once read."""

    table: ChunkTable
    items: Items | None
    chunks: ChunkReader
    levels: LevelReader
    lists: ListReader | None
    item_lists: ItemListReader | None = None
    evaluated: Evaluated | None = None
    row_pages: RowPages | None = None

    @classmethod
    def of_pages(
        cls,
        layout: MiniBlockLayout,
        claims: PageClaims,
        words: pa.Buffer,
        index: pa.Buffer | None,
        dictionaries: Dictionaries | None,
        where: Where,
    ) -> Opened:
        """Read and check the small buffers of pages; those of one kind lie back to back."""
        table = ChunkTable.of_pages(words, layout.value_width, claims, index)
        items = None
        if layout.dictionary is not None and dictionaries is not None:
            chunks = claims.word_sizes // layout.value_width
            items = Items.of_pages(layout.dictionary, *dictionaries, chunks, where)
        reader, levels = ChunkReader(layout, where), LevelReader(layout, where)
        if not layout.limits.max_rep:
            return cls(table, items, reader, levels, None)
        from glaive.encodings.miniblock.item_lists import ItemListReader
        from glaive.encodings.miniblock.lists import ListReader

        lists = ListReader(layout, reader, levels, where)
        item_lists = ItemListReader.of(layout, table, lists.page, items)
        return cls(table, items, reader, levels, lists, item_lists)


class KeptOpened(Kept[Opened]):
    """What the small buffers of a page say; the dictionary may be out of proportion to them."""

    __slots__ = ()

    def of(self, load: Callable[[list[pa.Buffer]], Opened], buffers: list[pa.Buffer]) -> Opened:
        """What was kept, else what ``load`` makes of the small buffers."""
        found = self.get()
        if found is None:
            found = load(buffers)
            size = 0 if found.items is None else block_bytes(found.items.block)
            self.keep(found, size, sum(buffer.size for buffer in buffers))
        return found


def without_chunks(buffers: Sequence[T]) -> list[T]:
    """The small buffers among those of a page."""
    return [buffers[0], *buffers[2:]]
