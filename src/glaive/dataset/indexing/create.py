"""Create an index: build its segments, commit them in one version.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import pyarrow as pa

from glaive.arrow.utf8 import refuse_half_characters
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.commits.index_metadata import Index
from glaive.dataset.deprecations import warn_deprecated
from glaive.dataset.indexing.describe import uuid_of
from glaive.dataset.indexing.encoded_files import computed_partitions
from glaive.dataset.indexing.indexed_path import path_of
from glaive.dataset.indexing.parameters import kind_named
from glaive.dataset.indexing.progress import IndexProgress, reporting
from glaive.dataset.indexing.staging import finish_parts, write_part
from glaive.dataset.indexing.task import IndexTask, build_segment, merge_segments
from glaive.dataset.tasks import LOCAL, Job
from glaive.errors import (
    FragmentNotFoundError,
    GlaiveError,
    IndexExistsError,
    IndexKindError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind
from glaive.index.registry import kind_of
from glaive.table.earlier_segments import brought_up_to
from glaive.table.index_coverage import covered_fragments, with_covered
from glaive.table.operations.create_index import CreateIndex

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = [
    "commit_segments",
    "create_index",
    "create_segment",
    "index_task",
    "merge_existing",
    "text_parameters",
    "vector_task",
]

ProgressCallback: TypeAlias = Callable[[IndexProgress], object]


def index_task(
    dataset: OpenedVersion,
    column: str,
    index_type: object,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    fragment_ids: Iterable[int] | None = None,
    index_uuid: object = None,
) -> IndexTask:
    """What is to be built, checked against the version.

    Parameters
    ----------
    column
        Name or path of a column.
    index_type
        Name of a kind, or what pylance takes for one.
    name
        Of the index; by default ``column_idx``, or with a number, if that is another index.
    parameters
        Of the kind, as users write them.
    fragment_ids
        The fragments to be indexed; all by default.
    index_uuid
        Id of the segment; random by default.

    Raises
    ------
    ColumnNotFoundError
        The column does not exist; the message names the closest ones.
    OptionError
        The kind does not exist, or a fragment, or the id of the segment is none.
    UnsupportedFeatureError
        The column has dictionaries, which the kind does not index.
    """
    column = _stored_name(dataset.manifest, _one_column(column))
    kind, given = kind_named(index_type, parameters or {})
    found = dataset.manifest.schema.find(column, "{name} not found in schema")
    values = found[-1].to_arrow().type
    if pa.types.is_dictionary(values) and not kind.indexes_dictionaries:
        raise UnsupportedFeatureError(
            f"column {column!r} of type {values} cannot have a {kind.name.upper()} index, which "
            "other libraries would not read. Use ZONEMAP, or write the column as plain values"
        )
    ids = None
    if fragment_ids is not None:
        ids = tuple(fragment_ids)
        there = set(dataset.manifest.fragment_ids.tolist())
        if missing := [one for one in ids if one not in there]:
            raise FragmentNotFoundError(
                f"fragment_ids: No fragment with id {missing[0]} in {dataset.manifest.title}"
            )
    index_name = _checked_name(_free_name(dataset.manifest, column, kind) if name is None else name)
    uuid = None if index_uuid is None else str(uuid_of("index_uuid", index_uuid))
    return IndexTask(dataset.manifest.version, column, kind.name, index_name, ids, given, uuid)


_VECTOR_PARAMETERS = (
    "num_partitions", "target_partition_size", "ivf_centroids", "ivf_centroids_file",
    "pq_codebook", "num_sub_vectors", "precomputed_partition_dataset", "accelerator",
    "rabitq_model",
)  # fmt: skip
"""Arguments of ``create_index`` that are parameters of kinds; those left out mean nothing here."""


def vector_task(dataset: OpenedVersion, arguments: Mapping[str, Any]) -> IndexTask:
    """The same for a kind that may be of vectors, which have a metric.

    Parameters
    ----------
    arguments
        Those of ``LanceDataset.create_index`` by name.
    """
    if arguments.get("index_cache_size") is not None:
        # Above: create_index, and its caller.
        warn_deprecated(
            "The 'index_cache_size' parameter of create_index is ignored. The index cache is that "
            "of the dataset: dataset(..., index_cache_size_bytes=...), or of a Session.",
            above=2,
        )
    if isinstance(arguments.get("num_partitions"), float):
        warnings.warn("num_partitions is float, converting to int", stacklevel=3)
    named = {name: arguments[name] for name in _VECTOR_PARAMETERS if name in arguments}
    named["skip_transpose"] = arguments["skip_transpose"] or None
    named |= arguments["parameters"]
    given = {key: value for key, value in named.items() if value is not None}
    index_type, ids = arguments["index_type"], arguments["fragment_ids"]
    column, uuid = _one_column(arguments["column"]), arguments["index_uuid"]
    task = index_task(dataset, column, index_type, arguments["name"], given, ids, uuid)
    if task.kind != "vector":
        return task
    checked = {**task.parameters, "metric": arguments["metric"]}
    if "precomputed_partition_dataset" in checked:
        uri = checked.pop("precomputed_partition_dataset")
        checked["precomputed_partitions"] = computed_partitions(uri)
    return replace(task, parameters=checked)


def text_parameters(
    parameters: Mapping[str, Any], format_version: object, granularity: object
) -> dict[str, Any]:
    """Parameters with those that only full-text indices have, if they are given."""
    given = dict(parameters)
    if format_version is not None:
        given["format_version"] = format_version
    if getattr(granularity, "value", granularity) != "row":
        given["document_granularity"] = granularity
    return given


def create_index(
    dataset: OpenedVersion,
    task: IndexTask,
    *,
    replaces: bool,
    train: bool = True,
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Build an index and commit it; if its fragments and its id are given, only build it.

    Parameters
    ----------
    replaces
        Remove an index of this name; else that is an error.
    train
        With ``False`` an index of no fragment is built, for ``optimize_indices`` to fill.

    Raises
    ------
    OptionError
        There is such an index, or a parameter is wrong.
    CommitConflictError
        Another writer rewrote the fragments since.
    """
    before = _replaced(dataset.manifest, task, replaces=replaces)
    if task.fragment_ids is not None and task.uuid is not None:
        write_part(dataset, task, progress)
        return dataset.manifest
    if not train:
        task = replace(task, fragment_ids=())
    entry = _built(dataset, task, progress)
    return commit_operation(dataset, CreateIndex.of(dataset.manifest.schema, (entry,), before))


