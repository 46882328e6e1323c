"""Maintenance of a table: compaction, clustering, indices, clean-up, versions, branches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack, overload
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import decode_dictionary, one_array, take_rows
from glaive.dataclass import dataclass
from glaive.dataset.cleanup import CleanupTasks, age_of, clean_up, planned_cleanup
from glaive.dataset.compact import commit_rewrites, compact, compaction_groups, rewrite_groups
from glaive.dataset.compaction_tasks import CompactionMetrics, CompactionOptions, RewriteResult
from glaive.dataset.indexing.create import build_segments, commit_segments, vector_task
from glaive.dataset.keywords import ScalarKeywords, TableIndexKeywords, VectorKeywords
from glaive.dataset.maintenance import MaintenanceKeywords, MaintenanceOptions, maintain
from glaive.dataset.refs import publish_branch
from glaive.dataset.rows import MatchingFragments
from glaive.dataset.scanner import Scanner
from glaive.dataset.stats import sample_positions
from glaive.dataset.tasks import Job, cut_evenly, opened_at
from glaive.dataset.version import refuse_unknown, version_as_of
from glaive.dataset.writing.fragments import FragmentWriter
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.errors import IndexExistsError, OptionError
from glaive.format.fragment import Fragment, FragmentList, unpacked_fragments
from glaive.format.manifest import Feature
from glaive.format.rowids import encode_row_ids, encode_versions, version_runs
from glaive.options import integer, one_of, shows
from glaive.scan.options import REWRITE_BLOBS, ScanOptions
from glaive.scan.projection import CREATED_AT, ROW_ID, UPDATED_AT
from glaive.scan.take import find_rows, take_physical
from glaive.scan.views import Views
from glaive.spark.api import TableHandle, located
from glaive.spark.failures import naming_job
from glaive.spark.runner import EARLIER_COMMITS, RowTask, SparkJob, SparkRunner, parts_for
from glaive.spark.versions import partitioned_by_id
from glaive.spark.writer import ENGINE
from glaive.table.cleanup import CleanupPolicy
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.indexing.task import IndexTask
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest


# --- Plan the clustering of a table, run its tasks, and commit --------------------------

# --- Orders of rows by one or several columns: ranges, the Z-order curve and the Hilbert curve
# Values become ranks in a sample, so that columns of any distribution weigh the same. Ranks become
# one number per row. Rows with close numbers have similar values in all columns.

CurveKind = Literal["hilbert", "zorder"]

UInt64s = NDArray[np.uint64]

_MAX_BITS: Final = 16
"""Maximum bits of a rank."""

_CURVE_BITS: Final = 63
"""Maximum bits of a number along the curve."""

_PREFIX_BYTES: Final = 8
"""Number of bytes at the start of a string that determine its rank."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The order of rows by some columns; can be pickled.

    Parameters
    ----------
    columns
        Names of the columns.
    kind
        The curve for several columns.
    bounds
        For each column, ordinals of a sample at equal distances; ascending.
    """

    columns: tuple[str, ...]
    kind: CurveKind
    bounds: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(cls, sample: pa.Table, kind: CurveKind) -> Self:
        """Fit the curve to a sample of the columns.

        Raises
        ------
        OptionError
            The type of a column lacks an order.
        """
        names = tuple(sample.column_names)
        steps = 2 ** min(_MAX_BITS, _CURVE_BITS // len(names)) - 1
        bounds = []
        for name in names:
            numbers = ordinals(one_array(sample.column(name)), name)
            known = np.sort(numbers[~np.isnan(numbers)])
            if len(known) > steps:
                known = known[np.linspace(0, len(known) - 1, steps).astype(np.int64)]
            bounds.append(known)
        return cls(names, kind, tuple(bounds))

    def numbers(self, rows: pa.RecordBatch | pa.Table) -> UInt64s:
        """Return the number of each row along the curve; nulls come first."""
        ranks: list[UInt64s] = []
        bits = min(_MAX_BITS, _CURVE_BITS // len(self.columns))
        for name, bounds in zip(self.columns, self.bounds, strict=True):
            column: Any = rows.column(name)
            array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
            values = ordinals(array, name)
            rank: Any = np.searchsorted(bounds, values, side="right")
            rank[np.isnan(values)] = 0
            # Columns with few values weigh as much as others.
            ranks.append((rank * (2**bits - 1) // max(1, len(bounds))).astype(np.uint64))
        if len(ranks) == 1:
            return ranks[0]
        made = hilbert_numbers if self.kind == "hilbert" else z_order_numbers
        return made(ranks, bits)


def ordinals(values: Any, name: str) -> NDArray[np.float64]:
    """Return numbers in the order of the values; NaN for null. Strings count by their first bytes.

    Parameters
    ----------
    values
        Shape ``(n,)``; numbers, booleans, decimals, dates, times, strings or binary.

    Raises
    ------
    OptionError
        The type lacks an order.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        values, kind = values.storage, values.storage.type
    if pa.types.is_dictionary(kind):
        values = decode_dictionary(values)
        kind = values.type
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        values = values.cast(pa.large_string()).cast(pa.large_binary())
        kind = values.type
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _prefix_ordinals(values)
    if types.is_temporal(kind) and not types.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        values = values.view(width)
    elif types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise OptionError(f"column {name!r}: rows cannot be clustered by values of type {kind}")
    numbers: Any = pc.cast(values, pa.float64(), safe=False)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _prefix_ordinals(values: Any) -> NDArray[np.float64]:
    """Return numbers made of the first bytes, as big-endian numbers."""
    sliced: Any = pc.binary_slice(values.cast(pa.large_binary()), 0, _PREFIX_BYTES)
    padded = pc.fill_null(sliced, b"").to_numpy(zero_copy_only=False).astype(f"S{_PREFIX_BYTES}")
    numbers: NDArray[np.float64] = padded.view(">u8").astype(np.float64)
    numbers[np.asarray(values.is_null().to_numpy(zero_copy_only=False))] = np.nan
    return numbers


