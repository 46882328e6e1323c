"""Clustering: rows in the order of columns, as a plan, tasks and uncommitted fragments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2s
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import decode_dictionary, one_array, take_rows
from glaive.arrow.conditions import filled
from glaive.dataclass import dataclass
from glaive.dataset.compact import Flags, compaction_groups, rewrite_groups, with_many_deleted
from glaive.dataset.compaction_tasks import (
    CompactionMetrics,
    CompactionOptions,
    RewriteResult,
    with_lineage,
)
from glaive.dataset.stats import sample_positions
from glaive.dataset.tasks import PARTS, RowTask, TaskRunner, cut_evenly, opened_at, parts_for
from glaive.dataset.writing.fragments import FragmentWriter
from glaive.dataset.writing.plan import plan_write
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.format.fragment import FragmentList, unpacked_fragments
from glaive.format.manifest import Feature
from glaive.format.rowids import encode_row_ids
from glaive.index.remap import pinned_fragments
from glaive.scan.options import REWRITE_BLOBS, ScanOptions
from glaive.scan.projection import CREATED_AT, ROW_ID, UPDATED_AT
from glaive.scan.query import make_query
from glaive.scan.take import find_rows, take_physical
from glaive.scan.views import Views
from glaive.table.configuration import CLUSTER_KEYS
from glaive.table.index_coverage import FragmentPositions
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion
    from glaive.format.manifest import Manifest


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
    prefixes
        For each column, the bytes that all strings of the sample begin with.
    """

    columns: tuple[str, ...]
    kind: CurveKind
    bounds: tuple[NDArray[np.float64], ...]
    prefixes: tuple[bytes, ...]

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
        bounds, prefixes = [], []
        for name in names:
            values = one_array(sample.column(name))
            prefixes.append(_common_prefix(values))
            numbers = ordinals(values, name, prefixes[-1])
            known = np.sort(numbers[~np.isnan(numbers)])
            if len(known) > steps:
                known = known[np.linspace(0, len(known) - 1, steps).astype(np.int64)]
            bounds.append(known)
        return cls(names, kind, tuple(bounds), tuple(prefixes))

    def numbers(self, rows: pa.RecordBatch | pa.Table) -> UInt64s:
        """Return the number of each row along the curve; nulls come first."""
        ranks: list[UInt64s] = []
        bits = min(_MAX_BITS, _CURVE_BITS // len(self.columns))
        fitted = zip(self.columns, self.bounds, self.prefixes, strict=True)
        for name, bounds, prefix in fitted:
            column: Any = rows.column(name)
            array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
            values = ordinals(array, name, prefix)
            rank: Any = np.searchsorted(bounds, values, side="right")
            rank[np.isnan(values)] = 0
            # Columns with few values weigh as much as others.
            ranks.append((rank * (2**bits - 1) // max(1, len(bounds))).astype(np.uint64))
        if len(ranks) == 1:
            return ranks[0]
        made = hilbert_numbers if self.kind == "hilbert" else z_order_numbers
        return made(ranks, bits)


def _common_prefix(values: Any) -> bytes:
    """Return the bytes that all values begin with; empty for values other than strings."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return b""
    ends: Any = pc.min_max(values.cast(pa.large_string()).cast(pa.large_binary()))
    low, high = (end or b"" for end in ends.as_py().values())
    differ = (at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other)
    return bytes(low[: next(differ, len(low))])


def ordinals(values: Any, name: str, prefix: bytes = b"") -> NDArray[np.float64]:
    """Return numbers in the order of the values; NaN for null. Strings count by the first bytes
    after a prefix.

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
        return _prefix_ordinals(values.cast(pa.large_binary()), prefix)
    if types.is_temporal(kind) and not types.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        values = values.view(width)
    elif types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise OptionError(f"column {name!r}: rows cannot be clustered by values of type {kind}")
    numbers: Any = pc.cast(values, pa.float64(), safe=False)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _prefix_ordinals(values: Any, prefix: bytes) -> NDArray[np.float64]:
    """Return numbers made of the first bytes after a prefix, as big-endian numbers."""
    sliced: Any = pc.binary_slice(values, len(prefix), len(prefix) + _PREFIX_BYTES)
    padded = filled(sliced, b"").to_numpy(zero_copy_only=False).astype(f"S{_PREFIX_BYTES}")
    numbers: NDArray[np.float64] = padded.view(">u8").astype(np.float64)
    if prefix:  # the sample may lack smaller and larger values
        heads: Any = filled(pc.binary_slice(values, 0, len(prefix)), prefix)
        numbers[pc.less(heads, pa.scalar(prefix, heads.type)).to_numpy(zero_copy_only=False)] = -1
        numbers[pc.greater(heads, pa.scalar(prefix, heads.type)).to_numpy(zero_copy_only=False)] = (
            np.inf
        )
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
# The runner shuffles the rows between these tasks, as Arrow streams with exactly their types. It
# sends them by the number of their part.

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
        Numbers along the curve at which parts begin, ascending. If a number fills several parts, it
        occurs as often.
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

    def rows(self, dataset: OpenDataset, shared: Cuts) -> Iterator[pa.RecordBatch]:
        """Yield parts of rows, as :data:`PARTS`."""
        opened = opened_at(dataset, self.read_version)
        stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
        columns = [*opened.manifest.schema.names, *(_LINEAGE if stable else ())]
        reading = ScanOptions.of(columns=columns, fragments=self.fragment_ids, use_cache=False)
        reading = replace(reading, blob_handling=REWRITE_BLOBS)
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in make_query(Views(opened.snapshot), reading).batches():
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
    parts = np.searchsorted(cuts, numbers, side="left")
    # Rows with the same number may fill several parts: deal them out to these parts.
    ties = np.searchsorted(cuts, numbers, side="right") - parts
    tied = np.flatnonzero(ties)
    parts[tied] += 1 + np.arange(len(tied)) % ties[tied]
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
    options
        Limits of new fragments, and their format.
    mark
        The end of the names of new files; see :func:`mark_of`.
    """

    read_version: int
    curve: Curve
    options: CompactionOptions
    mark: str = ""

    def execute(
        self, dataset: OpenDataset, rows: Iterator[pa.RecordBatch]
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
        limit = self.options.target_rows_per_fragment
        writing = replace(self.options.writing, max_rows_per_file=limit, name_end=self.mark)
        plan = plan_write(opened.store, manifest.schema, writing, manifest, enforce=False)
        writer = FragmentWriter(plan)
        try:
            writer.write(table.select(manifest.schema.names))
            new = [fragment for fragment in writer.finish() if fragment.physical_rows]
        except BaseException:
            writer.discard()
            raise
        if manifest.uses(Feature.STABLE_ROW_IDS):
            ids, created, updated = (table.column(name).to_numpy() for name in _LINEAGE)
            new = with_lineage(new, lambda a, b: encode_row_ids(ids[a:b]), created, updated)
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
    lacks_order = pa.types.is_dictionary(kind) or pa.types.is_float16(kind)  # in Arrow
    return not isinstance(kind, pa.BaseExtensionType) and not lacks_order


# --- Which fragments are in order: the names of their files say so ----------------------
# A mark in the name belongs to the file. Deletes, clones, restores and other libraries keep it
# with its rows. A writer that writes the rows again gives the new file another name.

_MAX_KEYS: Final = 16
"""Maximum columns of a clustering: each further column weakens the others."""


def mark_of(manifest: Manifest, columns: Sequence[str], kind: CurveKind) -> str:
    """Return the end of names of files with rows in this order: 12 hexadecimal digits.

    It depends on the ids of fields, so it stays if a column is renamed.
    """
    ids = [manifest.schema.by_name[name].id for name in columns]
    order = f"{kind if len(ids) > 1 else 'sorted'} {ids}"
    return blake2s(order.encode(), digest_size=6).hexdigest()


def in_order(manifest: Manifest, columns: Sequence[str], kind: CurveKind) -> Flags:
    """Return for each fragment whether its rows were written in this order."""
    end = f"{mark_of(manifest, columns, kind)}.lance"
    listed, raw = manifest.complete_wire.fragments, end.encode()
    marked = np.fromiter((raw in packed for packed in listed), np.bool_, len(listed))
    if manifest.columns.file_count > len(listed):
        ids = {manifest.schema.by_name[name].id for name in columns}
        for at in np.flatnonzero(marked).tolist():  # others may have replaced the columns
            files = [file for file in manifest.fragment(at).files if file.path.endswith(end)]
            marked[at] = any(ids.issubset(file.fields) for file in files)
    return marked


def cluster_keys(manifest: Manifest) -> list[str]:
    """Return the columns that a table names to cluster its rows; empty for most tables.

    Raises
    ------
    OptionError
        The entry of the configuration is invalid.
    """
    text = manifest.config.get(CLUSTER_KEYS, "")
    if not text.strip():
        return []
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise OptionError(
            f"{CLUSTER_KEYS}: expected a JSON list of names of columns, found {text!r:.80}. Set it "
            "with ALTER TABLE … CLUSTER BY (…), or remove it with CLUSTER BY NONE"
        )
    return keys


def check_keys(manifest: Manifest, columns: Sequence[str]) -> None:
    """Check that rows can be clustered by columns.

    Raises
    ------
    ColumnNotFoundError, OptionError
        A column is missing, or its values have no order.
    """
    known = {field.name: field for field in manifest.schema.fields if "." not in field.name}
    if not 0 < len(columns) <= _MAX_KEYS:
        raise OptionError(
            f"CLUSTER BY: expected 1 to {_MAX_KEYS} columns, found {len(columns)}. Name the "
            "columns that filters use most"
        )
    for name in columns:
        if name not in known:
            where = f"{manifest.where}, at the top level. CLUSTER BY and {CLUSTER_KEYS} need it"
            raise ColumnNotFoundError.among(name, known, where=where)
        ordinals(pa.nulls(0, known[name].to_arrow().type), name)


# --- Plan a clustering: fragments to cluster, and small ones to merge with them ---------


@dataclass(frozen=True, slots=True)
class Clustering:
    """The fragments of one version to cluster.

    Parameters
    ----------
    columns
        The columns.
    positions
        Positions of all fragments to write again, ascending.
    unordered
        Number of these fragments that are not in the order of the columns.
    emptied
        Number of other fragments that lost many rows.
    rows
        Live rows of both.
    """

    columns: tuple[str, ...]
    positions: Int64s
    unordered: int
    emptied: int
    rows: int

    def pays(self, min_fragments: int, target: int) -> bool:
        """Return whether fragments are many, fill a fragment, or lost many rows."""
        is_full = bool(self.unordered) and self.rows >= target
        return self.unordered >= min_fragments or is_full or self.emptied > 0


def plan_clustering(
    opened: OpenedVersion, columns: Sequence[str], options: CompactionOptions
) -> Clustering:
    """Choose fragments that are out of order or lost many rows.

    A fragment in order joins them if it has few rows and bytes, and at most as many rows as the
    chosen fragments before it. So each time that a row is written again, its fragment at least
    doubles.
    """
    manifest, live = opened.manifest, opened.snapshot.live_counts
    check_keys(manifest, columns)
    ordered = in_order(manifest, columns, "hilbert")
    wanted = ~ordered | with_many_deleted(opened, options)
    places = FragmentPositions(manifest.fragment_ids)
    allowed = ~places.marked((*pinned_fragments(manifest), *options.excluded_fragment_ids))
    chosen = np.flatnonzero(wanted & allowed)
    is_small = live < options.target_rows_per_fragment
    is_small &= manifest.columns.data_bytes < _LEAST_BYTES // 2  # parts differ by chance
    small = np.flatnonzero(~wanted & allowed & is_small)
    small = small[np.argsort(live[small], kind="stable")]
    before = live[chosen].sum() + np.cumsum(live[small]) - live[small]
    joining = small[np.logical_and.accumulate(live[small] <= before)] if len(chosen) else small[:0]
    order = np.concatenate([chosen, joining])
    sizes = manifest.columns.data_bytes if options.max_source_bytes is not None else live
    for limit, of_each in (
        (options.max_source_fragments, np.ones_like(live)),
        (options.max_source_rows, live),
        (options.max_source_bytes, sizes),
    ):
        if limit is not None:
            order = order[of_each[order] <= limit]
            order = order[np.cumsum(of_each[order]) <= limit]
    taken = order[wanted[order]]
    unordered = int((~ordered[taken]).sum())
    positions = np.sort(order) if len(taken) else order[:0]
    rows = int(live[taken].sum())
    return Clustering(tuple(columns), positions, unordered, len(taken) - unordered, rows)


def rewrite_useful(
    opened: OpenedVersion, options: CompactionOptions, runner: TaskRunner, least: int = 1
) -> list[RewriteResult]:
    """Cluster what a table wants clustered; otherwise merge its small fragments.

    Returns uncommitted results.

    Parameters
    ----------
    least
        Minimum number of fragments to cluster or merge, unless they fill a fragment.
    """
    keys = cluster_keys(opened.manifest)
    if not keys:
        groups = [at for at in compaction_groups(opened, options) if len(at) >= least]
        return rewrite_groups(opened, groups, options, runner)
    plan = plan_clustering(opened, keys, options)
    if not plan.pays(least, options.target_rows_per_fragment):
        return []
    return [cluster_rows(opened, keys, "hilbert", options, plan.positions, runner)]


_LEAST_BYTES: Final = 32 << 20
"""Least bytes of files for one part, so that fragments of parts can stay as they are."""

_SAMPLE_ROWS = 1 << 16
"""Number of sampled rows that determine where parts begin."""


def cluster_rows(
    opened: OpenedVersion,
    columns: Sequence[str],
    kind: CurveKind,
    options: CompactionOptions,
    positions: Int64s,
    runner: TaskRunner,
) -> RewriteResult:
    """Write all rows of some fragments in the order of columns; return them uncommitted.

    Parameters
    ----------
    positions
        Positions of the fragments, ascending; at least one.

    Raises
    ------
    ColumnNotFoundError, OptionError
        A column is missing or lacks an order.
    """
    manifest, snapshot = opened.manifest, opened.snapshot
    check_keys(manifest, columns)
    # Sample the same rows for the same version, so that a rerun of the job makes the same parts.
    live, starts = snapshot.live_counts[positions], snapshot.row_starts[positions]
    stops = np.cumsum(live)
    rows = int(stops[-1])
    drawn = sample_positions(rows, min(rows, _SAMPLE_ROWS), randomize_order=False, seed=rows)
    chosen = np.array(drawn, np.int64)
    owner = np.searchsorted(stops, chosen, side="right")
    found = find_rows(snapshot, "indices", chosen + (starts - stops + live)[owner])
    view = opened.views.take(tuple(columns))
    sample = take_physical(view, found.fragment, found.row)
    curve = Curve.of(sample, kind)
    sizes = manifest.physical_rows[positions]
    share = int(sizes.sum()) / max(1, int(manifest.physical_rows.sum()))
    size = int(snapshot.file_bytes() * share)
    count = max(1, min(parts_for(size, runner.parallelism), size // _LEAST_BYTES))
    along = np.sort(curve.numbers(sample))
    cuts = along[len(along) * np.arange(1, count) // count] if len(along) else along
    bounds = cut_evenly(sizes, count)
    ids = manifest.fragment_ids[positions]
    version = manifest.version
    tasks = [CutRows(version, tuple(ids[a:b].tolist())) for a, b in pairwise(bounds)]
    write = WritePart(version, curve, options, mark_of(manifest, columns, kind))
    results = runner.shuffled(opened, tasks, Cuts(curve, cuts), count, write)
    new = FragmentList.joined(part for _, part in sorted(results, key=itemgetter(0)))
    listed = manifest.complete_wire.fragments
    old = unpacked_fragments((listed[at] for at in positions.tolist()), manifest.where)
    return RewriteResult(version, CompactionMetrics.of(old, new), old, new, is_sorted=True)
