"""Graphs of vector indices: a few levels of nodes with their neighbours for each partition.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.index.segment import IndexFile
from glaive.index.vector.storage import json_list, read_partitions
from glaive.kernels.graph import Lists, Points, repair_graph
from glaive.kernels.graph_search import GraphLevel, GraphLevels
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Float32s, Int64s

GRAPHS: Final = "lance:hnsw"
"""Metadata key of the list of graph headers."""

NODE_COLUMNS: Final = ("__vector_id", "__neighbors", "_distance")

_MAX_NEIGHBOURS = 4096
_MAX_LEVELS = 64
"""Levels of a graph: those that are opened take four bytes for each vector of the partition."""


class Level(NamedTuple):
    """Nodes and neighbours of a level, as numbers of vectors of the partition."""

    ids: Int64s
    offsets: Int64s
    neighbors: Int64s
    distances: Float32s


class Header:
    """The stored header of a graph: where searches begin, and where its levels are.

    Raises
    ------
    CorruptFileError
        The header is damaged.
    """

    def __init__(self, text: str, rows: int, where: object) -> None:
        try:
            self._content: dict[str, Any] = json.loads(text)
            self.entry = int(self._content["entry_point"])
            self.neighbors = int(self._content["params"]["m"])
            offsets = np.array(self._content["level_offsets"], np.int64)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise _corrupt(f"{error!r}", where) from error
        if offsets.ndim == 1 and 0 < len(offsets) - 2 == rows - offsets[-1]:
            # Lance up to 10 leaves out the entry point, which is on each level but the lowest.
            offsets[1:] += np.arange(len(offsets) - 1)
        good = offsets.ndim == 1 and len(offsets) > 1 and (offsets[1:] >= offsets[:-1]).all()
        if not (good and offsets[0] == 0 and offsets[-1] == rows):
            raise _corrupt(f"levels at {offsets.tolist()} of {rows} rows", where)
        if len(offsets) > _MAX_LEVELS + 1:
            raise _corrupt(f"{len(offsets) - 1} levels", where)
        if not 0 < self.neighbors <= _MAX_NEIGHBOURS:
            raise _corrupt(f"{self.neighbors} neighbours", where)
        self.offsets = offsets

    def changed(self, entry: int, sizes: list[int]) -> str:
        """The same graph with another entry point and levels of these sizes."""
        offsets = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        content = {**self._content, "entry_point": entry, "level_offsets": offsets}
        return json.dumps(content, separators=(",", ":"))


class Graphs:
    """The graphs in ``index.idx``.

    Raises
    ------
    CorruptFileError
        Columns, partitions or headers are not those of graphs.
    """

    def __init__(self, file: IndexFile, partitions: int) -> None:
        self.file = file
        file.check(__vector_id=pa.uint32())
        file.check_lists(__neighbors=pa.uint32(), _distance=pa.float32())
        self.partitions = read_partitions(file)
        self.headers = json_list(file, GRAPHS)
        if len(self.headers) != partitions or len(self.partitions) != partitions:
            found = f"{len(self.headers)} in {len(self.partitions)} partitions"
            raise file.corrupt("graphs of an index", f"{partitions}", found)

    def read(self, partition: int) -> pa.Table:
        """Rows of the graph of one partition."""
        rows = self.partitions.rows(partition)
        return self.file.read(NODE_COLUMNS, rows.start, rows.stop)

    def header(self, partition: int) -> Header:
        """The header of the graph of a partition."""
        rows = self.partitions.rows(partition)
        return Header(self.headers[partition], rows.stop - rows.start, self.file.path)

    def levels(self, rows: pa.Table, header: Header, vectors: int) -> list[Level]:
        """Levels of a graph on this many vectors, the lowest first."""
        bounds = header.offsets.tolist()
        return [
            self._level(rows.slice(start, stop - start), vectors)
            for start, stop in pairwise(bounds)
        ]

    def _level(self, rows: pa.Table, vectors: int) -> Level:
        columns: list[Any] = [one_array(rows[name]) for name in NODE_COLUMNS]
        numbers, lists, distances = columns
        offsets = lists.offsets.to_numpy().astype(np.int64) if len(rows) else np.zeros(1, np.int64)
        neighbors, flat_distances = lists.flatten(), distances.flatten()
        if any(column.null_count for column in (*columns, neighbors, flat_distances)):
            raise _corrupt("nulls", self.file.path)
        level = Level(
            numbers.to_numpy().astype(np.int64),
            offsets - offsets[0],
            neighbors.to_numpy().astype(np.int64),
            flat_distances.to_numpy().astype(np.float32),
        )
        on_level = np.zeros(vectors, np.bool_)
        if len(level.ids) and level.ids.max() >= vectors:
            raise _corrupt(f"vector {level.ids.max()} of {vectors}", self.file.path)
        on_level[level.ids] = True
        beyond = len(level.neighbors) and level.neighbors.max() >= vectors
        if beyond or not on_level[level.neighbors].all() or on_level.sum() != len(level.ids):
            raise _corrupt("neighbours that are not on their level", self.file.path)
        same_offsets = lists.offsets.equals(distances.offsets) if len(rows) else True
        sizes = {int(level.offsets[-1]), len(flat_distances), len(level.neighbors)}
        if not same_offsets or len(sizes) != 1:
            raise _corrupt("other distances than neighbours", self.file.path)
        return level


def rows_of(levels: list[Level], schema: pa.Schema) -> pa.Table:
    """Levels as rows of the file."""
    tables = []
    for level in levels:
        offsets = pa.array(level.offsets, pa.int32())
        columns: list[Any] = [
            pa.array(level.ids, pa.uint32()),
            pa.ListArray.from_arrays(offsets, pa.array(level.neighbors, pa.uint32())),
            pa.ListArray.from_arrays(offsets, pa.array(level.distances, pa.float32())),
        ]
        tables.append(pa.table(columns, names=list(NODE_COLUMNS)).cast(schema))
    return pa.concat_tables(tables)


def _corrupt(found: str, where: object) -> CorruptFileError:
    return CorruptFileError(
        "graph of an index", expected="nodes by level", found=found[:200], where=where
    )


# --- The graph of a partition, ready to be searched -------------------------------------
# Specification: "Graphs" in ``docs/format/vector-indices.md``.


@dataclass(frozen=True, slots=True, eq=False)
class PartitionGraph:
    """Levels of a graph, the lowest first, and the node on the highest that searches begin with."""

    levels: GraphLevels
    entry: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.levels.nbytes


def read_graph(graphs: Graphs, partition: int, nodes: int) -> PartitionGraph:
    """Read the graph of a partition with so many rows.

    Raises
    ------
    CorruptFileError
        It is damaged, or its entry is no node.
    """
    header = graphs.header(partition)
    stored = graphs.levels(graphs.read(partition), header, nodes)
    levels = []
    for level in stored:
        if not len(level.ids):
            break
        row_of = np.full(nodes, -1, np.int32)
        row_of[level.ids] = np.arange(len(level.ids), dtype=np.int32)
        same = len(level.ids) == nodes and bool((row_of == np.arange(nodes)).all())
        neighbors = level.neighbors.astype(np.uint32)
        levels.append(GraphLevel(level.offsets, neighbors, None if same else row_of))
    if not levels or not 0 <= header.entry < nodes:
        expected, found = f"one of {nodes} nodes", f"{header.entry} on {len(levels)} levels"
        raise graphs.file.corrupt("entry of the graph of an index", expected, found)
    return PartitionGraph(GraphLevels(levels), header.entry)


# --- Remove nodes from the graph of a partition, and repair the neighbours they leave ---
# Specification: "Graphs" in ``docs/format/vector-indices.md``.


def without_nodes(
    header: Header, levels: list[Level], kept: Flags, vectors: Float32s, *, dot: bool
) -> tuple[str, list[Level]]:
    """The graph over the remaining vectors, which are renumbered.

    Parameters
    ----------
    kept
        Which vectors of the partition remain; at least one.
    vectors
        The remaining ones.

    Returns
    -------
    tuple
        The header of the graph, and its levels. Nodes stay on their levels.
    """
    renumbered = np.cumsum(kept) - 1
    changed = [_without(level, kept, renumbered, vectors, dot=dot) for level in levels]
    entry = header.entry
    if 0 <= entry < len(kept) and kept[entry]:
        entry = int(renumbered[entry])
    else:
        top = max(number for number, level in enumerate(changed) if len(level.ids))
        entry = int(changed[top].ids[0])
    return header.changed(entry, [len(level.ids) for level in changed]), changed


def _without(
    level: Level, kept: Flags, renumbered: Int64s, vectors: Float32s, *, dot: bool
) -> Level:
    count = len(level.ids)
    row_of = np.zeros(len(kept), np.int32)
    row_of[level.ids] = np.arange(count)
    stays = kept[level.ids]
    nodes = row_of[level.neighbors]
    degrees = np.diff(level.offsets)
    rows = np.repeat(np.arange(count), degrees)
    surviving = np.bincount(rows[stays[nodes]], minlength=count)
    damaged = np.flatnonzero(stays & (surviving < degrees))
    lists = Lists(degrees.astype(np.int32), nodes.copy(), level.distances.copy())
    if len(damaged):
        vector_of = np.where(stays, renumbered[level.ids], 0).astype(np.int32)
        points = Points(np.ascontiguousarray(vectors), vector_of, dot=dot)
        repair_graph(level.offsets, nodes, stays, damaged, points, lists)
    counts = np.where(stays, lists.counts, 0)
    filled = np.arange(len(nodes)) - level.offsets[rows] < counts[rows]
    return Level(
        renumbered[level.ids[stays]],
        np.concatenate([[0], np.cumsum(counts[stays], dtype=np.int64)]),
        renumbered[level.ids[lists.nodes[filled]]],
        lists.distances[filled],
    )