def z_order_numbers(ranks: Sequence[UInt64s], bits: int) -> UInt64s:
    """Interleave the bits of ranks.

    Parameters
    ----------
    ranks
        One array for each column, of values below ``2 ** bits``.
    """
    numbers = np.zeros(len(ranks[0]), np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            numbers = (numbers << one) | ((rank >> np.uint64(bit)) & one)
    return numbers


def hilbert_numbers(ranks: Sequence[UInt64s], bits: int) -> UInt64s:
    """Return numbers along the Hilbert curve. Neighbours differ by one step in one column.

    :func:`z_order_numbers` explains the parameters.
    """
    axes = [rank.copy() for rank in ranks]
    for bit in range(bits - 1, 0, -1):
        mask, low = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for at in range(len(axes)):
            is_set = (axes[at] & mask) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axes[at]) & low)
            axes[0] ^= np.where(is_set, low, swapped)
            if at:
                axes[at] ^= swapped
    for at in range(1, len(axes)):
        axes[at] ^= axes[at - 1]
    flips = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        is_set = (axes[-1] & np.uint64(1 << bit)) != 0
        flips ^= np.where(is_set, np.uint64((1 << bit) - 1), np.uint64(0))
    return z_order_numbers([axis ^ flips for axis in axes], bits)


# --- Tasks that cluster rows: one reads fragments and cuts them into parts, one writes a part
# Spark shuffles the rows between these tasks, as Arrow streams in binary columns with exactly their
# types. It sends them by the number of their part.

PARTS: Final[dict[str, pa.DataType]] = {"part": pa.int32(), "rows": pa.binary()}
"""Columns between the tasks: the number of the part, and an Arrow stream."""

PARTS_DDL: Final = "part int, rows binary"

_NUMBER: Final = "__glaive_number"
"""The last column while rows are shuffled; a column of the dataset may have this name as well."""

