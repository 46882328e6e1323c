"""Split a dataset's rows into the parts that Spark tasks read.

One task per fragment would be too many for ten thousand small fragments, and would use only one
core for a single large fragment. So the rows of all fragments in a row are split into parts of
about equal size; a part is a row range over one or more fragments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from glaive.arrow.widths import total_width
from glaive.dataclass import NamedTuple
from glaive.io.pool import task_bytes

MAX_PARTS = 1 << 18
"""Maximum number of tasks of one scan."""

BATCH_BYTES = 8 << 20
"""Target size of an Arrow batch sent to the JVM."""

SPLIT_ROWS = 4096
"""Parts start at multiples of this row count, so that few blocks are decoded twice."""


class FragmentSize(NamedTuple):
    """The live rows of a fragment."""

    fragment_id: int
    rows: int


class Part(NamedTuple):
    """The rows of one task: ``rows`` rows of the concatenated fragments, from ``offset`` on."""

    fragment_ids: tuple[int, ...]
    offset: int
    rows: int


def row_bytes(columns: pa.Schema, stored: pa.Schema, rows: int, file_bytes: int) -> float:
    """Estimate the bytes of a row in memory, for some of the stored columns.

    The widths of numbers and vectors are known. The remaining bytes of the files are divided
    evenly among the columns of variable width.
    """
    selected, complete = total_width(columns.types), total_width(stored.types)
    if rows == 0 or complete.variable == 0:
        return max(selected.total, 1.0)
    surplus = max(0.0, file_bytes / rows - complete.total) / complete.variable
    return max(selected.total + surplus * selected.variable, 1.0)


def batch_rows(bytes_per_row: float) -> int:
    """Return the rows of a batch of about the target size."""
    rows = int(BATCH_BYTES / bytes_per_row)
    return min(max(rows, 64), 65_536)


def first_rows(fragments: Sequence[FragmentSize], count: int) -> list[FragmentSize]:
    """The fragments with the first rows, the last of them cut."""
    kept: list[FragmentSize] = []
    for fragment in fragments:
        if count <= 0:
            break
        kept.append(fragment._replace(rows=min(fragment.rows, count)))
        count -= fragment.rows
    return kept


def split(
    fragments: Sequence[FragmentSize],
    bytes_per_row: float,
    *,
    split_bytes: int | None = None,
    parallelism: int | None = None,
) -> list[Part]:
    """Return one part for each task, in order; none for a dataset without rows.

    Parameters
    ----------
    fragments
        In the order of the dataset; the parts have the same order.
    split_bytes
        Estimated bytes that one task should read at most.
    parallelism
        Number of tasks that run at a time; the cores of this machine when omitted.
    """
    rows = sum(fragment.rows for fragment in fragments)
    if rows == 0:
        return []
    total = rows * bytes_per_row
    target = split_bytes or task_bytes(total, parallelism)
    # A corrupt row count in the manifest must not create an unlimited number of tasks.
    parts = min(max(1, math.ceil(total / target - 0.01)), MAX_PARTS)
    capacity = math.ceil(rows / parts)
    if capacity > SPLIT_ROWS:
        # Rounded up: rounding down would add a part for the remainder.
        capacity = math.ceil(capacity / SPLIT_ROWS) * SPLIT_ROWS
    return _split_rows(fragments, capacity)


def _split_rows(fragments: Sequence[FragmentSize], capacity: int) -> list[Part]:
    parts: list[Part] = []
    ids: list[int] = []
    offset = rows = 0
    # Parts may differ from the capacity by this much, to avoid tiny remainders of fragments.
    tolerance = min(SPLIT_ROWS, capacity // 8)
    for fragment in fragments:
        start = 0
        while (remaining := fragment.rows - start) > 0:
            free = capacity - rows
            if ids and free <= tolerance and remaining > free + tolerance:
                parts.append(Part(tuple(ids), offset, rows))
                ids, rows = [], 0
                continue
            aligned = max(free // SPLIT_ROWS, 1) * SPLIT_ROWS
            taken = remaining if remaining <= free + tolerance else min(aligned, remaining)
            if not ids:
                offset = start
            ids.append(fragment.fragment_id)
            rows += taken
            start += taken
    if ids:
        parts.append(Part(tuple(ids), offset, rows))
    return parts
