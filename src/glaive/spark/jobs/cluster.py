"""Plan the clustering of a table, run its tasks, and commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import decode_dictionary, one_array, take_rows
from glaive.dataclass import dataclass
from glaive.dataset.compaction.optimize import commit_rewrites
from glaive.dataset.compaction.task import CompactionMetrics, RewriteResult
from glaive.dataset.scanner import Scanner
from glaive.dataset.stats import sample_positions
from glaive.dataset.tasks import cut_evenly
from glaive.dataset.writing.fragments import FragmentWriter
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.errors import OptionError
from glaive.format.fragment import Fragment, FragmentList, unpacked_fragments
from glaive.format.manifest import Feature
from glaive.format.rowids import encode_row_ids, encode_versions, version_runs
from glaive.scan.options import TO_WRITE_AGAIN, ScanOptions
from glaive.scan.projection import CREATED_AT, ROW_ID, UPDATED_AT
from glaive.scan.take import find_rows, take_physical
from glaive.scan.views import Views
from glaive.spark.jobs.merge_rows import at_version
from glaive.spark.jobs.runner import RowTask, parts_for
from glaive.spark.versions import partitioned_by_id
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest


# --- Orders of rows by one or several columns: ranges, the Z-order curve and the Hilbert curve
# Values become ranks among a sample, so that columns of any distribution count alike; ranks become
# one number, along which neighbours have similar values in all columns.

CurveKind = Literal["hilbert", "zorder"]

UInt64s = NDArray[np.uint64]

_MAX_BITS: Final = 16
"""Bits of a rank, at most."""

_CURVE_BITS: Final = 63
"""Bits of a number along the curve, at most."""

_PREFIX: Final = 8
"""Bytes of a text that count."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The order of rows by some columns; can be pickled.

    Parameters
    ----------
    columns
        Their names.
    kind
        The curve for several columns.
    bounds
        Of each column, ordinals of a sample at equal distances; ascending.
    """

    columns: tuple[str, ...]
    kind: CurveKind
    bounds: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(cls, sample: pa.Table, kind: CurveKind) -> Self:
        """The curve through a sample of the columns.

        Raises
        ------
        OptionError
            Rows cannot be ordered by the type of a column.
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
        """The number of each row along the curve; nulls come first."""
        ranks: list[UInt64s] = []
        bits = min(_MAX_BITS, _CURVE_BITS // len(self.columns))
        for name, bounds in zip(self.columns, self.bounds, strict=True):
            column: Any = rows.column(name)
            array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
            values = ordinals(array, name)
            rank: Any = np.searchsorted(bounds, values, side="right")
            rank[np.isnan(values)] = 0
            # Columns with few values count as much as others.
            ranks.append((rank * (2**bits - 1) // max(1, len(bounds))).astype(np.uint64))
        if len(ranks) == 1:
            return ranks[0]
        made = hilbert_numbers if self.kind == "hilbert" else z_order_numbers
        return made(ranks, bits)


def ordinals(values: Any, name: str) -> NDArray[np.float64]:
    """Numbers in the order of the values; NaN for null. Texts count by their first bytes.

    Parameters
    ----------
    values
        Shape ``(n,)``; numbers, booleans, decimals, dates, times, texts or binary.

    Raises
    ------
    OptionError
        Values of this type have no order.
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
        return _of_prefixes(values)
    if types.is_temporal(kind) and not types.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        values = values.view(width)
    elif types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise OptionError(f"column {name!r}: rows cannot be clustered by values of type {kind}")
    numbers: Any = pc.cast(values, pa.float64(), safe=False)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _of_prefixes(values: Any) -> NDArray[np.float64]:
    """Numbers made of the first bytes, the first one counting most."""
    sliced: Any = pc.binary_slice(values.cast(pa.large_binary()), 0, _PREFIX)
    padded = pc.fill_null(sliced, b"").to_numpy(zero_copy_only=False).astype(f"S{_PREFIX}")
    numbers: NDArray[np.float64] = padded.view(">u8").astype(np.float64)
    numbers[np.asarray(values.is_null().to_numpy(zero_copy_only=False))] = np.nan
    return numbers


def z_order_numbers(ranks: Sequence[UInt64s], bits: int) -> UInt64s:
    """Bits of ranks, interleaved.

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
    """Numbers along the Hilbert curve: consecutive ones differ by one step in one column.

    Parameters are those of :func:`z_order_numbers`.
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
# Between them rows pass through Spark as Arrow streams in binary columns, with exactly their
# types; Spark moves them by the number of their part.

PARTS: Final[dict[str, pa.DataType]] = {"part": pa.int32(), "rows": pa.binary()}
"""Columns between the tasks: the number of the part, and an Arrow stream."""

PARTS_DDL: Final = "part int, rows binary"

_NUMBER: Final = "__glaive_number"
"""The last column while rows are moved; a column of the dataset may have this name, too."""

_LINEAGE: Final = (ROW_ID, CREATED_AT, UPDATED_AT)
_HELD_BYTES: Final = 128 << 20
"""Rows that a task holds before it sends them on."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where rows are cut into parts.

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
        """Parts of rows, as :data:`PARTS`."""
        opened = at_version(dataset, self.read_version)
        stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
        columns = [*opened.manifest.schema.names, *(_LINEAGE if stable else ())]
        reading = ScanOptions.of(columns=columns, fragments=self.fragment_ids, use_cache=False)
        reading = replace(reading, blob_handling=TO_WRITE_AGAIN)
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in Scanner(Views(opened.snapshot), reading).to_batches():
            numbers = pa.array(shared.curve.numbers(batch))
            held.append(batch.append_column(_NUMBER, numbers))
            size += batch.nbytes
            if size >= _HELD_BYTES:
                yield from _parts(held, shared.numbers)
                held, size = [], 0
        if held:
            yield from _parts(held, shared.numbers)


def _parts(held: list[pa.RecordBatch], cuts: NDArray[np.uint64]) -> Iterator[pa.RecordBatch]:
    """Rows by part, as :data:`PARTS`."""
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
        Rows of a new fragment, at most.
    """

    read_version: int
    curve: Curve
    max_rows: int

    def execute(
        self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]
    ) -> tuple[int, FragmentList]:
        """The number of the part, and its new fragments, uncommitted."""
        opened = at_version(dataset, self.read_version)
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
        writer = FragmentWriter(plan_write(opened.store, manifest.schema, options, manifest))
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
        """The rows, without their numbers."""
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
    """Fragments with the ids and versions of their rows."""
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


_SAMPLE = 1 << 16
"""Rows whose values say where parts begin."""


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
        Of the fragments, ascending.
    """
    manifest = opened.manifest
    for name in columns:
        manifest.schema.find(name)
    if not columns or any("." in name for name in columns):
        raise OptionError(f"columns: expected names of top-level columns, found {list(columns)}")
    if not len(positions):
        return manifest, None
    # The same rows for the same version, so that a job that runs again makes the same parts.
    rows = opened.snapshot.num_rows
    chosen = sample_positions(rows, min(rows, _SAMPLE), randomize_order=False, seed=rows)
    found = find_rows(opened.snapshot, "indices", chosen)
    view = opened.views.take(tuple(columns))
    sample = take_physical(view, found.fragment, found.row)
    curve = Curve.of(sample, kind)
    runner: Any = job.runner  # that of a session
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
