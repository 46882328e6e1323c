"""How many values a table of JSON lines would have, before Arrow makes it.

Each object has a value, or a null, for each name that any other has: objects with a name of their
own take memory by the square of their number. 95 KB of them took 1 GB.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.memory import as_array, as_buffer
from glaive.types import Int64s, UInt8s

__all__ = ["MAX_CELLS", "columns_of", "count_names", "refuse_many_cells"]

MAX_CELLS: Final = 1 << 26
"""Values, nulls included, of the records that are parsed at a time: a gigabyte, or less."""

_CELLS_PER_BYTE: Final = 4
"""Of a line that is longer than others: members of lists are counted with all names, too."""

_WINDOW: Final = 1 << 20
"""Bytes that are looked at together: the numbers of their marks take some 40 times as much."""

_QUOTE, _COLON, _BACKSLASH, _SPACE = b'":\\ '
_OPEN: Final = ord("{")


def refuse_many_cells(text: pa.Buffer, columns: int | None = None) -> None:
    """Refuse lines of JSON of which Arrow would make too many values together.

    Parameters
    ----------
    columns
        Those of the table, with the members of others; None: as the names of the lines.

    Raises
    ------
    pyarrow.ArrowInvalid
        There are more values than :data:`MAX_CELLS`, and than the bytes of a long line explain.
    """
    data = as_array(text)
    objects = max(int(np.count_nonzero(data == _OPEN)), 1)
    most = max(MAX_CELLS, _CELLS_PER_BYTE * len(data)) // objects
    if columns is None:
        columns = int(np.count_nonzero(data == _COLON))
        if columns > most:
            columns = count_names(text, most)
    if columns > most:
        raise pa.ArrowInvalid(
            f"{objects:,} objects with {columns:,} names or more are too many values of a table. "
            "Make lists of names and values of members that other objects do not have"
        )


def count_names(text: pa.Buffer, most: int) -> int:
    """Distinct names of members, or a few more; counted until there are more than ``most``."""
    data = as_array(text)
    seen: set[bytes] = set()
    for start in range(0, len(data), _WINDOW):
        seen.update(_names(data[start : start + _WINDOW]))
        if len(seen) > most:
            break
    return len(seen)


def columns_of(kind: Any) -> int:
    """Columns of a type or a schema: itself, and its members at any depth."""
    fields = kind if isinstance(kind, pa.Schema) else map(kind.field, range(kind.num_fields))
    return 1 + sum(columns_of(field.type) for field in fields)


def _names(data: UInt8s) -> list[bytes]:
    """What stands in quotation marks before a colon, each once."""
    marks = _quotes(data)
    last = len(data) - 1
    behind = np.minimum(marks + 1, last)
    for _ in range(2):
        behind = np.minimum(behind + (data[behind] <= _SPACE), last)
    # What follows after more white space may be a colon.
    ends = np.flatnonzero((data[behind] == _COLON) | (data[behind] <= _SPACE))
    ends = ends[ends > 0]
    offsets = np.empty(2 * len(ends) + 1, np.int32)
    offsets[:-1:2], offsets[1::2] = marks[ends - 1] + 1, marks[ends]
    offsets[-1] = offsets[-2] if len(ends) else 0
    buffers: Any = [None, as_buffer(offsets), as_buffer(data)]
    parts: Any = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    names: Any = parts.take(pa.array(np.arange(0, len(parts), 2)))
    found: list[bytes] = pc.unique(names).to_pylist()
    return found


def _quotes(data: UInt8s) -> Int64s:
    """Places of quotation marks but those within texts, before which backslashes are odd."""
    marks = np.flatnonzero(data == _QUOTE)
    behind_one = np.flatnonzero(data[np.maximum(marks - 1, 0)] == _BACKSLASH)
    if not len(behind_one):
        return marks
    others = np.flatnonzero(data != _BACKSLASH)
    before = np.searchsorted(others, marks[behind_one]) - 1
    from_start = np.where(before < 0, -1, others[np.maximum(before, 0)])
    odd = (marks[behind_one] - 1 - from_start) % 2 == 1
    return np.delete(marks, behind_one[odd])
