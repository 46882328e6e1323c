"""Rows of callers in memory that nobody else writes to.

Arrays of NumPy become Arrow's without a copy. A generator, or a function, may fill one again for
its next rows, while a file being written still holds those before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.dictionaries import concat_arrays

__all__ = ["in_own_memory", "own_rows"]

_MOST: Final = 16 << 20
"""Bytes of rows that are copied at a time."""


def in_own_memory(rows: Iterable[Any]) -> Iterator[Any]:
    """Each batch or table of a stream as :func:`own_rows`, before the next one is asked for.

    Large ones in parts: what is written of the first makes room for the next.
    """
    return map(own_rows, chain.from_iterable(map(_parts, rows)))


def _parts(rows: Any) -> Iterable[Any]:
    size = rows.nbytes
    if size <= _MOST:
        return (rows,)
    step = max(1, rows.num_rows * _MOST // size)
    return (rows.slice(first, step) for first in range(0, rows.num_rows, step))


def own_rows(rows: Any) -> Any:
    """A record batch or table of the same rows, with copies of columns that somebody can change.

    What is mapped or was read out of a message cannot be changed, and is not copied; nor are the
    items of a dictionary.
    """
    columns = rows.columns
    owned = list(map(_own_column, columns))
    if all(map(_is_same, columns, owned)):
        return rows
    return type(rows).from_arrays(owned, schema=rows.schema)


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _own_column(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return _own_array(column)
    chunks = column.chunks
    owned = list(map(_own_array, chunks))
    return column if all(map(_is_same, chunks, owned)) else pa.chunked_array(owned, column.type)


def _own_array(array: Any) -> Any:
    if any(buffer is not None and buffer.is_mutable for buffer in array.buffers()):
        return concat_arrays([array, array.slice(0, 0)])  # Arrow hands on one array as it is
    return array
