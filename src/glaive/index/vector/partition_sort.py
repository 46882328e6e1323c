"""Sort records by partition, in memory or through a temporary file.

Specification: "Partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from glaive.io.spilling import spilling
from glaive.memory import as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["PartitionSort", "SortedPartitions"]

_WHAT: Final = "records of an index, which exceed its memory,"
_RUN_BYTES = 64 << 20
_GROUP_BYTES = 64 << 20

Records = NDArray[Any]
"""Members of a row side by side: a structured array."""


class SortedPartitions(NamedTuple):
    """Complete partitions, one after the other.

    Parameters
    ----------
    first
        Number of the first.
    bounds
        First record of each, and the end of the last.
    records
        Their records; within a partition in the order in which they were added.
    """

    first: int
    bounds: Int64s
    records: Records


class _Run(NamedTuple):
    """Records that are sorted by partition, in memory or from a position in the file on."""

    starts: Int64s
    records: Records | None
    position: int


class PartitionSort(AbstractContextManager["PartitionSort"]):
    """Collects records and gives them back partition by partition.

    Takes memory up to a limit, then a temporary file, which has no name and vanishes with the
    process.

    Parameters
    ----------
    partitions
        Number of partitions.
    dtype
        Of the records.
    memory_limit
        Bytes of records to keep in memory.
    """

    def __init__(self, partitions: int, dtype: np.dtype[Any], memory_limit: int) -> None:
        self._partitions, self._dtype = partitions, dtype
        self._limit = memory_limit
        self._waiting: list[tuple[NDArray[np.int32], Records]] = []
        self._waiting_rows = self._kept_rows = 0
        run_bytes = min(_RUN_BYTES, max(1 << 20, memory_limit // 4))
        self._run_rows = max(1, run_bytes // dtype.itemsize)
        self._group_rows = max(1, min(_GROUP_BYTES, run_bytes) // dtype.itemsize)
        self._runs: list[_Run] = []
        self._file: Any = None
        self.sizes: Int64s = np.zeros(partitions, np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            with suppress(OSError):  # records that were not written yet, which nobody needs
                self._file.close()

    def add(self, partitions: NDArray[np.int32], records: Records) -> None:
        """Add records, and the partition of each."""
        self._waiting.append((partitions, records))
        self._waiting_rows += len(records)
        self.sizes += np.bincount(partitions, minlength=self._partitions)
        if self._waiting_rows >= self._run_rows:
            self._end_run()

    def _end_run(self) -> None:
        if not self._waiting:
            return
        ids = np.concatenate([part for part, _ in self._waiting])
        records = np.concatenate([part for _, part in self._waiting])
        self._waiting, self._waiting_rows = [], 0
        order = np.argsort(ids, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(ids, minlength=self._partitions))])
        records = records[order]
        if (self._kept_rows + len(records)) * self._dtype.itemsize <= self._limit:
            self._kept_rows += len(records)
            self._runs.append(_Run(starts, records, 0))
            return
        with spilling(_WHAT):
            if self._file is None:
                self._file = TemporaryFile(prefix="glaive-")  # noqa: SIM115  # closed by __exit__
            self._runs.append(_Run(starts, None, self._file.tell()))
            self._file.write(as_buffer(records.view(np.uint8)))
            self._file.flush()  # a child that is forked later, and ends, would write the rest, too

    def groups(self) -> Iterator[SortedPartitions]:
        """All partitions in order, some at a time; a large partition alone."""
        self._end_run()
        bounds = np.concatenate([[0], np.cumsum(self.sizes)])
        first = 0
        while first < self._partitions:
            limit = bounds[first] + self._group_rows
            last = max(first + 1, int(np.searchsorted(bounds, limit, side="right")) - 1)
            yield SortedPartitions(
                first, bounds[first : last + 1] - bounds[first], self._merged(first, last)
            )
            first = last

    def _merged(self, first: int, last: int) -> Records:
        parts, ids = [], []
        for run in self._runs:
            start, stop = int(run.starts[first]), int(run.starts[last])
            if start == stop:
                continue
            parts.append(self._read(run, start, stop))
            sizes = np.diff(run.starts[first : last + 1])
            ids.append(np.repeat(np.arange(last - first, dtype=np.int32), sizes))
        if not parts:
            return np.empty(0, self._dtype)
        records = np.concatenate(parts)
        if len(parts) == 1 or last - first == 1:
            return records
        return records[np.argsort(np.concatenate(ids), kind="stable")]

    def _read(self, run: _Run, start: int, stop: int) -> Records:
        if run.records is not None:
            return run.records[start:stop]
        if self._file is None:
            raise ValueError("the file of a run is closed")
        size = self._dtype.itemsize
        records = np.empty(stop - start, self._dtype)
        with spilling(_WHAT):  # the last ones are written here
            self._file.seek(run.position + start * size)
            read = self._file.readinto(as_buffer(records.view(np.uint8)))
            if read != records.nbytes:
                cut = f"a temporary file was cut: {read} of {records.nbytes} bytes at {start}"
                raise OSError(cut)
        return records
