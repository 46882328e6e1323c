"""Vectors to build indices from, without a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.format.pb import table_pb2
from glaive.index.protocol import ValueBatch
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.vector.vector_index import VectorIndex
from glaive.io.access import open_store
from glaive.types import FormatVersion

VERSION = FormatVersion(2, 1)


class ArraySource:
    """Rows of arrays, one fragment each; an :class:`glaive.index.protocol.IndexSource`."""

    def __init__(self, arrays: Sequence[Any], memory_limit: int = 1 << 28) -> None:
        self._arrays = list(arrays)
        self.field = pa.field("v", self._arrays[0].type)
        self.fragment_ids = list(range(len(self._arrays)))
        self.num_rows = sum(map(len, self._arrays))
        self.memory_limit = memory_limit
        self.times_read = 0

    def batches(self) -> Iterator[ValueBatch]:
        self.times_read += 1
        for at, array in enumerate(self._arrays):
            for start in range(0, len(array), 500):
                values = array.slice(start, 500)
                first = (at << 32) + start
                yield ValueBatch(values, np.arange(first, first + len(values), dtype=np.uint64))

    def sample(self, rows: int, seed: int = 0) -> Any:
        chosen = np.random.default_rng(seed).choice(
            self.num_rows, min(rows, self.num_rows), replace=False
        )
        return pa.chunked_array(self._arrays).combine_chunks().take(pa.array(np.sort(chosen)))


def clustered(rows: int, dimension: int, seed: int = 0, clusters: int = 20) -> Any:
    """Vectors around some centres, ``float32``."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((clusters, dimension))
    noise = random.standard_normal((rows, dimension)) * 0.3
    return (centres[random.integers(0, clusters, rows)] + noise).astype(np.float32)


def lists_of(vectors: Any) -> Any:
    """Rows of a matrix as fixed-size lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def built(source: ArraySource, **parameters: Any) -> Segment:
    """A segment that was built in memory."""
    out = SegmentWriter(open_store("memory://built"), VERSION)
    made = VectorIndex().build(source, parameters, out)
    entry = table_pb2.IndexMetadata(name="i", files=out.finish(), index_version=made.version)
    entry.uuid.uuid = out.id.bytes
    entry.index_details.type_url = made.type_url
    entry.index_details.value = made.details
    return Segment(out.store, entry)