_LINEAGE: Final = (ROW_ID, CREATED_AT, UPDATED_AT)
_MAX_HELD_BYTES: Final = 128 << 20
"""Bytes of rows that a task holds before it sends them on."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """The positions that cut rows into parts.

    Parameters
    ----------
    curve
        The order of rows.
    numbers
        Numbers along the curve at which parts begin, ascending.
    """

    curve: Curve
    numbers: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CutRows:
    """Read fragments, and cut their rows into parts.

    Parameters
    ----------
    fragment_ids
        The fragments.
    """

    read_version: int
    fragment_ids: tuple[int, ...]

    def rows(self, dataset: LanceDataset, shared: Cuts) -> Iterator[pa.RecordBatch]:
        """Yield parts of rows, as :data:`PARTS`."""
        opened = opened_at(dataset, self.read_version)
        stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
        columns = [*opened.manifest.schema.names, *(_LINEAGE if stable else ())]
        reading = ScanOptions.of(columns=columns, fragments=self.fragment_ids, use_cache=False)
        reading = replace(reading, blob_handling=REWRITE_BLOBS)
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in Scanner(Views(opened.snapshot), reading).to_batches():
            numbers = pa.array(shared.curve.numbers(batch))
            held.append(batch.append_column(_NUMBER, numbers))
            size += batch.nbytes
            if size >= _MAX_HELD_BYTES:
                yield from _parts(held, shared.numbers)
                held, size = [], 0
        if held:
            yield from _parts(held, shared.numbers)


def _parts(held: list[pa.RecordBatch], cuts: NDArray[np.uint64]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each part, as :data:`PARTS`."""
    table = pa.Table.from_batches(held)
    numbers = table.column(table.num_columns - 1).to_numpy()
    parts = np.searchsorted(cuts, numbers, side="right")
    order = np.argsort(parts, kind="stable")
    starts = np.flatnonzero(np.diff(parts[order], prepend=-1))
    stops = [*starts[1:].tolist(), len(order)]
    for start, stop in zip(starts.tolist(), stops, strict=True):
        rows = take_rows(table, order[start:stop], distinct=True)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        number = int(parts[order[start]])
        yield pa.record_batch([[number], [sink.getvalue().to_pybytes()]], schema=pa.schema(PARTS))


@dataclass(frozen=True)
class WritePart(RowTask):
    """Write the rows of one part, sorted. Memory: these rows, twice.

    Parameters
    ----------
    max_rows
        Maximum rows of a new fragment.
    """

    read_version: int
    curve: Curve
    max_rows: int

    def execute(
        self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]
    ) -> tuple[int, FragmentList]:
        """Return the number of the part, and its new fragments, uncommitted."""
        opened = opened_at(dataset, self.read_version)
        part, tables = -1, []
        for batch in rows:
            for number, stream in zip(*batch.to_pydict().values(), strict=True):
                part = number
                tables.append(pa.ipc.open_stream(stream).read_all())
        if not tables:
            return part, FragmentList()
        table = self._sorted(pa.concat_tables(tables))
        manifest = opened.manifest
        options = WriteOptions(
            mode="append", max_rows_per_file=self.max_rows, compression="balanced"
        )
        plan = plan_write(opened.store, manifest.schema, options, manifest, enforce=False)
        writer = FragmentWriter(plan)
        try:
            writer.write(table.select(manifest.schema.names))
            new = [fragment for fragment in writer.finish() if fragment.physical_rows]
        except BaseException:
            writer.discard()
            raise
        if manifest.uses(Feature.STABLE_ROW_IDS):
            new = _with_lineage(new, table)
        return part, FragmentList.of(new)

    def _sorted(self, numbered: pa.Table) -> pa.Table:
        """Return the rows in order; drop their numbers."""
        last = numbered.num_columns - 1
        table: Any = numbered.remove_column(last)
        if len(self.curve.columns) == 1 and _is_sortable(table.column(self.curve.columns[0])):
            column = table.column(self.curve.columns[0])
            order: Any = pc.array_sort_indices(column, null_placement="at_start")
            positions = order.to_numpy().astype(np.int64)
        else:
            positions = np.argsort(numbered.column(last).to_numpy(), kind="stable")
        return take_rows(table, positions, distinct=True)


def _is_sortable(column: Any) -> bool:
    kind = column.type
    return not isinstance(kind, pa.BaseExtensionType) and not pa.types.is_dictionary(kind)


