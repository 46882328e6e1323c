"""Building one segment of an index: a value that can be sent to another process.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from glaive.clock import now_ns
from glaive.config import memory_size, settings
from glaive.dataclass import dataclass
from glaive.dataset.commits.index_metadata import Index
from glaive.dataset.indexing.indexed_path import indexed_path
from glaive.dataset.indexing.source import ColumnSource, CountRows
from glaive.dataset.tasks import opened_at
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.bitmaps import bitmap_of
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.index.protocol import BuiltSegment, IndexKind
from glaive.index.registry import index_kinds
from glaive.index.segment import Segment, SegmentWriter
from glaive.scan.indices import IndexedSegment, SnapshotIndices
from glaive.table.checksums import wants_checksums
from glaive.table.index_coverage import covered_fragments

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["IndexTask", "build_segment", "extend_index", "merge_segments", "source_of"]

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
        Of the index.
    fragment_ids
        Fragments to index; None for all of the version.
    parameters
        Of the kind.
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
        """Write the segment, uncommitted.

        ``dataset`` may be at another version.

        Raises
        ------
        VersionNotFoundError
            That version was cleaned up.
        OptionError, UnsupportedFeatureError
            The kind cannot be built like this, or not for the type of the column.
        """
        return Index.from_wire(build_segment(opened_at(dataset, self.read_version), self))


def build_segment(
    dataset: OpenedVersion,
    task: IndexTask,
    count_rows: CountRows | None = None,
) -> Entry:
    """Write a segment as a task says.

    Returns
    -------
    IndexMetadata
        The entry to be committed.
    """
    kind = index_kinds()[task.kind]
    source, parameters = source_of(dataset, task, count_rows)
    field_id = dataset.manifest.schema.find(task.column)[-1].id
    covered = [fragment.id for fragment in source.fragments]
    finish: Callable[[Entry], None] | None = None
    if kind.name == "vector" and "recall" in parameters:
        from glaive.dataset.indexing.tuning import checked_recall, suited, tune

        recall = checked_recall(parameters)
        rows = int(dataset.snapshot.live_counts[list(dataset.snapshot.positions_of(covered))].sum())
        if recall is not None:
            parameters = suited(parameters, recall, rows, source.field)
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
    """The rows that a task reads, and the parameters of the kind."""
    kind = index_kinds()[task.kind]
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
    """Give an entry the type of another: pylance 0.36 has another name, and 14 mixes no two."""
    if like.index_details.type_url:
        entry.index_details.type_url = like.index_details.type_url


def merge_segments(
    dataset: OpenedVersion, entries: Sequence[Entry], fragment_ids: Sequence[int] = ()
) -> Entry:
    """Write a segment with the rows of others and, if there are some, of fragments.

    Returns
    -------
    IndexMetadata
        The entry to be committed, named as the first one.
    """
    first, manifest = entries[0], dataset.manifest
    kind = _kind_of(dataset, first)
    source = _source_like(dataset, kind, first, fragment_ids) if fragment_ids else None
    left = set(manifest.fragment_ids.tolist())
    current: list[IndexedSegment] = []
    for entry in entries:
        kind.check_mergeable(Segment.of(dataset.store, manifest, entry))
        fragments = left & (covered_fragments(entry) or frozenset())
        left -= fragments  # searches, too, ask the first of several segments that cover one
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
    """A segment without rows that it does not answer for; its files are removed afterwards."""
    entry = segment.entry
    stored = Segment.of(dataset.store, dataset.manifest, entry)
    if entry.dataset_version == dataset.manifest.version:  # It was just built.
        yield stored
        return
    rows = SnapshotIndices.of(dataset.snapshot).retained(segment)
    out = SegmentWriter(
        dataset.store,
        dataset.manifest.data_format,
        checksums=wants_checksums(dataset.manifest.wire),
    )
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
    """Write a segment; on an error, or when interrupted, its files are removed.

    ``finish`` looks at the segment and completes its entry.

    Raises
    ------
    OptionError
        There is a segment of this id.
    """
    out = SegmentWriter(
        dataset.store,
        dataset.manifest.data_format,
        uuid,
        checksums=wants_checksums(dataset.manifest.wire),
    )
    if uuid is not None and next(iter(dataset.store.walk(out.folder)), None) is not None:
        raise OptionError(f"index_uuid: there are files of {uuid} already. Choose another id")
    try:
        built = write(out)
        files = out.finish()
        # Without a vector to train with there is no file, which answers for nothing.
        answered = covered if files else ()
        entry = _entry(dataset.manifest, name, fields, answered, out, built, files)
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
    """The rows of fragments, of the column that an index is over."""
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
    """Bytes that a build may hold; a number for full-text indices is MiB, as in pylance."""
    if given is None:
        return settings.memory_limit
    limit = memory_size("memory_limit", given)
    return limit * _MIB if kind.name == "inverted" and isinstance(given, int) else limit


def _entry(
    manifest: Manifest,
    name: str,
    fields: Sequence[int],
    covered: Collection[int],
    out: SegmentWriter,
    built: BuiltSegment,
    files: Sequence[table_pb2.IndexFile],
) -> Entry:
    entry = Entry(
        name=name,
        fields=fields,
        dataset_version=manifest.version,
        fragment_bitmap=bitmap_of(sorted(covered)),
        index_version=built.version,
        created_at=now_ns() // 1_000_000,
        files=files,
    )
    entry.uuid.uuid = out.id.bytes
    entry.index_details.type_url = built.type_url
    entry.index_details.value = built.details
    return entry
