"""Graphs of vector indices: a few levels of nodes with their neighbours for each partition.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import pairwise
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import number_array
from glaive.arrow.chunked import as_numpy, one_array
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError
from glaive.format.pb import index_pb2
from glaive.index.segment import IndexFile, IndexFileWriter
from glaive.index.vector.coder import Coder
from glaive.index.vector.parameters import GraphParameters
from glaive.index.vector.storage import MODEL, json_list, read_partitions
from glaive.io.failures import spilling
from glaive.io.pool import ordered_map, worker_count
from glaive.kernels.graph_build import (
    Edges,
    GrowingGraph,
    Nodes,
    Points,
    Repaired,
    Scratch,
    find_neighbors,
    link_back,
    repair_graph,
)
from glaive.kernels.graph_search import GraphLevel, GraphLevels
from glaive.types import Flags, Float32s, Int64s, as_buffer

GRAPHS: Final = "lance:hnsw"
"""Metadata key of the list of graph headers."""

NODE_COLUMNS: Final = ("__vector_id", "__neighbors", "_distance")

_MAX_NEIGHBOURS = 4096
_MAX_LEVELS = 64
"""Levels of a graph; an opened level takes four bytes per vector of the partition."""


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
            # Lance up to 10 omits the entry point in the counts of the levels above 0.
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
        """Return the header with another entry point and other level sizes."""
        offsets = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        content = {**self._content, "entry_point": entry, "level_offsets": offsets}
        return json.dumps(content, separators=(",", ":"))


class Graphs:
    """The graphs in ``index.idx``.

    Raises
    ------
    CorruptFileError
        Columns, partitions or headers are invalid for graphs.
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
        """Read the rows of the graph of one partition."""
        rows = self.partitions.rows(partition)
        return self.file.read(NODE_COLUMNS, rows.start, rows.stop)

    def header(self, partition: int) -> Header:
        """Read the header of the graph of a partition."""
        rows = self.partitions.rows(partition)
        return Header(self.headers[partition], rows.stop - rows.start, self.file.path)

    def levels(self, rows: pa.Table, header: Header, vectors: int) -> list[Level]:
        """Decode the levels of a graph over ``vectors`` vectors, the lowest level first."""
        bounds = header.offsets.tolist()
        return [
            self._level(rows.slice(start, stop - start), vectors)
            for start, stop in pairwise(bounds)
        ]

    def _level(self, rows: pa.Table, vectors: int) -> Level:
        columns: list[Any] = [one_array(rows[name]) for name in NODE_COLUMNS]
        numbers, lists, distances = columns
        offsets = as_numpy(lists.offsets).astype(np.int64) if len(rows) else np.zeros(1, np.int64)
        neighbors, flat_distances = lists.flatten(), distances.flatten()
        if any(column.null_count for column in (*columns, neighbors, flat_distances)):
            raise _corrupt("nulls", self.file.path)
        level = Level(
            as_numpy(numbers).astype(np.int64),
            offsets - offsets[0],
            as_numpy(neighbors).astype(np.int64),
            as_numpy(flat_distances).astype(np.float32),
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
    """Convert levels to rows of the file."""
    tables = []
    for level in levels:
        offsets: Any = number_array(level.offsets)
        columns: list[Any] = [
            number_array(level.ids),
            pa.ListArray.from_arrays(offsets, number_array(level.neighbors)),
            pa.ListArray.from_arrays(offsets, number_array(level.distances)),
        ]
        tables.append(pa.table(columns, names=list(NODE_COLUMNS)).cast(schema))
    return pa.concat_tables(tables)


def _corrupt(found: str, where: object) -> CorruptFileError:
    return CorruptFileError(
        "graph of an index", expected="nodes by level", found=found[:200], where=where
    )


# --- The graph of a partition for searches ----------------------------------------------
# Specification: "Graphs" in ``docs/format/vector-indices.md``.


@dataclass(frozen=True, slots=True, eq=False)
class PartitionGraph:
    """Levels of a graph, the lowest first, and the node where searches begin (on the highest)."""

    levels: GraphLevels
    entry: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.levels.nbytes


def read_graph(graphs: Graphs, partition: int, nodes: int) -> PartitionGraph:
    """Read the graph of a partition with ``nodes`` rows.

    Raises
    ------
    CorruptFileError
        The graph is damaged, or its entry point is outside of the nodes.
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


# --- Remove nodes from the graph of a partition, and repair the remaining neighbours ----
# Specification: "Graphs" in ``docs/format/vector-indices.md``.


def without_nodes(
    header: Header, levels: list[Level], kept: Flags, vectors: Float32s, *, dot: bool
) -> tuple[str, list[Level]]:
    """Remove nodes from a graph, and renumber the rest.

    Parameters
    ----------
    kept
        Flags of the vectors of the partition that remain; at least one.
    vectors
        The remaining vectors.

    Returns
    -------
    tuple
        Header of the graph, and its levels. Nodes stay on their levels.
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
    lists = Repaired(degrees.astype(np.int32), nodes.copy(), level.distances.copy())
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


# --- Sort records by partition, in memory or through a temporary file -------------------
# Specification: "Partitions" in ``docs/format/vector-indices.md``.

_SPILLED: Final = "records of an index, which exceed its memory,"
_RUN_BYTES = 64 << 20
_GROUP_BYTES = 64 << 20

Records = NDArray[Any]
"""Structured array: a record per row."""


class SortedPartitions(NamedTuple):
    """Complete partitions, one after the other.

    Parameters
    ----------
    first
        Number of the first partition.
    bounds
        First record of each partition, and the end of the last.
    records
        Records of the partitions; within a partition in the order of :meth:`PartitionSort.add`.
    """

    first: int
    bounds: Int64s
    records: Records


class _Run(NamedTuple):
    """Records sorted by partition, in memory or in the temporary file from a position."""

    starts: Int64s
    records: Records | None
    position: int


class PartitionSort(AbstractContextManager["PartitionSort"]):
    """Collects records, and returns them partition by partition.

    Beyond the memory limit, records go to a temporary file. The file is unlinked, and vanishes with
    the process.

    Parameters
    ----------
    partitions
        Number of partitions.
    dtype
        Type of a record.
    memory_limit
        Maximum bytes of records in memory.
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
            with suppress(OSError):  # close may flush records that nobody reads
                self._file.close()

    def add(self, partitions: NDArray[np.int32], records: Records) -> None:
        """Add records, given the partition of each."""
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
        with spilling(_SPILLED):
            if self._file is None:
                self._file = TemporaryFile(prefix="glaive-")  # noqa: SIM115  # closed by __exit__
            self._runs.append(_Run(starts, None, self._file.tell()))
            self._file.write(as_buffer(records.view(np.uint8)))
            self._file.flush()  # or a child forked later would write the rest again when it exits

    def groups(self) -> Iterator[SortedPartitions]:
        """Yield all partitions in order, several at a time; a large partition alone."""
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
        with spilling(_SPILLED):  # seek writes the buffered records
            self._file.seek(run.position + start * size)
            read = self._file.readinto(as_buffer(records.view(np.uint8)))
            if read != records.nbytes:
                cut = f"a temporary file was cut: {read} of {records.nbytes} bytes at {start}"
                raise OSError(cut)
        return records


# --- Build the graph of a partition -----------------------------------------------------
# glaive adds nodes in random order, in batches that grow with the graph. All cores search for the
# neighbours of the nodes of a batch; then the nodes become neighbours of their neighbours. The
# result depends on the vectors and the parameters alone.
#
# Specification: "Graphs" in ``docs/format/vector-indices.md``.

Int32s = NDArray[np.int32]

_GROWTH = 32
"""Size of a batch: the nodes of the graph divided by this."""

_MAX_BATCH = 16_384
_MIN_PARALLEL_NODES = 64
"""Minimum nodes in a batch for threads."""

_PREFETCH_DISTANCE = 2
"""A setting of pylance's searches in the header; glaive ignores it."""


class BuiltGraph:
    """The graph of a partition.

    Parameters
    ----------
    header
        Header as stored.
    levels
        All levels, the lowest first; the highest may be empty.
    """

    def __init__(self, header: str, levels: list[Level]) -> None:
        self.header, self.levels = header, levels


def build_graph(vectors: NDArray[Any], parameters: GraphParameters, *, dot: bool) -> BuiltGraph:
    """Build a graph over vectors.

    Parameters
    ----------
    vectors
        ``float32`` or ``uint8`` of shape ``(n, dimension)``, ``n`` at least 1.
    parameters
        Parameters of the graph.
    dot
        The distance is one minus the dot product; otherwise the squared distance.
    """
    count = len(vectors)
    random = np.random.default_rng(0)
    drawn = -np.log(1 - random.random(count)) / math.log(parameters.neighbors)
    heights = np.minimum(drawn, parameters.max_level - 1).astype(np.uint8)
    order = random.permutation(count).astype(np.int32)
    nodes = Nodes(vectors, dot=dot)
    graph = GrowingGraph(nodes, heights, parameters.neighbors, parameters.candidates)
    scratches = [Scratch(graph) for _ in range(worker_count())]
    graph.entry = int(order[0])
    added = 1
    while added < count:
        size = min(max(1, added // _GROWTH), _MAX_BATCH, count - added)
        _add(graph, order[added : added + size], scratches)
        added += size
    levels = [_level(graph, level) for level in range(parameters.max_level)]
    offsets = np.cumsum([0, *(len(level.ids) for level in levels)]).tolist()
    header = {
        "entry_point": graph.entry,
        "params": {
            "max_level": parameters.max_level,
            "m": parameters.neighbors,
            "ef_construction": parameters.candidates,
            "prefetch_distance": _PREFETCH_DISTANCE,
        },
        "level_offsets": offsets,
    }
    return BuiltGraph(json.dumps(header, separators=(",", ":")), levels)


def _add(graph: GrowingGraph, batch: Int32s, scratches: list[Scratch]) -> None:
    """Add nodes to the graph."""
    if len(scratches) == 1 or len(batch) < _MIN_PARALLEL_NODES:
        find_neighbors(graph, batch, scratches[0])
    else:
        parts = zip(np.array_split(batch, len(scratches)), scratches, strict=True)
        work = partial(_find, graph)
        for _ in ordered_map(work, parts):
            pass
    heights = graph.levels[batch]
    top = int(graph.levels[graph.entry])
    for level in range(min(int(heights.max()), top) + 1):
        _link(graph, batch[heights >= level], level, len(scratches))
    highest = int(heights.argmax())
    if heights[highest] > top:
        graph.entry = int(batch[highest])


def _find(graph: GrowingGraph, part: tuple[Int32s, Scratch]) -> None:
    find_neighbors(graph, *part)


def _link(graph: GrowingGraph, batch: Int32s, level: int, workers: int) -> None:
    """Make nodes neighbours of their neighbours."""
    lists = graph.lists(level)
    own = graph.blocks(batch, level)
    counts = lists.counts[own]
    filled = np.arange(lists.nodes.shape[1]) < counts[:, None]
    targets = graph.blocks(lists.nodes[own][filled], level)
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1)).astype(np.int32)
    edges = Edges(
        ordered[starts],
        np.append(starts, np.int32(len(ordered))).astype(np.int32),
        np.repeat(batch, counts)[order],
        lists.distances[own][filled][order],
    )
    if workers == 1 or len(starts) < _MIN_PARALLEL_NODES:
        link_back(graph, lists, edges)
        return
    cuts = np.linspace(0, len(starts), workers + 1).astype(np.int64).tolist()
    parts = [edges.part(first, last) for first, last in pairwise(cuts)]
    for _ in ordered_map(partial(link_back, graph, lists), parts):
        pass


def _level(graph: GrowingGraph, level: int) -> Level:
    """Return a level as files store it."""
    ids = np.flatnonzero(graph.levels >= level).astype(np.int32)
    lists = graph.lists(level)
    own = graph.blocks(ids, level)
    counts = lists.counts[own]
    filled = np.arange(lists.nodes.shape[1]) < counts[:, None]
    return Level(
        ids.astype(np.int64),
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        lists.nodes[own][filled].astype(np.int64),
        lists.distances[own][filled],
    )


# --- Write the graphs of a new index, partition by partition ----------------------------
# Specification: "Graphs" in ``docs/format/vector-indices.md``.

_TYPES: Final = (pa.uint32(), pa.list_(pa.uint32()), pa.list_(pa.float32()))
NODE_SCHEMA: Final = pa.schema(
    [pa.field(name, kind) for name, kind in zip(NODE_COLUMNS, _TYPES, strict=True)]
)
"""Columns of the file of graphs."""


_LARGEST: Final = float(np.finfo(np.float32).max)


class GraphWriter:
    """Writer of the file of graphs.

    Parameters
    ----------
    file
        File with :data:`NODE_SCHEMA`.
    parameters
        Parameters of the graphs.
    """

    def __init__(self, file: IndexFileWriter, parameters: GraphParameters) -> None:
        self._file, self._parameters = file, parameters
        self._headers: list[str] = []
        self._sizes: list[int] = []

    def add(self, group: SortedPartitions, coder: Coder) -> None:
        """Build and write the graphs of the next partitions."""
        for start, stop in pairwise(group.bounds.tolist()):
            if start == stop:
                self._headers.append("")
                self._sizes.append(0)
                continue
            points = coder.points(group.records[start:stop])
            graph = build_graph(points.vectors, self._parameters, dot=points.dot)
            # The scale may be the square of a large number: keep it finite, so that 0 stays 0.
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
        """Write the model, completed by the position of each graph."""
        ends = np.cumsum(self._sizes)
        model.offsets.extend((ends - self._sizes).tolist())
        model.lengths.extend(self._sizes)
        number = self._file.add_buffer(model.SerializeToString())
        headers = json.dumps(self._headers, separators=(",", ":"))
        self._file.add_metadata({**metadata, MODEL: str(number), GRAPHS: headers})
        self._file.finish()