def _with_lineage(new: list[Fragment], table: pa.Table) -> list[Fragment]:
    """Return the fragments with the ids and versions of their rows."""
    ids, created, updated = (table.column(name).to_numpy() for name in _LINEAGE)
    numbered, start = [], 0
    for fragment in new:
        stop = start + fragment.physical_rows
        numbered.append(
            replace(
                fragment,
                row_ids=encode_row_ids(ids[start:stop]),
                created_at=encode_versions(list(version_runs(created[start:stop]))),
                updated_at=encode_versions(list(version_runs(updated[start:stop]))),
            )
        )
        start = stop
    return numbered


_SAMPLE_ROWS = 1 << 16
"""Number of sampled rows that determine where parts begin."""


def cluster_rows(
    opened: OpenedVersion,
    columns: Sequence[str],
    kind: CurveKind,
    max_rows: int,
    positions: Int64s,
    job: Job,
) -> tuple[Manifest, None]:
    """Commit all rows of some fragments in the order of columns.

    Parameters
    ----------
    positions
        Positions of the fragments, ascending.
    """
    manifest = opened.manifest
    for name in columns:
        manifest.schema.find(name)
    if not columns or any("." in name for name in columns):
        raise OptionError(f"columns: expected names of top-level columns, found {list(columns)}")
    if not len(positions):
        return manifest, None
    # Sample the same rows for the same version, so that a rerun of the job makes the same parts.
    rows = opened.snapshot.num_rows
    chosen = sample_positions(rows, min(rows, _SAMPLE_ROWS), randomize_order=False, seed=rows)
    found = find_rows(opened.snapshot, "indices", chosen)
    view = opened.views.take(tuple(columns))
    sample = take_physical(view, found.fragment, found.row)
    curve = Curve.of(sample, kind)
    runner: Any = job.runner  # runs tasks in a Spark session
    sizes = manifest.physical_rows[positions]
    share = int(sizes.sum()) / max(1, int(manifest.physical_rows.sum()))
    count = parts_for(int(opened.snapshot.file_bytes() * share), runner.parallelism)
    along = np.sort(curve.numbers(sample))
    cuts = along[len(along) * np.arange(1, count) // count] if len(along) else along
    bounds = cut_evenly(sizes, count)
    ids = manifest.fragment_ids[positions]
    version = manifest.version
    tasks = [CutRows(version, tuple(ids[a:b].tolist())) for a, b in pairwise(bounds)]
    shared = Cuts(curve, np.unique(cuts))
    cut = runner.rows_of(opened, tasks, PARTS_DDL, shared)
    moved = partitioned_by_id(cut, count, "part")
    results = runner.run_on_rows(opened, moved, WritePart(version, curve, max_rows))
    new = FragmentList.joined(part for _, part in sorted(results, key=itemgetter(0)))
    listed = manifest.complete_wire.fragments
    old = unpacked_fragments((listed[at] for at in positions.tolist()), manifest.where)
    metrics = CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=old.file_count,
        files_added=len(new),
    )
    result = RewriteResult(version, metrics, old, new)
    made, _ = commit_rewrites(opened, [result], job=job)
    return made, None


# --- ``table.optimize()``: compaction in tasks of the cluster ---------------------------


