"""Create an index: build its segments, commit them in one version.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.validation import refuse_half_characters
from glaive.dataclass import dataclass
from glaive.dataset.indexing.describe import uuid_of
from glaive.dataset.indexing.task import (
    IndexProgress,
    IndexTask,
    build_segment,
    checked_recall,
    merge_segments,
    path_of,
    reporting,
    source_of,
    with_sizes,
)
from glaive.dataset.lance_operation import Index
from glaive.dataset.tasks import LOCAL, FragmentRange, Job, commit_operation, cut_evenly, opened_at
from glaive.dataset.version import warn_deprecated
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
from glaive.index.protocol import IndexKind, index_kinds, kind_by_name, kind_of
from glaive.index.segment import STAGING, Segment, SegmentWriter
from glaive.index.vector.parameters import (
    VectorParameters,
    default_parts,
    model_bounds,
    model_centroids,
    model_codebook,
    model_sample,
    parse_parameters,
)
from glaive.table.index_coverage import covered_fragments, with_covered
from glaive.table.load import open_latest
from glaive.table.operations.create_index import CreateIndex, rebase_segments

if TYPE_CHECKING:
    from glaive.dataset.indexing.task import ColumnSource
    from glaive.dataset.tasks import TaskRunner
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Input for an index to be built: kind, name and parameters, checked -----------------
# Specification: "Building" in ``docs/format/indices.md``.

_ALIASES = {"fts": "inverted", "scalar": "btree"}


class IndexFileVersion(StrEnum):
    """Formats of the files of a vector index: ``index_file_version`` of ``create_index``."""

    LEGACY = "Legacy"
    V3 = "V3"


@dataclass
class IndexConfig:
    """A kind of index with parameters of its own.

    Parameters
    ----------
    index_type
        Name of the kind, such as ``"btree"``, ``"zonemap"`` or ``"json"``.
    parameters
        Parameters by name, such as ``{"rows_per_zone": 1000}``.
    """

    index_type: str
    parameters: dict[str, Any] = field(default_factory=dict)


class SupportedDistributedIndices(StrEnum):
    """Kinds that pylance lists for builds by several workers. glaive can build all kinds so."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"
    IVF_PQ = "IVF_PQ"
    IVF_SQ = "IVF_SQ"
    VECTOR = "VECTOR"


def kind_named(
    index_type: object, parameters: Mapping[str, Any]
) -> tuple[IndexKind, dict[str, Any]]:
    """Return the kind of index with a name, and its parameters.

    All vector indices are one kind; the parameter ``index_type`` says which.

    Raises
    ------
    OptionError
        The kind is unknown; the message lists all kinds.
    """
    given = dict(parameters)
    config: Any = index_type
    if hasattr(config, "parameters") and hasattr(config, "index_type"):  # pylance's as well
        given = {**config.parameters, **given}
        index_type = config.index_type
    if not isinstance(index_type, str):
        raise OptionError(f"index_type must be str or IndexConfig, found {index_type!r}")
    name = index_type.lower().replace("_", "")
    name = _ALIASES.get(name, name)
    if name.startswith(("ivf", "hnsw")):
        name, given["index_type"] = "vector", index_type.upper()
    kind = kind_by_name(name)
    if kind is None:
        names = (known.upper() for known in index_kinds() if known != "vector")
        expected = ", ".join(sorted(names))
        raise IndexKindError(
            f"index_type: Only {expected} are supported for scalar columns, and IVF_FLAT, IVF_SQ, "
            "IVF_PQ, IVF_RQ, IVF_HNSW_FLAT, IVF_HNSW_SQ and IVF_HNSW_PQ index types supported for "
            f"vectors. Got {index_type}"
        )
    return kind, given


# --- The model that all segments of a vector index share, trained before they are built -
# It equals the model that a single process would train, from the same sample with the same random
# choices. A codebook for more than 256 partitions has another sample, of equal size. glaive trains
# centroids here, as there are usually few. The parts of a codebook are independent: tasks train
# them.
#
# Specification: "Training" in ``docs/format/vector-indices.md``.