def create_segment(
    dataset: OpenedVersion,
    task: IndexTask,
    *,
    replaces: bool = False,
    train: bool = True,
    progress: ProgressCallback | None = None,
) -> Index:
    """Write one segment without committing it."""
    _replaced(dataset.manifest, task, replaces=replaces)
    if task.fragment_ids is not None and "ivf_centroids" in task.parameters:
        # One of several that may be merged: pylance merges codes that are stored row by row.
        task = replace(task, parameters={**task.parameters, "skip_transpose": True})
    if not train:
        task = replace(task, fragment_ids=())
    return Index.from_wire(_built(dataset, task, progress))


def merge_existing(dataset: OpenedVersion, segments: Sequence[Index]) -> Index:
    """Write one segment with the rows of others, which stay; nothing is committed.

    Raises
    ------
    OptionError
        There are none, they are of several indices, or two cover a fragment.
    UnsupportedFeatureError
        Segments of the kind, or with models of their own, cannot be merged.
    CommitConflictError
        Another writer rewrote their fragments since they were built.
    """
    entries = _given(dataset, segments)
    kinds = {(entry.index_details.type_url, tuple(entry.fields)) for entry in entries}
    if len(kinds) != 1:
        raise OptionError("segments: expected those of one kind, over one column")
    brought = brought_up_to(dataset.store, dataset.manifest, entries)
    _covered_once(brought)
    return Index.from_wire(merge_segments(dataset, brought))


def _covered_once(entries: Iterable[table_pb2.IndexMetadata]) -> set[int]:
    """The fragments that segments cover, each in one of them: rows would be found twice."""
    covered: set[int] = set()
    for entry in entries:
        fragments = covered_fragments(entry) or frozenset()
        if twice := covered & fragments:
            raise OptionError(f"segments: fragments {sorted(twice)[:10]} are covered twice")
        covered |= fragments
    return covered