class OptimizeBuilder:
    """Collects what to compact; returned by ``LanceTable.optimize``."""

    def __init__(self, spark: SparkSession, dataset: LanceDataset) -> None:
        self._spark, self._dataset = spark, dataset
        self._where: str | None = None

    def where(self, condition: str) -> OptimizeBuilder:
        """Compact only fragments with a row that meets a condition in the filter language."""
        given: object = condition
        if not isinstance(given, str) or not given.strip():
            raise OptionError(f'where: expected a filter such as "day = 3", found {given!r}')
        self._where = condition
        return self

    def executeCompaction(self, *, job_id: str | None = None, **options: Any) -> dict[str, int]:
        """Merge small neighbouring fragments and remove deleted rows, in tasks of the cluster.

        Parameters
        ----------
        job_id
            Name of this job: a second run with the same name returns the result of the first.
        **options
            Options of :class:`glaive.dataset.compaction_tasks.CompactionOptions`, such as
            ``target_rows_per_fragment``. The table's configuration has the defaults.

        Returns
        -------
        dict
            ``fragments_removed``, ``fragments_added``, ``files_removed``, ``files_added``, and
            ``version``. The job makes a version only if there is something to compact.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        FilterError
            The condition is invalid.
        CommitConflictError, CommitContentionError
            Other writers changed the same fragments, at every attempt. The table is unchanged.

        Notes
        -----
        Rows bypass Spark: tasks read and write the files of the dataset.
        """
        job = SparkJob.of(self._spark, job_id)

        def rewriting(opened: OpenedVersion, checked: CompactionOptions) -> list[RewriteResult]:
            if self._where is not None:
                checked = _only_where(opened, self._where, job.commit, checked)
            groups = compaction_groups(opened, checked)
            return rewrite_groups(opened, groups, checked, job.runner)

        def change(opened: OpenedVersion, commit: Job) -> tuple[Manifest, None]:
            given = {"compression": "balanced"} | options
            checked = CompactionOptions.of(given, dict(opened.manifest.config))
            return compact(opened, checked, rewriting, commit)[0], None

        done = job.change(self._dataset, change, several_commits=True)
        return asdict(CompactionMetrics()) | done

    def executeClusterBy(
        self,
        *columns: str | Sequence[str],
        curve: CurveKind = "hilbert",
        target_rows_per_fragment: int = 1 << 20,
        job_id: str | None = None,
    ) -> dict[str, int]:
        """Write the rows again in the order of columns, so that filters on them skip most files.

        Parameters
        ----------
        columns
            Names of columns, one by one or as a list. One column sorts the rows. Several columns
            order the rows along a curve, where neighbours have similar values in all columns.
        curve
            The curve for several columns: ``hilbert`` or ``zorder``.
        target_rows_per_fragment
            Maximum number of rows of a new fragment; default: 1,048,576.
        job_id
            See :meth:`executeCompaction`.

        Returns
        -------
        dict
            See :meth:`executeCompaction`.

        Raises
        ------
        ColumnNotFoundError, OptionError
            A column is missing or lacks an order.
        CommitContentionError
            See :meth:`executeCompaction`.

        Notes
        -----
        Spark shuffles all columns once, as Arrow data with exactly their types. Rows keep stable
        row ids. If the table lacks stable row ids, run :meth:`LanceTable.optimizeIndices`
        afterwards: the indices have to cover the rows again. A task holds its part of the rows in
        memory: the rows of about 128 MiB of files.
        """
        one_of("hilbert", "zorder").check("curve", curve)
        integer(1).check("target_rows_per_fragment", target_rows_per_fragment)

        def cluster(opened: OpenedVersion, job: Job) -> tuple[Manifest, None]:
            ids = opened.manifest.fragment_ids
            wanted = ids if self._where is None else _matching(opened, self._where, job)
            positions = np.flatnonzero(np.isin(ids, wanted))
            return cluster_rows(opened, names, curve, target_rows_per_fragment, positions, job)

        names: list[str] = []
        for one in columns:
            names += [one] if isinstance(one, str) else one
        job = SparkJob.of(self._spark, job_id)
        return asdict(CompactionMetrics()) | job.change(self._dataset, cluster)

    def executeZOrderBy(
        self, *columns: str | Sequence[str], job_id: str | None = None
    ) -> dict[str, int]:
        """Call :meth:`executeClusterBy` with ``curve="zorder"``, under Delta's name."""
        return self.executeClusterBy(*columns, curve="zorder", job_id=job_id)


def _only_where(
    opened: OpenedVersion, condition: str, job: Job, options: CompactionOptions
) -> CompactionOptions:
    """Return options that also exclude the fragments whose rows all fail the condition."""
    without = np.setdiff1d(opened.manifest.fragment_ids, _matching(opened, condition, job))
    excluded = sorted({*without.tolist(), *options.excluded_fragment_ids})
    return replace(options, excluded_fragment_ids=tuple(excluded))


def _matching(opened: OpenedVersion, condition: str, job: Job) -> Int64s:
    """Return the ids of the fragments with a matching row."""
    tasks = [MatchingFragments(part, condition) for part in job.runner.parts(opened)]
    return np.fromiter(chain.from_iterable(job.runner.run(opened, tasks)), np.int64)


_DELETED_FILES: Final = "the files that it has deleted are those that no version needs"

_OTHER_FACTS: Final = ("failed_deletes", "warnings")


