"""Boxes in the order of a Hilbert curve, so that neighbours come into one page.

Boxes are collected in a temporary file, and sorted by the place of their middles on the curve over
all of them.

Specification: "RTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.index.row_set import RowNumbers
from glaive.index.scalar.geometries import Boxes
from glaive.index.scalar.sorted_runs import merged, sorted_runs
from glaive.index.source import ValueBatch
from glaive.io.spilling import spilling

__all__ = ["BOXES", "ROW", "BoxCollector", "SortedBoxes", "hilbert_order"]

BOXES: Final = "boxes"
ROW: Final = "row"
_RECORD: Final = np.dtype([(BOXES, np.float64, 4), (ROW, np.uint64)])
_AXIS_BITS: Final = 16
_READ: Final = 1 << 16
_WHAT: Final = "boxes of an index"


class BoxCollector:
    """Boxes with the numbers of their rows, in a temporary file; a context manager.

    Parameters
    ----------
    memory_limit
        Bytes that sorting may hold.

    Raises
    ------
    StoreError
        The temporary file cannot be made, or be written.
    """

    def __init__(self, memory_limit: int) -> None:
        self._limit = memory_limit
        with spilling(_WHAT):
            self._file: IO[bytes] = TemporaryFile(prefix="glaive-boxes-")  # noqa: SIM115  # closed by __exit__
        self._bounds = np.array([np.inf, np.inf, -np.inf, -np.inf])
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # boxes that were not written yet, which nobody needs
            self._file.close()

    def add(self, boxes: Boxes, rows: RowNumbers) -> None:
        """Add boxes; none has a NaN."""
        if not len(boxes):
            return
        records = np.empty(len(boxes), _RECORD)
        records[BOXES], records[ROW] = boxes, rows
        with spilling(_WHAT):
            self._file.write(records.tobytes())
            self._file.flush()  # a child that is forked later, and ends, would write the rest, too
        self._count += len(records)
        self._bounds[:2] = np.minimum(self._bounds[:2], boxes[:, :2].min(axis=0))
        self._bounds[2:] = np.maximum(self._bounds[2:], boxes[:, 2:].max(axis=0))

    def sorted(self) -> SortedBoxes:
        """All boxes, to be read in order before this is closed."""
        records: Any = np.empty(0, _RECORD)
        with spilling(_WHAT):
            self._file.flush()
            if self._count:
                records = np.memmap(self._file, _RECORD, "r")
        return SortedBoxes(records, self._bounds, self._limit)


class SortedBoxes:
    """Boxes in the order of the curve.

    Parameters
    ----------
    records
        Boxes and rows, in any order.
    bounds
        The box of all.
    memory_limit
        Bytes that sorting may hold.
    """

    def __init__(self, records: Any, bounds: NDArray[np.float64], memory_limit: int) -> None:
        self._records, self._bounds, self._limit = records, bounds, memory_limit

    def __len__(self) -> int:
        return len(self._records)

    def batches(self, multiple: int) -> Iterator[Any]:
        """All records in order, in arrays whose length, but of the last, is divisible."""
        rows = max(1, _READ // multiple) * multiple
        waiting = np.empty(0, np.uint64)
        with sorted_runs(self._places(), self._limit) as runs:
            for _, numbers in merged(runs, self._limit):
                waiting = np.concatenate([waiting, numbers])
                while len(waiting) >= rows:
                    yield self._records[waiting[:rows].astype(np.int64)]
                    waiting = waiting[rows:]
        if len(waiting):
            yield self._records[waiting.astype(np.int64)]

    def _places(self) -> Iterator[ValueBatch]:
        """The place of each box on the curve, and its number."""
        for start in range(0, len(self), _READ):
            boxes = np.asarray(self._records[start : start + _READ][BOXES])
            places = pa.array(hilbert_order(boxes, self._bounds))
            yield ValueBatch(places, np.arange(start, start + len(boxes), dtype=np.uint64))


def hilbert_order(boxes: Boxes, bounds: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Place of the middle of each box on a Hilbert curve of 2^16 by 2^16 squares over the bounds.

    Parameters
    ----------
    boxes
        Without NaN; infinite numbers are at the border.
    bounds
        Lowest x and y, highest x and y.
    """
    most = (1 << _AXIS_BITS) - 1
    # Halves: sums and differences of large numbers would be infinite.
    low, high = bounds[:2] / 2, bounds[2:] / 2
    with np.errstate(all="ignore"):
        middle = boxes[:, :2] / 4 + boxes[:, 2:] / 4
        share = (middle - low) / (high - low)
    share = np.clip(np.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
    cells = (share * most).astype(np.uint32)
    x, y = cells[:, 0].copy(), cells[:, 1].copy()
    places = np.zeros(len(boxes), np.uint32)
    side = np.uint32(1 << (_AXIS_BITS - 1))
    while side:
        right, upper = (x & side) > 0, (y & side) > 0
        quarter = np.where(right, np.uint32(3), np.uint32(0)) ^ upper
        places = (places << np.uint32(2)) | quarter.astype(np.uint32)
        # The curve within a lower quarter is mirrored, or turned.
        turned = ~upper & right
        x[turned], y[turned] = most - x[turned], most - y[turned]
        swapped = ~upper
        x[swapped], y[swapped] = y[swapped], x[swapped].copy()
        side >>= np.uint32(1)
    return places
