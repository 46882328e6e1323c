"""Which rows of a file belong to which partition of a vector index.

Specification: "Partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.pb import index_pb2
from glaive.format.wire import parse
from glaive.index.segment import IndexFile

__all__ = ["MODEL", "Partitions", "read_partitions"]

MODEL = "lance:ivf"
"""Key of the number of the buffer with the partitions."""

Mask = NDArray[np.bool_]


class Partitions(NamedTuple):
    """Partitions of a file's rows, one after the other.

    Parameters
    ----------
    model
        As it is stored.
    bounds
        Row where each partition begins, and the end of the last.
    """

    model: index_pb2.IVF
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows(self, partition: int) -> slice:
        """Rows of one partition."""
        return slice(int(self.bounds[partition]), int(self.bounds[partition + 1]))

    def without(self, kept: Mask) -> Partitions:
        """The partitions when only some rows are kept, in the same order."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return self.with_bounds(before[self.bounds])

    def with_bounds(self, bounds: NDArray[np.int64]) -> Partitions:
        """The same model for other rows."""
        model = index_pb2.IVF()
        model.CopyFrom(self.model)
        del model.offsets[:], model.lengths[:]
        model.offsets.extend(bounds[:-1].tolist())
        model.lengths.extend(np.diff(bounds).tolist())
        return Partitions(model, bounds)

    def encoded(self) -> bytes:
        """The model as it is stored."""
        return self.model.SerializeToString()


def read_partitions(file: IndexFile, rows: int | None = None) -> Partitions:
    """Read the partitions of a file.

    Parameters
    ----------
    rows
        Rows that the partitions must make up; those of the file by default.

    Raises
    ------
    CorruptFileError
        The partitions are not there, or are other rows than the file has.
    """
    model = parse(
        index_pb2.IVF(), file.buffer(file.number(MODEL)), "partitions of an index", file.path
    )
    rows = file.num_rows if rows is None else rows
    # Offsets may be as large as a damaged file says; lengths have 32 bits.
    lengths = np.array(model.lengths, np.int64)
    offsets = np.array(model.offsets, np.uint64)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    fits = len(offsets) == len(lengths) and int(bounds[-1]) == rows
    if not fits or (offsets[lengths > 0] != bounds[:-1][lengths > 0].astype(np.uint64)).any():
        raise CorruptFileError(
            "partitions of an index",
            expected=f"{rows} rows, one partition after the other",
            found=f"{len(offsets)} offsets and {len(lengths)} lengths of {int(bounds[-1])} rows",
            where=file.path,
        )
    return Partitions(model, bounds)
