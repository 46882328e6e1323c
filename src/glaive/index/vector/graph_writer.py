"""Write the graphs of a new index, partition by partition.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.format.pb import index_pb2
from glaive.index.segment import IndexFileWriter
from glaive.index.vector.coder import Coder
from glaive.index.vector.graph import GRAPHS, NODE_COLUMNS, rows_of
from glaive.index.vector.graph_build import build_graph
from glaive.index.vector.parameters import GraphParameters
from glaive.index.vector.partition_sort import SortedPartitions
from glaive.index.vector.partitions import MODEL

__all__ = ["NODE_SCHEMA", "GraphWriter"]

_TYPES: Final = (pa.uint32(), pa.list_(pa.uint32()), pa.list_(pa.float32()))
NODE_SCHEMA: Final = pa.schema(
    [pa.field(name, kind) for name, kind in zip(NODE_COLUMNS, _TYPES, strict=True)]
)
"""Columns of the file with the graphs."""


_LARGEST: Final = float(np.finfo(np.float32).max)


class GraphWriter:
    """The file with the graphs.

    Parameters
    ----------
    file
        With :data:`NODE_SCHEMA`.
    parameters
        Of the graphs.
    """

    def __init__(self, file: IndexFileWriter, parameters: GraphParameters) -> None:
        self._file, self._parameters = file, parameters
        self._headers: list[str] = []
        self._sizes: list[int] = []

    def add(self, group: SortedPartitions, coder: Coder) -> None:
        """Build the graphs of the next partitions."""
        for start, stop in pairwise(group.bounds.tolist()):
            if start == stop:
                self._headers.append("")
                self._sizes.append(0)
                continue
            points = coder.points(group.records[start:stop])
            graph = build_graph(points.vectors, self._parameters, dot=points.dot)
            # It may be the square of a large number. Finite, so that equal codes are near.
            scale = np.float32(min(points.scale, _LARGEST))
            with np.errstate(over="ignore"):
                levels = [
                    level._replace(distances=level.distances * scale) for level in graph.levels
                ]
            rows = rows_of(levels, NODE_SCHEMA)
            self._file.write(rows)
            self._headers.append(graph.header)
            self._sizes.append(len(rows))

    def finish(self, model: index_pb2.IVF, metadata: Mapping[str, str]) -> None:
        """Write the model, which gets the extents of the graphs."""
        ends = np.cumsum(self._sizes)
        model.offsets.extend((ends - self._sizes).tolist())
        model.lengths.extend(self._sizes)
        number = self._file.add_buffer(model.SerializeToString())
        headers = json.dumps(self._headers, separators=(",", ":"))
        self._file.add_metadata({**metadata, MODEL: str(number), GRAPHS: headers})
        self._file.finish()
