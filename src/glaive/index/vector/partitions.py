"""Partitions of a vector index: which rows of a file belong to each.

Specification: "Partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.format.pb import index_pb2
from glaive.format.wire import parse
from glaive.index.segment import IndexFile
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["MODEL", "Partitions", "read_model", "read_partitions"]

MODEL = "lance:ivf"
"""Metadata key of the number of the buffer with the partitions."""


class Partitions(NamedTuple):
    """Partitions of a file's rows, one after the other.

    Parameters
    ----------
    model
        The stored message.
    bounds
        First row of each partition, and the end of the last.
    """

    model: index_pb2.IVF
    bounds: Int64s

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows(self, partition: int) -> slice:
        """Rows of one partition."""
        return slice(int(self.bounds[partition]), int(self.bounds[partition + 1]))

    def without(self, kept: Flags) -> Partitions:
        """The partitions of the rows that are kept."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return self.with_bounds(before[self.bounds])

    def with_bounds(self, bounds: Int64s) -> Partitions:
        """The same model for other rows."""
        model = index_pb2.IVF()
        model.CopyFrom(self.model)
        del model.offsets[:], model.lengths[:]
        model.offsets.extend(bounds[:-1].tolist())
        model.lengths.extend(np.diff(bounds).tolist())
        return Partitions(model, bounds)

    def encoded(self) -> bytes:
        """The model as stored bytes."""
        return self.model.SerializeToString()


def read_model(file: IndexFile) -> index_pb2.IVF:
    """Read the model of a file; without graphs, its partitions may lie in another file."""
    return parse(
        index_pb2.IVF(), file.buffer(file.number(MODEL)), "partitions of an index", file.path
    )


def read_partitions(file: IndexFile) -> Partitions:
    """Read the partitions of a file.

    Raises
    ------
    CorruptFileError
        The partitions are missing, or do not cover the rows of the file.
    UnsupportedFeatureError
        It is a file of format 0.1.
    """
    file.buffer(0)
    model = read_model(file)
    rows = file.num_rows
    # In a damaged file, offsets may be any 64-bit integer; lengths have 32 bits.
    lengths = np.array(model.lengths, np.int64)
    offsets = np.array(model.offsets, np.uint64)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    fits = len(offsets) == len(lengths) and int(bounds[-1]) == rows
    if not fits or (offsets[lengths > 0] != bounds[:-1][lengths > 0].astype(np.uint64)).any():
        raise file.corrupt(
            "partitions of an index",
            f"{rows} rows, one partition after the other",
            f"{len(offsets)} offsets and {len(lengths)} lengths of {int(bounds[-1])} rows",
        )
    return Partitions(model, bounds)