class TableMaintenance(TableHandle):
    """The methods of ``LanceTable`` that reduce its size, and name or undo versions."""

    def optimize(self) -> OptimizeBuilder:
        """Merge small files: ``table.optimize().executeCompaction()``.

        ``where(sql)`` limits compaction to fragments with matching rows.
        """
        return OptimizeBuilder(self._spark, self._latest())

    @overload
    def vacuum(
        self,
        retentionHours: float | None = None,
        dryRun: Literal[False] = False,
        *,
        delete_unverified: bool = False,
    ) -> dict[str, int]: ...

    @overload
    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: Literal[True],
        delete_unverified: bool = False,
    ) -> DataFrame: ...

    def vacuum(
        self,
        retentionHours: float | None = None,
        dryRun: bool = False,
        *,
        delete_unverified: bool = False,
    ) -> DataFrame | dict[str, int]:
        """Delete old versions, and the files that only they use.

        Parameters
        ----------
        retentionHours
            Minimum age of the versions to delete, in hours; default: two weeks. 0 keeps only what
            the newest version, tags and branches need.
        dryRun
            Only return a frame of all files that would be deleted.
        delete_unverified
            Also delete files younger than a week that no version has ever used, such as files of
            failed jobs. Use it only while nobody writes.

        Returns
        -------
        DataFrame or dict
            ``path``, ``kind``, ``size_in_bytes``, ``unverified``; or counts: ``bytes_removed``,
            ``old_versions``, ``data_files_removed``, …

        Raises
        ------
        OptionError
            The age is negative or too long.
        JobError
            The cluster lost processes of the job. It deleted only unneeded files.

        Notes
        -----
        Tasks read manifests, list folders and delete files. Before the files, this process deletes
        manifests. A single task, as for a table with few files and versions, runs in this process.
        This process holds the names of all files in memory.
        """
        age = None
        if retentionHours is not None:
            age = age_of("retentionHours", retentionHours, timedelta(hours=1))
        policy = CleanupPolicy(age, delete_unverified=delete_unverified, error_if_tagged=False)
        dataset = self._latest().opened
        work = CleanupTasks(dataset, SparkRunner(self._spark))
        with naming_job(str(uuid4()), dataset.uri, named=False, left=_DELETED_FILES):
            if dryRun:
                files = planned_cleanup(dataset, policy, work).files
                return self._described(files.table.select(range(4)))
            stats = clean_up(dataset, policy, None, work=work)
        return {name: value for name, value in asdict(stats).items() if name not in _OTHER_FACTS}

    @shows(MaintenanceKeywords, MaintenanceOptions, compression="balanced")
    def maintain(self, dryRun: bool = False, **options: Unpack[MaintenanceKeywords]) -> DataFrame:
        """Compact, update indices, delete old tags and versions, each only where it pays.

        Parameters
        ----------
        dryRun
            Only return the steps that pay. The table stays as it is.

        Returns
        -------
        DataFrame
            ``step``, ``reason`` and ``arguments`` (JSON) of each step that was run, in this order.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        CommitContentionError
            Others changed the same rows at every attempt. Earlier steps are done.
        JobError
            The cluster lost processes of the job. Earlier steps are done.
        """
        refuse_unknown("maintain", options, list(MaintenanceKeywords.__annotations__))
        options.setdefault("compression", "balanced")
        job = Job(runner=SparkRunner(self._spark), properties={ENGINE: "spark"})
        with naming_job(str(uuid4()), self._dataset.uri, named=False, made=EARLIER_COMMITS):
            steps = maintain(self._latest(), MaintenanceOptions(**options), dry_run=dryRun, job=job)
        rows = [asdict(step) | {"arguments": json.dumps(step.arguments)} for step in steps]
        schema = dict.fromkeys(("step", "reason", "arguments"), pa.string())
        return self._described(pa.Table.from_pylist(rows, pa.schema(schema)))

    def restoreToVersion(self, version: int) -> int:
        """Commit an older version as the newest one, and return its new number.

        Raises
        ------
        VersionNotFoundError
            The version is missing, or clean-up removed it.
        """
        dataset = self._latest().checkout_version(version)
        dataset.restore()
        return self._latest().version

    def restoreToTimestamp(self, timestamp: datetime | str) -> int:
        """Commit the version of a point in time as the newest one, and return its new number.

        Parameters
        ----------
        timestamp
            A ``datetime`` or a string in ISO format; local time unless it has a zone. The newest
            version before this time is used.

        Raises
        ------
        VersionNotFoundError
            All versions are younger.
        """
        return self.restoreToVersion(version_as_of(self._latest().store, timestamp))

    def createTag(self, name: str, version: int | None = None) -> None:
        """Name a version, by default the newest. Clean-up keeps tagged versions.

        Raises
        ------
        RefExistsError, VersionNotFoundError
            The tag exists, or the version is missing.
        """
        dataset = self._latest()
        dataset.tags.create(name, dataset.version if version is None else version)

    def deleteTag(self, name: str) -> None:
        """Remove a tag; the version stays until clean-up.

        Raises
        ------
        RefNotFoundError
            The tag is missing.
        """
        self._latest().tags.delete(name)

    def createBranch(self, name: str, version: int | None = None) -> Self:
        """Start a branch from a version, by default the newest, and return its table.

        Raises
        ------
        RefExistsError, VersionNotFoundError
            The branch exists, or the version is missing.
        """
        return type(self)(self._spark, self._latest().create_branch(name, version))

    def forBranch(self, name: str) -> Self:
        """Return the table on a branch.

        Raises
        ------
        RefNotFoundError
            The branch is missing.
        """
        branch = None if name == "main" else name
        return type(self)(self._spark, self._latest().checkout_version((branch, None)))

    def publish(
        self, branch: str, *, version: int | None = None, job_id: str | None = None
    ) -> dict[str, int]:
        """Commit the state of a branch as the next version of its parent branch.

        Parameters
        ----------
        branch
            Name of the branch. This table must be on its parent branch, usually the main branch.
        version
            The version of the branch to publish, such as a version that you reviewed; default: the
            newest. Later versions stay unpublished.
        job_id
            Name of this job: a second run with the same name returns the result of the first.

        Returns
        -------
        dict
            ``num_files_copied``, ``version``, and ``published_version`` of the branch. If all of
            the branch is already published, ``published_version`` is missing and the table keeps
            its version.

        Raises
        ------
        RefNotFoundError
            The branch is missing.
        OptionError
            The branch started from another branch.
        CommitConflictError
            The parent has versions that the branch lacks. Both are unchanged.

        Notes
        -----
        Tasks copy the files that the branch wrote, so you may delete the branch afterwards. Or
        continue to write to it: the next call copies and adds the new files.
        """
        job = SparkJob.of(self._spark, job_id)
        return {"num_files_copied": 0} | job.change(
            self._dataset, lambda at, commit: publish_branch(at, branch, commit, version=version)
        )

    def shallowClone(self, target: str | os.PathLike[str], version: int | None = None) -> Self:
        """Create a table that refers to the files of a version of this table, instead of a copy.

        Raises
        ------
        DatasetExistsError
            A dataset exists at the location.
        """
        dataset = self._latest().shallow_clone(located(target), version)
        return type(self)(self._spark, dataset)


