"""Build one segment of an index: a task that can be sent to another process.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import concat_arrays, decode_dictionary
from glaive.config import memory_size, settings
from glaive.dataclass import dataclass
from glaive.dataset.lance_operation import Index
from glaive.dataset.monitoring import current_line
from glaive.dataset.tasks import opened_at
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.format.bitmaps import bitmap_of
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.index.protocol import BuiltSegment, IndexKind, ValueBatch, kind_of, known_kind
from glaive.index.row_sets import RowNumbers
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.vector.parameters import MAX_PARTITIONS
from glaive.io.pool import worker_count
from glaive.process import now_ns
from glaive.scan.indices import IndexedSegment, SnapshotIndices, union_of
from glaive.scan.nearest.indexed import ChosenIndex, searched_segments
from glaive.scan.nearest.scan import RecallSample
from glaive.scan.nearest.vectors import vector_type
from glaive.scan.options import ScanOptions
from glaive.scan.plan import WINDOW_BYTES
from glaive.scan.query import make_query
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take
from glaive.scan.views import Views
from glaive.table.index_coverage import covered_fragments
from glaive.types import items_of

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Paths of indexed columns -----------------------------------------------------------


def path_of(manifest: Manifest, number: int) -> str:
    """Return the dotted path of a field, or the id of an unknown field."""
    return manifest.schema.path_of(number) or str(number)


def indexed_path(manifest: Manifest, entry: table_pb2.IndexMetadata) -> str:
    """Return the dotted path of the column that an index covers.

    Raises
    ------
    CorruptFileError
        The entry names zero or several columns.
    """
    if len(entry.fields) != 1:
        raise CorruptFileError(
            f"fields of index {entry.name!r}",
            expected="one; drop the index",
            found=f"{len(entry.fields)}",
            where=manifest.where,
        )
    return path_of(manifest, entry.fields[0])


# --- Parameters of a vector index, and of its searches, that reach a recall -------------
# Specification: "Details" in ``docs/format/vector-indices.md``.

_LOG = logging.getLogger(__name__)

_TUNING_QUERIES: Final = 100
_MAX_REFINE_FACTOR: Final = 64
_REFINE_FACTORS: Final = (None, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, _MAX_REFINE_FACTOR)
_RECALL_MARGIN: Final = 0.25
"""Share of the gap to 1 that glaive adds to the recall as a margin, as samples are small."""

_NPROBES_GROWTH: Final = 1.3
_MIN_FINE_RECALL: Final = 0.9
"""Minimum recall for product codes of one byte per four dimensions, instead of eight."""

_MEASURED_BYTES: Final = 1 << 30
_MEASURED_QUERIES: Final = 30


def checked_recall(parameters: Mapping[str, Any]) -> float | None:
    """Return the recall among the parameters of an index, or None.

    Raises
    ------
    OptionError
        The recall is outside of 0 to 1.
    """
    given = parameters.get("recall")
    if given is None:
        return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 < given < 1:
        raise OptionError(
            f"recall: expected a number between 0 and 1, such as 0.95, found {given!r}"
        )
    return float(given)


def with_sizes(
    parameters: Mapping[str, Any], recall: float, rows: int, field: pa.Field[Any]
) -> dict[str, Any]:
    """Add partitions and codes for ``rows`` rows to parameters that lack them.

    Raises
    ------
    OptionError
        A row of the column holds several vectors.
    """
    kind = str(parameters.get("index_type", "IVF_PQ")).upper()
    made = {name: value for name, value in parameters.items() if name != "recall"}
    stored: Any = field.type
    if pa.types.is_list(stored) or pa.types.is_large_list(stored):
        raise OptionError(
            f"recall: column {field.name!r} has several vectors in a row, whose recall cannot "
            "be measured. Leave recall out, and set nprobes and refine_factor when searching"
        )
    sizes = ("num_partitions", "target_partition_size", "ivf_centroids", "ivf_centroids_file")
    if "HNSW" not in kind and all(made.get(name) is None for name in sizes):
        made["num_partitions"] = min(MAX_PARTITIONS, max(1, 1 << round(math.log2(rows + 1) / 2)))
    if kind.endswith("PQ") and made.get("num_sub_vectors") is None:
        dimension = int(getattr(stored, "list_size", 1))
        wanted = max(1, dimension // (4 if recall >= _MIN_FINE_RECALL else 8))
        even = 2 if made.get("num_bits") == 4 else 1
        fitting = [
            parts for parts in range(1, wanted + 1) if dimension % parts == 0 and parts % even == 0
        ]
        made["num_sub_vectors"] = fitting[-1] if fitting else dimension
    return made


def tune(snapshot: Snapshot, column: str, recall: float, entry: table_pb2.IndexMetadata) -> None:
    """Find how to search a new segment, and add that to its details.

    First finds the number of partitions, with as many refined candidates as possible. Then finds
    the smallest number of candidates.

    Raises
    ------
    OptionError
        All searches of the segment stay below the recall.
    """
    from glaive.index.vector.opened import SearchDefaults, with_defaults

    index = chosen_index(snapshot, [entry])
    sample = None
    if index is not None:
        fragments = sorted(index.fragments)
        sample = RecallSample.of(Views(snapshot), column, index.metric, _TUNING_QUERIES, fragments)
    if index is None or sample is None:
        return
    aim = recall + _RECALL_MARGIN * (1 - recall)
    partitions = len(index.segments[0].opened.partitions)
    nprobes, reached = 1, 0.0
    while True:
        reached = sample.recall(index, nprobes=nprobes, refine_factor=_MAX_REFINE_FACTOR)
        if reached >= aim or nprobes == partitions:
            break
        nprobes = min(partitions, max(nprobes + 1, int(nprobes * _NPROBES_GROWTH)))
    if reached < recall:
        raise OptionError(
            f"recall: an index of {index.name!r} with these codes reaches {reached:.3f}, not "
            f"{recall}. Use finer ones: more num_sub_vectors or num_bits, or IVF_SQ or IVF_FLAT"
        )
    aim = min(aim, reached)
    for refine in _REFINE_FACTORS:
        reached = sample.recall(index, nprobes=nprobes, refine_factor=refine)
        if reached >= aim:
            break
    defaults = SearchDefaults(nprobes, refine, recall)
    _LOG.info(
        "index %r: %d partitions, searched with nprobes=%d, refine_factor=%s: recall %.3f",
        entry.name, partitions, nprobes, refine, reached,
    )  # fmt: skip
    details = entry.index_details
    details.value = with_defaults(details.value, defaults, snapshot.manifest.where)


def chosen_index(
    snapshot: Snapshot, entries: Sequence[table_pb2.IndexMetadata]
) -> ChosenIndex | None:
    """Return the segments of a vector index that searches use, or None.

    Raises
    ------
    OptionError
        The column has no vectors.
    """
    manifest = snapshot.manifest
    live = frozenset(manifest.fragment_ids.tolist())
    segments: list[IndexedSegment] = []
    for entry in entries:
        kind = kind_of(entry)
        covered = (covered_fragments(entry) or frozenset()) & live
        if kind is not None and kind.name == "vector" and covered:
            segments.append(IndexedSegment(entry, kind, covered))
    if not segments:
        return None
    column = indexed_path(manifest, entries[0])
    vectors = vector_type(manifest.schema.find(column)[-1].to_arrow(), column)
    searched = searched_segments(SnapshotIndices.of(snapshot), segments, vectors)
    if not searched:
        return None
    fragments = union_of(one.segment for one in searched)
    return ChosenIndex(entries[0].name, searched, fragments, searched[0].opened.metric)


def measured_recall(
    snapshot: Snapshot, column: str, index: ChosenIndex, queries: int | None
) -> float | None:
    """Measure the recall of default searches.

    Returns None if vectors to search for are missing. Also returns None if ``queries`` is None and
    the vectors are more than 1 GiB, as comparing them would take long.
    """
    opened = index.segments[0].opened
    if queries is None:
        size = snapshot.num_rows * opened.dimension * opened.centroids.itemsize
        queries = _MEASURED_QUERIES if size <= _MEASURED_BYTES else 0
    if not queries:
        return None
    every = snapshot.manifest.fragment_ids.tolist()
    sample = RecallSample.of(Views(snapshot), column, index.metric, queries, every)
    return None if sample is None else sample.recall(index)


# --- Rows of a column for builds of indices ---------------------------------------------
# Specification: "Building" in ``docs/format/indices.md``.

CountRows: TypeAlias = Callable[[int], None]
"""Called with the number of rows read since the last call."""

_BATCH_ROWS = 256 * 1024
_BATCH_BYTES, _LEAST_BATCH_BYTES = 16 * 1024 * 1024, 512 * 1024
_BATCH_COPIES = 8
"""Memory for work on a batch, as an approximate multiple of its size."""

_READ_AHEAD_SHARE = 4
"""Share (1 / n) of the memory limit for rows read ahead, but at least one window."""


class ColumnSource:
    """Live rows of some fragments of a version; an :class:`glaive.index.protocol.IndexSource`.

    Parameters
    ----------
    path
        Path of the column.
    fragment_ids
        Fragments to read; None for all.
    addresses
        Whether rows are numbered by address; otherwise by row id.
    memory_limit
        Maximum bytes of memory for the build.
    count_rows
        Called with the number of rows read since the last call.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        path: str,
        fragment_ids: Sequence[int] | None,
        *,
        addresses: bool,
        memory_limit: int,
        count_rows: CountRows | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._path, self._addresses = path, addresses
        ids = snapshot.manifest.fragment_ids.tolist() if fragment_ids is None else fragment_ids
        self.fragment_ids = tuple(ids)
        self._count_rows = count_rows
        self.memory_limit = memory_limit

    @cached_property
    def field(self) -> pa.Field[Any]:
        """The column, with the type of the batches."""
        stored = self._stored_type
        if pa.types.is_dictionary(stored):
            stored = stored.value_type
        return pa.field(self._path, stored, metadata=self._column.metadata)

    @cached_property
    def _column(self) -> pa.Field[Any]:
        return self._snapshot.manifest.schema.find(self._path)[-1].to_arrow()

    @property
    def _stored_type(self) -> Any:
        kind: Any = self._column.type
        return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind

    @cached_property
    def dictionary_type(self) -> pa.DataType | None:
        """The type of the column if it is dictionary-encoded; else None."""
        stored = self._stored_type
        return stored if pa.types.is_dictionary(stored) else None

    @cached_property
    def _positions(self) -> list[int]:
        return list(self._snapshot.positions_of(self.fragment_ids))

    @property
    def stable_row_ids(self) -> bool:
        """Whether row ids differ from addresses."""
        return self._snapshot.manifest.uses(Feature.STABLE_ROW_IDS)

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return int(self._snapshot.live_counts[self._positions].sum())

    def batches(self) -> Iterator[ValueBatch]:
        """Read all rows, fragment by fragment."""
        if not self.fragment_ids:
            return
        options = ScanOptions(
            columns=(self._path,),
            fragments=self.fragment_ids,
            with_row_address=self._addresses,
            with_row_id=not self._addresses,
            batch_size=_BATCH_ROWS,
            batch_size_bytes=self._batch_bytes,
            batch_readahead=self._windows_ahead,
            blob_handling="all_binary",
        )
        for batch in make_query(Views(self._snapshot), options).batches():
            numbers: Any = batch.column(1)
            rows: RowNumbers = items_of(
                numbers.buffers()[1], np.uint64, len(numbers), numbers.offset * 8
            )
            yield ValueBatch(self._values(batch.column(0)), rows)
            if self._count_rows is not None:
                self._count_rows(batch.num_rows)

    @property
    def _batch_bytes(self) -> int:
        """Bytes of a batch: each thread may process one."""
        share = self.memory_limit // (_BATCH_COPIES * (worker_count() + 1))
        return max(_LEAST_BATCH_BYTES, min(_BATCH_BYTES, share))

    @property
    def _windows_ahead(self) -> int | None:
        """Number of windows to read ahead; None: as many as there are threads."""
        max_windows = max(1, self.memory_limit // _READ_AHEAD_SHARE // WINDOW_BYTES)
        return max_windows if max_windows <= worker_count() else None

    def sample(self, rows: int, seed: int = 0) -> Any:
        """Return the values of ``rows`` random rows, or of all rows if there are fewer."""
        total = self.num_rows
        if rows >= total:
            parts = [batch.values for batch in self.batches()]
            return concat_arrays(parts) if parts else pa.array([], self.field.type)
        chosen = np.sort(np.random.default_rng(seed).choice(total, rows, replace=False))
        counts = self._snapshot.live_counts[self._positions]
        ends = np.cumsum(counts)
        at = np.searchsorted(ends, chosen, side="right")
        starts = self._snapshot.row_starts[self._positions]
        numbers = chosen - (ends - counts)[at] + starts[at]
        table = take(Views(self._snapshot).take((self._path,)), numbers)
        chunks = [self._values(self._member(chunk)) for chunk in table.column(0).chunks]
        return concat_arrays(chunks) if chunks else pa.array([], self.field.type)

    def _member(self, array: Any) -> Any:
        """Extract the column from the structs of a take; null if a struct is null."""
        for _ in self._snapshot.manifest.schema.find(self._path)[1:]:
            (array,) = array.flatten()
        return array

    def _values(self, array: Any) -> Any:
        """Return the values of a column in the type of :attr:`field`."""
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = decode_dictionary(array)
        return array


# --- Progress of a build, as it is reported to users ------------------------------------


@dataclass(frozen=True)
class IndexProgress:
    """Progress of an index build.

    Parameters
    ----------
    event
        ``start``, ``progress`` or ``complete``.
    stage
        The stage of the build: ``load_data``.
    completed, total
        Units done, and units of the whole stage, if known.
    unit
        Unit of these numbers: ``rows``.
    """

    event: Literal["start", "progress", "complete"]
    stage: str
    completed: int | None = None
    total: int | None = None
    unit: str = ""

    @property
    def fraction(self) -> float | None:
        """Share of the stage that is done; None if unknown."""
        if self.completed is None or not self.total:
            return None
        return min(self.completed / self.total, 1.0)


@contextmanager
def reporting(
    callback: Callable[[IndexProgress], object] | None, stage: str, total: int
) -> Iterator[CountRows | None]:
    """Report a stage that reads ``total`` rows, perhaps several times, and show it in the
    terminal.
    """
    line = current_line()
    if callback is None and line is None:
        yield None
        return
    done = 0

    def report(event: Literal["start", "progress", "complete"], rows: int) -> None:
        if line is not None:
            line.move_to(rows, total)
        if callback is not None:
            callback(IndexProgress(event, stage, rows, total, "rows"))

    def count_rows(rows: int) -> None:
        nonlocal done
        done = min(total, done + rows)
        report("progress", done)

    report("start", 0)
    yield count_rows
    report("complete", total)


Entry = table_pb2.IndexMetadata

_MIB = 1024 * 1024
_LIMIT = "memory_limit"


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Build a segment for some fragments of a version; can be pickled. :meth:`execute` runs it.

    Parameters
    ----------
    read_version
        The version to read.
    column
        Path of the column.
    kind
        Name of the kind of index, as :attr:`glaive.index.protocol.IndexKind.name`.
    name
        Name of the index.
    fragment_ids
        Fragments to index; None for all of the version.
    parameters
        Parameters of the kind.
    uuid
        Id of the segment; None for a random one.
    """

    read_version: int
    column: str
    kind: str
    name: str
    fragment_ids: tuple[int, ...] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    uuid: str | None = None

    def execute(self, dataset: OpenDataset) -> Index:
        """Write the segment for a later commit.

        ``dataset`` may be at another version.

        Raises
        ------
        VersionNotFoundError
            The version to read was cleaned up.
        OptionError, UnsupportedFeatureError
            The kind refuses the parameters or the type of the column.
        """
        return Index.from_wire(build_segment(opened_at(dataset, self.read_version), self))


def build_segment(
    dataset: OpenedVersion, task: IndexTask, count_rows: CountRows | None = None
) -> Entry:
    """Write the segment of a task.

    Returns
    -------
    IndexMetadata
        The entry to be committed.
    """
    kind = known_kind(task.kind)
    source, parameters = source_of(dataset, task, count_rows)
    field_id = dataset.manifest.schema.find(task.column)[-1].id
    covered = source.fragment_ids
    finish: Callable[[Entry], None] | None = None
    if kind.name == "vector" and "recall" in parameters:
        recall = checked_recall(parameters)
        rows = int(dataset.snapshot.live_counts[list(dataset.snapshot.positions_of(covered))].sum())
        if recall is not None:
            parameters = with_sizes(parameters, recall, rows, source.field)
            finish = partial(tune, dataset.snapshot, task.column, recall)
    uuid = None if task.uuid is None else UUID(task.uuid)
    return _written(
        dataset,
        task.name,
        [field_id],
        covered,
        lambda out: kind.build(source, parameters, out),
        uuid,
        finish,
    )


def source_of(
    dataset: OpenedVersion, task: IndexTask, count_rows: CountRows | None
) -> tuple[ColumnSource, dict[str, Any]]:
    """Return the rows that a task reads, and the parameters of the kind."""
    kind = known_kind(task.kind)
    source = _source(dataset, kind, task.column, task.fragment_ids, task.parameters, count_rows)
    return source, {name: value for name, value in task.parameters.items() if name != _LIMIT}


def extend_index(dataset: OpenedVersion, like: Entry, fragment_ids: Sequence[int]) -> Entry:
    """Write a segment with the rows of fragments, for the index of another segment."""
    manifest, kind = dataset.manifest, _kind_of(dataset, like)
    segment = Segment.of(dataset.store, manifest, like)
    source = _source_like(dataset, kind, like, fragment_ids)
    return _written(
        dataset,
        like.name,
        like.fields,
        fragment_ids,
        lambda out: kind.extend(segment, source, out),
        finish=partial(_take_type, like),
    )


def _take_type(like: Entry, entry: Entry) -> None:
    """Give an entry the type of another entry of its index.

    pylance 0.36 uses other type names for bitmaps, and pylance 14 refuses an index of two types.
    """
    if like.index_details.type_url:
        entry.index_details.type_url = like.index_details.type_url


def merge_segments(
    dataset: OpenedVersion, entries: Sequence[Entry], fragment_ids: Sequence[int] = ()
) -> Entry:
    """Write a segment with the rows of other segments and, if given, of fragments.

    Returns
    -------
    IndexMetadata
        The entry to be committed, with the name of the first segment.
    """
    first, manifest = entries[0], dataset.manifest
    kind = _kind_of(dataset, first)
    source = _source_like(dataset, kind, first, fragment_ids) if fragment_ids else None
    left = set(manifest.fragment_ids.tolist())
    current: list[IndexedSegment] = []
    for entry in entries:
        kind.check_mergeable(Segment.of(dataset.store, manifest, entry))
        fragments = left & (covered_fragments(entry) or frozenset())
        left -= fragments  # of overlapping segments, searches ask the first
        current.append(IndexedSegment(entry, kind, frozenset(fragments)))
    covered = frozenset(fragment_ids).union(*(segment.fragments for segment in current))
    with ExitStack() as retained:
        segments = [retained.enter_context(_retained(dataset, segment)) for segment in current]
        return _written(
            dataset,
            first.name,
            first.fields,
            covered,
            lambda out: kind.merge(segments, source, out),
            finish=partial(_take_type, first),
        )


@contextmanager
def _retained(dataset: OpenedVersion, segment: IndexedSegment) -> Iterator[Segment]:
    """Yield a segment with its current rows only; remove its files afterwards."""
    entry = segment.entry
    stored = Segment.of(dataset.store, dataset.manifest, entry)
    if entry.dataset_version == dataset.manifest.version:  # it is new
        yield stored
        return
    rows = SnapshotIndices.of(dataset.snapshot).retained(segment)
    out = SegmentWriter.of(dataset.store, dataset.manifest)
    try:
        rebuilt = segment.kind.remap(stored, rows, out)
        if rebuilt is None:
            raise UnsupportedFeatureError(f"{stored.where}: such segments cannot be merged")
        without = Entry()
        without.CopyFrom(entry)
        without.ClearField("base_id")
        without.uuid.uuid = out.id.bytes
        del without.files[:]
        without.files.extend(out.finish())
        if rebuilt.details is not None:
            without.index_details.value = rebuilt.details
        if rebuilt.version is not None:
            without.index_version = rebuilt.version
        yield Segment(dataset.store, without)
    finally:
        out.abort()


def _written(
    dataset: OpenedVersion,
    name: str,
    fields: Sequence[int],
    covered: Collection[int],
    write: Callable[[SegmentWriter], BuiltSegment],
    uuid: UUID | None = None,
    finish: Callable[[Entry], None] | None = None,
) -> Entry:
    """Write a segment; on an error or interrupt, remove its files.

    ``finish`` reads the segment and completes its entry.

    Raises
    ------
    OptionError
        A segment with this id exists.
    """
    out = SegmentWriter.of(dataset.store, dataset.manifest, uuid)
    if uuid is not None and next(iter(dataset.store.walk(out.folder)), None) is not None:
        raise OptionError(f"index_uuid: there are files of {uuid} already. Choose another id")
    try:
        built = write(out)
        files = out.finish()
        # If vectors to train on are missing, the segment is empty.
        answered = covered if files else ()
        entry = Entry(
            name=name,
            fields=fields,
            dataset_version=dataset.manifest.version,
            fragment_bitmap=bitmap_of(sorted(answered)),
            index_version=built.version,
            created_at=now_ns() // 1_000_000,
            files=files,
        )
        entry.uuid.uuid = out.id.bytes
        entry.index_details.type_url = built.type_url
        entry.index_details.value = built.details
        if finish is not None:
            finish(entry)
    except BaseException:
        out.abort()
        raise
    return entry


def _kind_of(dataset: OpenedVersion, entry: Entry) -> IndexKind:
    kind = SnapshotIndices.of(dataset.snapshot).kind_of(entry)
    if kind is None:
        raise OptionError(
            f"index {entry.name!r} is of a kind, or a version of it, that glaive does not know: "
            f"{entry.index_details.type_url} {entry.index_version}"
        )
    return kind


def _source_like(
    dataset: OpenedVersion, kind: IndexKind, entry: Entry, fragment_ids: Sequence[int]
) -> ColumnSource:
    """Return the rows of fragments, for the column that an index covers."""
    path = indexed_path(dataset.manifest, entry)
    return _source(dataset, kind, path, tuple(fragment_ids), {}, None)


def _source(
    dataset: OpenedVersion,
    kind: IndexKind,
    path: str,
    fragment_ids: tuple[int, ...] | None,
    parameters: Mapping[str, Any],
    count_rows: CountRows | None,
) -> ColumnSource:
    stable = dataset.manifest.uses(Feature.STABLE_ROW_IDS)
    return ColumnSource(
        dataset.snapshot,
        path,
        fragment_ids,
        addresses=not stable or kind.stores_addresses,
        memory_limit=_memory_limit(kind, parameters.get(_LIMIT)),
        count_rows=count_rows,
    )


def _memory_limit(kind: IndexKind, given: object) -> int:
    """Return the memory limit in bytes; a number for full-text indices is MiB, as in pylance."""
    if given is None:
        return settings.memory_limit
    limit = memory_size("memory_limit", given)
    return limit * _MIB if kind.name == "inverted" and isinstance(given, int) else limit
