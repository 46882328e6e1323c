"""Cut a dataset's rows into the parts that Spark tasks read.

One task per fragment is wrong at both ends: ten thousand small fragments drown Spark in tasks,
one large fragment leaves all cores but one idle. Here all rows stand in one line, which is cut
into parts of about equal size wherever the cut falls; a part names row ranges of fragments.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from glaive.arrow.widths import total_width

__all__ = ["FragmentSize", "Part", "batch_rows", "row_bytes", "split"]

SPLIT_BYTES = 128 << 20
"""Upper bound for a task, the one Spark uses for files."""

SMALLEST_SPLIT_BYTES = 4 << 20
"""Below this a task of its own costs more than it saves."""

MOST_PARTS = 1 << 18
"""Tasks of one scan at most."""

BATCH_BYTES = 8 << 20
"""Size aimed at for one Arrow batch on its way to the JVM."""

CUT_ROWS = 4096
"""Cuts fall on multiples of this, so that few blocks are decoded twice."""


class FragmentSize(NamedTuple):
    """What planning knows of a fragment."""

    fragment_id: int
    rows: int
    file_bytes: int


class Part(NamedTuple):
    """What one task reads: ``rows`` rows from ``offset`` on, counted through some fragments."""

    fragment_ids: tuple[int, ...]
    offset: int
    rows: int


def row_bytes(columns: pa.Schema, whole: pa.Schema, fragments: Sequence[FragmentSize]) -> float:
    """Estimate the bytes a row takes in memory, for some columns of a dataset.

    Widths of numbers and vectors are known. What the files hold beyond them is spread evenly
    over the columns of variable width.
    """
    wanted, everything = total_width(columns.types), total_width(whole.types)
    rows = sum(fragment.rows for fragment in fragments)
    if rows == 0 or everything.variable == 0:
        return max(wanted.total, 1.0)
    stored = sum(fragment.file_bytes for fragment in fragments) / rows
    surplus = max(0.0, stored - everything.total) / everything.variable
    return max(wanted.total + surplus * wanted.variable, 1.0)


def batch_rows(bytes_per_row: float) -> int:
    """Return how many rows make a batch that neither crumbles nor bursts the worker."""
    rows = int(BATCH_BYTES / bytes_per_row)
    return min(max(rows, 64), 65_536)


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
        In the order of the dataset, which the parts keep.
    split_bytes
        The most one task should read, estimated.
    parallelism
        Tasks it takes to keep all cores busy; the cores of this machine when omitted.
    """
    rows = sum(fragment.rows for fragment in fragments)
    if rows == 0:
        return []
    total = rows * bytes_per_row
    target: float = split_bytes or SPLIT_BYTES
    if split_bytes is None:
        share = total / (parallelism or os.cpu_count() or 1)
        target = min(target, max(share, SMALLEST_SPLIT_BYTES))
    # What the manifest says of rows is no reason for any number of tasks.
    parts = min(max(1, math.ceil(total / target - 0.01)), MOST_PARTS)
    capacity = math.ceil(rows / parts)
    if capacity > CUT_ROWS:
        # Upwards, or the rows cut off by rounding would make a part of their own.
        capacity = math.ceil(capacity / CUT_ROWS) * CUT_ROWS
    return _cut(fragments, capacity)


def _cut(fragments: Sequence[FragmentSize], capacity: int) -> list[Part]:
    parts: list[Part] = []
    ids: list[int] = []
    offset = rows = 0
    # No cut just for a sliver: a part may be that much larger or smaller instead.
    sliver = min(CUT_ROWS, capacity // 8)
    for fragment in fragments:
        start = 0
        while (left := fragment.rows - start) > 0:
            room = capacity - rows
            if ids and room <= sliver and left > room + sliver:
                parts.append(Part(tuple(ids), offset, rows))
                ids, rows = [], 0
                continue
            cut = max(room // CUT_ROWS, 1) * CUT_ROWS
            taken = left if left <= room + sliver else min(cut, left)
            if not ids:
                offset = start
            ids.append(fragment.fragment_id)
            rows += taken
            start += taken
    if ids:
        parts.append(Part(tuple(ids), offset, rows))
    return parts
