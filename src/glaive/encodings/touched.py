"""Where a take of rows will read in a mapped file, told before it does.

A page that is touched and not in memory is waited for. Who knows beforehand what will be
touched can have the system read all of it side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.encodings.miniblock.joined_pages import JoinedPages
from glaive.encodings.pages.constant import ConstantPage
from glaive.encodings.pages.full_zip import FullZipPage
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.protocol import PageReader
from glaive.kernels.list_levels import locate_rows

__all__ = ["Places", "read_first", "touched"]

Places = NDArray[np.int64]
"""Address and size of places in memory, shape ``(n, 2)``."""

_NONE: Places = np.empty((0, 2), np.int64)


def read_first(page: PageReader) -> Sequence[pa.Buffer]:
    """Buffers of a mapped page that are read whole before any row is; none if they were."""
    if isinstance(page, JoinedPages):
        return [] if page.small else [one for part in page.pages for one in _tables(part)]
    if isinstance(page, MiniBlockPage):
        return [] if page.small else _tables(page)
    if isinstance(page, ConstantPage):
        return [] if page.loaded else page.page.at_hand or []
    return []


def _tables(page: MiniBlockPage) -> list[pa.Buffer]:
    at_hand = page.page.at_hand or []
    return [*at_hand[:1], *at_hand[2:]]


def touched(page: PageReader, rows: NDArray[np.int64]) -> Places | None:
    """What a take of these rows, ascending, reads beside; None where that is not known.

    Reads what :func:`read_first` names.

    Raises
    ------
    CorruptFileError
        That is damaged.
    """
    if isinstance(page, ConstantPage):
        return _NONE
    if isinstance(page, MiniBlockPage) and page.page.at_hand:
        return _chunks(page, page.page.at_hand, rows)
    if isinstance(page, FullZipPage) and page.page.at_hand and not page.index_width:
        entries: Any = page.page.at_hand[0]
        size = entries.size // max(1, page.rows)  # all entries have one size
        return np.stack([entries.address + size * rows, np.full(len(rows), size)], axis=1)
    return None


def _chunks(page: MiniBlockPage, at_hand: list[pa.Buffer], rows: NDArray[np.int64]) -> Places:
    table = page.opened(at_hand).table
    if table.rows is not None:
        ids = locate_rows(rows, table.rows.starts, table.rows.enters).ids
    else:
        chunks = table.find(rows)
        ids = chunks[np.flatnonzero(np.diff(chunks, prepend=-1))]
    return np.stack([at_hand[1].address + table.offsets[ids], table.sizes[ids]], axis=1)