_TRAINING_ONLY = ("ivf_centroids_file", "num_partitions", "accelerator")
"""Parameters that only training uses."""


@dataclass(frozen=True, slots=True)
class CodebookTask:
    """Train some parts of a codebook; can be pickled.

    Each task reads the sample of the column itself: that costs less than to send the sample.

    Parameters
    ----------
    start, stop
        Number of the first part, and the number after the last.
    """

    start: int
    stop: int

    def execute(self, dataset: OpenDataset, shared: IndexTask) -> NDArray[Any] | None:
        """Return these parts of the codebook; None if vectors to train on are missing.

        ``shared`` builds the whole index, and has centroids.

        Raises
        ------
        VersionNotFoundError
            The version of ``shared`` was cleaned up.
        """
        source, parameters = _parsed(opened_at(dataset, shared.read_version), shared)
        sample = model_sample(source, parameters)
        if not len(sample):
            return None
        centroids: Any = parameters.centroids
        return model_codebook(parameters, centroids, sample, range(self.start, self.stop))


def with_shared_model(
    opened: OpenedVersion, task: IndexTask, runner: TaskRunner, segments: int
) -> IndexTask:
    """Return the task of a vector index with centroids and, if its codes need one, a codebook.

    The result lacks centroids where training first is impossible or useless. Then
    build the index as one segment.

    Parameters
    ----------
    task
        The task of a build by one process.
    runner
        Trains the codebook.
    segments
        Number of segments of the index.

    Raises
    ------
    OptionError
        A parameter is wrong.
    """
    task = _complete(opened, task)
    source, parameters = _parsed(opened, task)
    needs_codebook = parameters.codes == "PQ" and parameters.codebook is None
    if not parameters.train or (segments < 2 and not (needs_codebook and runner.parallelism > 1)):
        return task
    trained: dict[str, Any] = {"ivf_centroids": parameters.centroids}
    if parameters.centroids is None or parameters.codes == "SQ":
        sample = model_sample(source, parameters)
        if not len(sample):
            return task
        trained["ivf_centroids"], _ = model_centroids(parameters, sample, source.num_rows)
        if parameters.codes == "SQ":
            trained["sq_bounds"] = model_bounds(parameters, sample)
    task = _with_trained(task, **trained)
    return _with_codebook(opened, task, runner, parameters) if needs_codebook else task