def commit_segments(
    dataset: OpenedVersion,
    name: str,
    column: str,
    segments: Sequence[Index],
    *,
    job: Job = LOCAL,
    counts: Mapping[str, int] = MappingProxyType({}),
) -> Manifest:
    """Commit segments as an index.

    Segments of an index of this name stay if they cover other fragments, and are replaced if
    the new ones cover all of theirs. ``counts`` are recorded for the job.

    Raises
    ------
    OptionError
        Two segments cover a fragment, are over another column, or would leave fragments
        without an index that had one.
    CommitConflictError
        Another writer rewrote the fragments since the segments were built.
    """
    column, name = _one_column(column), _checked_name(name)
    field_id = dataset.manifest.schema.find(column)[-1].id
    entries = []
    given = _given(dataset, segments)
    for entry in given:
        if list(entry.fields) != [field_id]:
            raise OptionError(f"segments: {_uuid(entry)} is not over column {column!r}")
    brought = brought_up_to(dataset.store, dataset.manifest, given)
    covered = _covered_once(brought)
    for entry in brought:
        renamed = with_covered(entry, covered_fragments(entry) or frozenset())
        renamed.name = name
        entries.append(renamed)
    removed = []
    live = frozenset(dataset.manifest.fragment_ids.tolist())
    for before in _entries(dataset.manifest, name):
        fragments = (covered_fragments(before) or frozenset()) & live
        if not fragments <= covered and fragments & covered:
            raise OptionError(
                f"segments: fragments {sorted(fragments - covered)[:10]} of segment "
                f"{_uuid(before)} would be in no segment. Build them as well"
            )
        if fragments <= covered:
            removed.append(before)
    operation = CreateIndex.of(dataset.manifest.schema, entries, removed)
    properties = job.recording(**counts)
    return commit_operation(dataset, operation, properties=properties, once=job.once)


def _replaced(
    manifest: Manifest, task: IndexTask, *, replaces: bool
) -> tuple[table_pb2.IndexMetadata, ...]:
    """The segments of the index of this name, which have to be over the same column."""
    before = _entries(manifest, task.name)
    if before and not replaces:
        raise IndexExistsError(
            f"Index name {task.name!r} already exists: choose another name, or set replace=True"
        )
    fields = [manifest.schema.find(task.column)[-1].id]
    if any(list(entry.fields) != fields for entry in before):
        raise IndexExistsError(
            f"Index name {task.name!r} already exists with different fields: it is over another "
            f"column than {task.column!r}; please specify a different name"
        )
    return before


def _built(
    dataset: OpenedVersion, task: IndexTask, callback: ProgressCallback | None
) -> table_pb2.IndexMetadata:
    ids = task.fragment_ids
    positions = dataset.snapshot.positions_of(ids)
    total = int(dataset.snapshot.live_counts[list(positions)].sum())
    with reporting(callback, "load_data", total) as count_rows:
        return build_segment(dataset, task, count_rows)


def _entries(manifest: Manifest, name: str) -> tuple[table_pb2.IndexMetadata, ...]:
    return tuple(entry for entry in manifest.indices if entry.name == name)


def _given(dataset: OpenedVersion, segments: Sequence[Index]) -> list[table_pb2.IndexMetadata]:
    try:
        entries = [Index.to_wire(getattr(segment, "index", segment)) for segment in segments]
    except GlaiveError:
        raise
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise OptionError(f"segments: a field of one has no value of its type: {error}") from error
    if not entries:
        raise OptionError("segments: expected at least one")
    return [finish_parts(dataset, entry) for entry in entries]


def _checked_name(name: object) -> str:
    """The name of an index, as it can be stored."""
    if not isinstance(name, str) or not name:
        raise OptionError(f"name: expected the name of the index, found {name!r}")
    with refuse_half_characters("name of the index"):
        name.encode()
    return name


def _uuid(entry: table_pb2.IndexMetadata) -> UUID:
    return UUID(bytes=entry.uuid.uuid)


def _free_name(manifest: Manifest, column: str, kind: IndexKind) -> str:
    """``column_idx``, or with a number, if an index of another kind or column has that name."""
    fields = [manifest.schema.find(column)[-1].id]
    for suffix in ("", *(f"_{number}" for number in range(2, len(manifest.indices) + 2))):
        before = _entries(manifest, f"{column}_idx{suffix}")
        kinds = {known.name for known in map(kind_of, before) if known is not None}
        if kinds <= {kind.name} and all(list(entry.fields) == fields for entry in before):
            break
    return f"{column}_idx{suffix}"


def _stored_name(manifest: Manifest, column: str) -> str:
    """A path as the schema spells it, if it is not there as it is given."""
    schema = manifest.schema
    field = None if schema.field(column) else schema.field_case_insensitive(column)
    return column if field is None else path_of(manifest, field.id())


def _one_column(column: object) -> str:
    if isinstance(column, list | tuple) and len(column) == 1:
        column = column[0]
    if isinstance(column, list | tuple) and len(column) > 1:
        raise IndexKindError(
            "Scalar indices currently only support a single column, as vector indices do; found "
            f"{column!r:.100}. Make one index per column"
        )
    if not isinstance(column, str):
        raise OptionError(f"column: expected the path of one column, found {column!r}")
    return column