# --- Indices of a table, built by tasks -------------------------------------------------


def build_index(
    opened: OpenedVersion, job: Job, task: IndexTask, *, replaces: bool, segments: int | None
) -> tuple[Manifest, None]:
    """Build and commit an index over all fragments; ``task`` is the task for one process."""
    manifest = opened.manifest
    if not replaces and any(entry.name == task.name for entry in manifest.indices):
        raise IndexExistsError(
            f"Index name {task.name!r} already exists: choose another name, or set replace=True"
        )
    if segments is not None:
        integer(1).check("segments", segments)
    built = build_segments(opened, job.runner, task, segments)
    counts = {"num_segments": len(built), "num_indexed_fragments": manifest.num_fragments}
    return commit_segments(opened, task.name, task.column, built, job=job, counts=counts), None


class TableIndices(TableHandle):
    """The methods of ``LanceTable`` for indices."""

    @shows(TableIndexKeywords, TableIndexKeywords, VectorKeywords, ScalarKeywords)
    def createIndex(
        self,
        column: str,
        kind: str,
        name: str | None = None,
        *,
        metric: str = "L2",
        replace: bool = True,
        segments: int | None = None,
        job_id: str | None = None,
        **parameters: Unpack[TableIndexKeywords],
    ) -> dict[str, int]:
        """Build an index in tasks of the cluster, and commit it as one version.

        Each task builds a segment.

        Parameters
        ----------
        column
            Path of the column.
        kind
            ``btree``, ``bitmap``, ``label_list``, ``ngram``, ``zonemap``, ``bloomfilter``,
            ``inverted``; or for vectors ``ivf_flat``, ``ivf_sq``, ``ivf_pq``, ``ivf_rq``,
            ``ivf_hnsw_flat``, ``ivf_hnsw_sq``, ``ivf_hnsw_pq``.
        name
            Name of the index; default: the path of the column with ``_idx``.
        metric
            Distance of vectors: ``L2``, ``cosine``, ``dot`` or ``hamming``.
        replace
            Replace an index of this name. Otherwise an existing index raises an error.
        segments
            Maximum number of tasks; default: as many as the cluster runs at a time. A search reads
            each segment.
        job_id
            Name of this job: a second run with the same name returns the result of the first.
        **parameters
            Parameters of the kind of index.

        Returns
        -------
        dict
            ``num_segments``, ``num_indexed_fragments`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, OptionError, UnsupportedFeatureError
            The column, the kind or a parameter is wrong.
        CommitContentionError
            Other writers rewrote fragments at every attempt. The table is unchanged.

        Notes
        -----
        All segments of a vector index share a model, trained with a sample of the column. This
        process trains the centroids. Tasks train the codebook of ``ivf_pq`` and ``ivf_hnsw_pq``.
        """
        arguments = {
            "column": column,
            "index_type": kind,
            "name": name,
            "metric": metric,
            "parameters": parameters,
            "fragment_ids": None,
            "index_uuid": None,
            "skip_transpose": None,
        }

        def build(opened: OpenedVersion, job: Job) -> tuple[Manifest, None]:
            task = vector_task(opened, arguments)
            return build_index(opened, job, task, replaces=replace, segments=segments)

        return SparkJob.of(self._spark, job_id).change(self._dataset, build)

    def optimizeIndices(
        self,
        names: Sequence[str] | None = None,
        *,
        retrain: bool = False,
        num_indices_to_merge: int | None = None,
        segments: int | None = None,
        job_id: str | None = None,
    ) -> int:
        """Index the rows that indices lack, in tasks of the cluster, and commit one version.

        Parameters
        ----------
        names
            Names of indices; default: all.
        retrain
            Build the indices again, from all rows.
        num_indices_to_merge
            Number of newest segments of each index to merge with the new rows; 0 adds segments. By
            default glaive merges segments of up to about the size of the new rows.
        segments
            Maximum number of segments that an index gets for unmerged new rows, or with ``retrain``
            for all rows. Default: one for about 65,536 new rows, up to the number of tasks that the
            cluster runs at a time. With ``retrain``, :meth:`createIndex` explains the default.
        job_id
            Name of this job: a second run with the same name returns the version of the first.

        Returns
        -------
        int
            The version that the job made, or the newest version if the indices were up to date.

        Raises
        ------
        IndexNotFoundError
            An index is missing.
        OptionError
            A number or the id is wrong.
        CommitContentionError
            Other writers rewrote fragments at every attempt. The table is unchanged.

        Notes
        -----
        Searches find the same rows as after ``dataset.optimize.optimize_indices``. The existing
        model of the index encodes new vectors. One task reads and writes the merged segments of an
        index.
        """
        from glaive.dataset.indexing.optimize import optimize_indices

        def change(opened: OpenedVersion, job: Job) -> tuple[Manifest, None]:
            made = optimize_indices(
                opened,
                num_indices_to_merge=num_indices_to_merge,
                index_names=names,
                retrain=retrain,
                segments=segments,
                job=job,
            )
            return opened.manifest if made is None else made, None

        return SparkJob.of(self._spark, job_id).change(self._dataset, change)["version"]

    def dropIndex(self, name: str) -> int:
        """Remove an index, and return the new version.

        Raises
        ------
        IndexNotFoundError
            The index is missing.
        """
        dataset = self._latest()
        dataset.drop_index(name)
        return dataset.version