def _with_codebook(
    opened: OpenedVersion, task: IndexTask, runner: TaskRunner, parameters: VectorParameters
) -> IndexTask:
    parts = parameters.num_sub_vectors
    count = min(parts, runner.parallelism)
    bounds = [parts * at // count for at in range(count + 1)]
    trained: list[Any] = runner.run(opened, [CodebookTask(a, b) for a, b in pairwise(bounds)], task)
    if any(part is None for part in trained):
        return task
    return _with_trained(task, pq_codebook=np.concatenate(trained))


def _complete(opened: OpenedVersion, task: IndexTask) -> IndexTask:
    """Return the task with parameters that follow from a recall, and with default codes."""
    source, _ = source_of(opened, task, None)
    parameters = dict(task.parameters)
    if "recall" in parameters:
        recall = checked_recall(parameters)
        if recall is not None:
            made = with_sizes(parameters, recall, source.num_rows, source.field)
            parameters = {**made, "recall": recall}
    is_product = str(parameters.get("index_type")).upper().endswith("PQ")
    if is_product and parameters.get("num_sub_vectors") is None:
        kind: Any = source.field.type
        vectors = kind.value_type if pa.types.is_list(kind) else kind  # several in a row
        if pa.types.is_fixed_size_list(vectors):
            parameters["num_sub_vectors"] = default_parts(vectors.list_size)
    return replace(task, parameters=parameters)


def _parsed(opened: OpenedVersion, task: IndexTask) -> tuple[ColumnSource, VectorParameters]:
    source, parameters = source_of(opened, task, None)
    parameters.pop("recall", None)  # for segments, when they are built
    return source, parse_parameters(parameters, source.field)


def _with_trained(task: IndexTask, **trained: object) -> IndexTask:
    kept = {name: value for name, value in task.parameters.items() if name not in _TRAINING_ONLY}
    return replace(task, parameters={**kept, **trained})


# --- An index over all rows, built as several segments: tasks for ranges of fragments ---


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Build the segment of some fragments; can be pickled."""

    fragments: FragmentRange

    def execute(self, dataset: OpenDataset, shared: IndexTask) -> Index:
        """Write the segment for a later commit; ``shared`` is the task for all fragments."""
        ids = self.fragments.ids(self.fragments.opened(dataset))
        return replace(shared, fragment_ids=ids).execute(dataset)


def build_segments(
    opened: OpenedVersion, runner: TaskRunner, task: IndexTask, segments: int | None = None
) -> list[Index]:
    """Write the segments of an index over all fragments, in tasks, for a later commit.

    Parameters
    ----------
    task
        The task of a build by one process.
    segments
        Maximum number of segments; default: the number of tasks that run at a time.

    Raises
    ------
    OptionError
        A parameter of the index is wrong.
    """
    manifest = opened.manifest
    cuts = cut_evenly(manifest.physical_rows, segments or runner.parallelism)
    if task.kind == "vector":
        task = with_shared_model(opened, task, runner, len(cuts) - 1)
    if len(cuts) < 2 or (task.kind == "vector" and "ivf_centroids" not in task.parameters):
        cuts = [0, manifest.num_fragments]
    return runner.run(opened, segment_tasks(manifest, cuts), task)


def segment_tasks(manifest: Manifest, cuts: Sequence[int]) -> list[SegmentTask]:
    """Return a task for the fragments between each two cuts, as :func:`cut_evenly` makes them."""
    ranges = [FragmentRange(manifest.version, start, stop) for start, stop in pairwise(cuts)]
    return list(map(SegmentTask, ranges))


# --- Segments that workers write under a given id, before the commit --------------------
# Specification: "Building" in ``docs/format/indices.md``.

_TEXTS: Final = "inverted"

ProgressCallback: TypeAlias = Callable[[IndexProgress], object]


def write_part(dataset: OpenedVersion, task: IndexTask, progress: ProgressCallback | None) -> None:
    """Write the segment of a task; for a full-text index, a part of the segment.

    Raises
    ------
    OptionError
        A segment with this id exists. You may write a part again.
    """
    positions = dataset.snapshot.positions_of(task.fragment_ids)
    total = int(dataset.snapshot.live_counts[list(positions)].sum())
    with reporting(progress, "load_data", total) as count_rows:
        if task.kind != _TEXTS:
            build_segment(dataset, task, count_rows)
            return
        from glaive.index.text.inverted import build_part

        source, parameters = source_of(dataset, task, count_rows)
        out = SegmentWriter.of(dataset.store, dataset.manifest, UUID(task.uuid), part=True)
        try:
            build_part(source, parameters, out)
            out.finish()
        except BaseException:
            out.abort(finished=False)  # another attempt may have finished
            raise


def merge_parts(
    dataset: OpenedVersion, uuid: object, index_type: object, progress: ProgressCallback | None
) -> None:
    """Merge the parts under an id into one segment; remove the parts.

    Raises
    ------
    OptionError
        Parts are missing, or the kind lacks parts. Or an index has this id: its files would be
        replaced.
    UnsupportedFeatureError
        The parts were built with different parameters.
    """
    kind, _ = kind_named(index_type, {})
    if kind.name != _TEXTS:
        raise OptionError(
            f"index_type: {index_type!r} has no parts. Build segments with "
            "create_index_uncommitted, merge them with merge_existing_index_segments, and commit "
            "them with commit_existing_index_segments"
        )
    chosen = uuid_of("index_uuid", uuid)
    for index in open_latest(dataset.store).indices:  # this version may be older
        if index.uuid.uuid == chosen.bytes:
            raise OptionError(
                f"index_uuid: {chosen} is the index {index.name!r} already. Build the parts under "
                "another id"
            )
    with reporting(progress, "merge_metadata", 0):
        _merge(dataset, chosen)


def finish_parts(dataset: OpenedVersion, entry: table_pb2.IndexMetadata) -> table_pb2.IndexMetadata:
    """Return a segment with its parts merged, if any; :func:`merge_parts` lists the errors."""
    if not any(file.path.startswith(f"{STAGING}/") for file in entry.files):
        return entry
    from glaive.index.text.text_format import METADATA

    finished = table_pb2.IndexMetadata()
    finished.CopyFrom(entry)
    del finished.files[:]
    segment = Segment(dataset.store, finished)
    if segment.has(METADATA):  # an earlier commit of the segment conflicted
        for name, size in segment.sizes().items():
            if "/" not in name:
                finished.files.add(path=name, size_bytes=size)
    else:
        finished.files.extend(_merge(dataset, UUID(bytes=entry.uuid.uuid)))
    return finished


def _merge(dataset: OpenedVersion, chosen: UUID) -> list[table_pb2.IndexFile]:
    from glaive.index.text.inverted import StagedSegment
    from glaive.index.text.inverted import merge_parts as merge

    entry = table_pb2.IndexMetadata(name=str(chosen))
    entry.uuid.uuid = chosen.bytes
    out = SegmentWriter.of(dataset.store, dataset.manifest, chosen)
    try:
        merged = merge(StagedSegment(dataset.store, entry), out)
        files = out.finish()
    except BaseException:
        out.abort(finished=False)  # another process may have merged and removed the parts
        raise
    dataset.store.discard(merged, own=False)
    return list(files)


def index_task(
    dataset: OpenedVersion,
    column: str,
    index_type: object,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    fragment_ids: Iterable[int] | None = None,
    index_uuid: object = None,
) -> IndexTask:
    """Describe an index to be built, checked against the version.

    Parameters
    ----------
    column
        Name or path of a column.
    index_type
        Name of a kind, or a value that pylance accepts for one.
    name
        Name of the index; default: ``column_idx``, with a number if another index has that name.
    parameters
        Parameters of the kind, as given by users.
    fragment_ids
        The fragments to index; default: all.
    index_uuid
        Id of the segment; default: random.

    Raises
    ------
    ColumnNotFoundError
        The column is unknown; the message names similar columns.
    OptionError
        The kind, a fragment or the id of the segment is invalid.
    UnsupportedFeatureError
        The column is dictionary-encoded, which the kind refuses.
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
"""Arguments of ``create_index`` that are parameters of kinds; glaive ignores all others."""


def vector_task(dataset: OpenedVersion, arguments: Mapping[str, Any]) -> IndexTask:
    """Describe an index of a kind that may be a vector index, which has a metric.

    Parameters
    ----------
    arguments
        Arguments of ``LanceDataset.create_index`` by name.
    """
    if arguments.get("index_cache_size") is not None:
        # Stack: create_index, and its caller.
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
        from glaive.dataset.indexing.vector_models import computed_partitions

        uri = checked.pop("precomputed_partition_dataset")
        checked["precomputed_partitions"] = computed_partitions(uri)
    return replace(task, parameters=checked)


def text_parameters(
    parameters: Mapping[str, Any], format_version: object, granularity: object
) -> dict[str, Any]:
    """Add the parameters that only full-text indices have, if they are given."""
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
    """Build an index and commit it. If the task has fragments and an id, only build it.

    Parameters
    ----------
    replaces
        Remove an index of this name; otherwise an existing name is an error.
    train
        With ``False`` build an empty index, which ``optimize_indices`` fills.

    Raises
    ------
    OptionError
        The index exists, or a parameter is wrong.
    CommitConflictError
        Another writer rewrote the fragments meanwhile.
    """
    before = _replaced(dataset.manifest, task, replaces=replaces)
    if task.fragment_ids is not None and task.uuid is not None:
        write_part(dataset, task, progress)
        return dataset.manifest
    if not train:
        task = replace(task, fragment_ids=())
    entry = _build_with_progress(dataset, task, progress)
    return commit_operation(dataset, CreateIndex.of(dataset.manifest.schema, (entry,), before))


def create_segment(
    dataset: OpenedVersion, task: IndexTask, *, replaces: bool, train: bool
) -> Index:
    """Write one segment for a later commit."""
    _replaced(dataset.manifest, task, replaces=replaces)
    if task.fragment_ids is not None and "ivf_centroids" in task.parameters:
        # The segment may be merged with others: pylance merges codes that are stored row by row.
        task = replace(task, parameters={**task.parameters, "skip_transpose": True})
    if not train:
        task = replace(task, fragment_ids=())
    return Index.from_wire(_build_with_progress(dataset, task, None))


def merge_existing(dataset: OpenedVersion, segments: Sequence[Index]) -> Index:
    """Write one segment with the rows of others, which stay until the commit.

    Raises
    ------
    OptionError
        The list is empty, segments are of several indices, or two cover one fragment.
    UnsupportedFeatureError
        The kind cannot merge segments, or each segment has its own model.
    CommitConflictError
        Another writer rewrote their fragments after they were built.
    """
    entries = _given_parameters(dataset, segments)
    kinds = {(entry.index_details.type_url, tuple(entry.fields)) for entry in entries}
    if len(kinds) != 1:
        raise OptionError("segments: expected segments of one kind, over one column")
    brought = rebase_segments(dataset.store, dataset.manifest, entries)
    _covered_fragments(brought)
    return Index.from_wire(merge_segments(dataset, brought))


def _covered_fragments(entries: Iterable[table_pb2.IndexMetadata]) -> set[int]:
    """Return the covered fragments; raise if two segments cover one, as it would be searched
    twice.
    """
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

    Segments of an index of this name stay if they cover other fragments. They are replaced if the
    new segments cover all their fragments. ``counts`` are recorded for the job.

    Raises
    ------
    OptionError
        Two segments cover one fragment, a segment indexes another column, or an indexed fragment
        would lose its index.
    CommitConflictError
        Another writer rewrote the fragments after the segments were built.
    """
    column, name = _one_column(column), _checked_name(name)
    field_id = dataset.manifest.schema.find(column)[-1].id
    entries = []
    given = _given_parameters(dataset, segments)
    for entry in given:
        if list(entry.fields) != [field_id]:
            raise OptionError(f"segments: {_uuid(entry)} is not over column {column!r}")
    brought = rebase_segments(dataset.store, dataset.manifest, given)
    covered = _covered_fragments(brought)
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
    """Return the segments of the index of this name; raise if they index another column."""
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


def _build_with_progress(
    dataset: OpenedVersion, task: IndexTask, callback: ProgressCallback | None
) -> table_pb2.IndexMetadata:
    ids = task.fragment_ids
    positions = dataset.snapshot.positions_of(ids)
    total = int(dataset.snapshot.live_counts[list(positions)].sum())
    with reporting(callback, "load_data", total) as count_rows:
        return build_segment(dataset, task, count_rows)


def _entries(manifest: Manifest, name: str) -> tuple[table_pb2.IndexMetadata, ...]:
    return tuple(entry for entry in manifest.indices if entry.name == name)


def _given_parameters(
    dataset: OpenedVersion, segments: Sequence[Index]
) -> list[table_pb2.IndexMetadata]:
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
    """Check that the name of an index can be stored; return it."""
    if not isinstance(name, str) or not name:
        raise OptionError(f"name: expected the name of the index, found {name!r}")
    with refuse_half_characters("name of the index"):
        name.encode()
    return name


def _uuid(entry: table_pb2.IndexMetadata) -> UUID:
    return UUID(bytes=entry.uuid.uuid)


def _free_name(manifest: Manifest, column: str, kind: IndexKind) -> str:
    """Return ``column_idx``, with a number if an index of another kind or column has that name."""
    fields = [manifest.schema.find(column)[-1].id]
    for suffix in ("", *(f"_{number}" for number in range(2, len(manifest.indices) + 2))):
        before = _entries(manifest, f"{column}_idx{suffix}")
        kinds = {known.name for known in map(kind_of, before) if known is not None}
        if kinds <= {kind.name} and all(list(entry.fields) == fields for entry in before):
            break
    return f"{column}_idx{suffix}"


def _stored_name(manifest: Manifest, column: str) -> str:
    """Return a path as the schema spells it, if it exists only in other case."""
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
