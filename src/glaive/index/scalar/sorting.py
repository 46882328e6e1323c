"""Sort values with their rows, nulls first.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import number_array
from glaive.arrow.chunked import as_numpy, dictionary_encoded
from glaive.arrow.conditions import comparable_decimals
from glaive.config import settings
from glaive.dataclass import NamedTuple, dataclass
from glaive.index.protocol import ValueBatch
from glaive.index.scalar.ordering import bytes_of, is_number, sort_keys, values_of_keys
from glaive.index.segment import FIRST_WINDOW_ROWS, WINDOW_GROWTH
from glaive.io.failures import spilling
from glaive.process import Origin
from glaive.types import MAX_OFFSET, Int64s, items_of

_SAMPLED = 4096
"""Number of values examined for repetitions."""

_PREFIX = 8
"""Bytes of a string that are compared as one number."""


def sorted_batch(batch: ValueBatch) -> ValueBatch:
    """Sort rows by value, nulls first.

    Memory: 24 bytes per row in addition to the result.
    """
    values: Any = batch.values
    nulls = int(values.null_count)
    rows = batch.rows
    present = np.empty(0, np.int64)
    if nulls:
        valid = as_numpy(values.is_valid())
        present = np.flatnonzero(valid)
        absent = rows[~valid]
        values, rows = values.drop_null(), rows[present]
    if is_number(values.type):
        keys, order = _sorted_numbers(sort_keys(values))
        if order is not None:
            values, rows = values_of_keys(keys, values.type), rows[order]
    else:
        values, order = _sorted_objects(values)
        rows = rows[order]
    if not nulls:
        return ValueBatch(values, rows)
    none: Any = pa.nulls(nulls, values.type)
    return ValueBatch(pa.concat_arrays([none, values]), np.concatenate((absent, rows)))


def _sorted_numbers(keys: NDArray[Any]) -> tuple[NDArray[Any], Int64s | None]:
    """Return sorted keys and their old positions; ``None`` if the keys were sorted."""
    if len(keys) < 2 or bool((keys[1:] >= keys[:-1]).all()):
        return keys, None
    low, high = int(keys.min()), int(keys.max())
    bits = (len(keys) - 1).bit_length()
    if (high - low).bit_length() + bits > 64:
        order = np.argsort(keys)
        return keys[order], order
    # Sort keys with their positions in one word: faster, and stable.
    unsigned = f"<u{keys.itemsize}"
    base = np.array(low, keys.dtype).view(unsigned)
    words = (keys.view(unsigned) - base).astype(np.uint64)
    words <<= np.uint64(bits)
    words |= np.arange(len(keys), dtype=np.uint64)
    words.sort()
    ordered = (words >> np.uint64(bits)).astype(unsigned) + base
    words &= np.uint64((1 << bits) - 1)
    return ordered.view(keys.dtype), words.view(np.int64)


def _sorted_objects(values: Any) -> tuple[Any, Int64s]:
    """Sort valid values of other types than numbers; return their old positions, too."""
    binary = bytes_of(values)
    kind = binary.type
    if len(values) <= _SAMPLED or not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        order = _order(values)
    elif len(binary[:_SAMPLED].unique()) < _SAMPLED // 2:
        return _sorted_repeated(values)
    else:
        order = _order_of_texts(binary)
    return values.take(number_array(order)), order


def _order(values: Any) -> Int64s:
    import pyarrow.compute as pc

    return as_numpy(pc.sort_indices(values)).astype(np.int64)


def _sorted_repeated(values: Any) -> tuple[Any, Int64s]:
    """Sort the distinct values, then their ranks, and build the values from the ranks."""
    encoded = dictionary_encoded(values)
    by_value = _order(bytes_of(encoded.dictionary))
    ranks = np.empty(len(by_value), np.int32)
    ranks[by_value] = np.arange(len(ranks), dtype=np.int32)
    ordered, order = _sorted_numbers(ranks[as_numpy(encoded.indices)])
    if order is None:
        return values, np.arange(len(values))
    distinct = encoded.dictionary.take(number_array(by_value))
    return distinct.take(number_array(ordered)), order


def _order_of_texts(values: Any) -> Int64s:
    """Sort by the eight bytes after the common prefix; sort ties again by all bytes."""
    keys, more = _prefixes(values)
    order = np.argsort(keys)
    ordered = keys[order]
    same = np.concatenate((np.zeros(1, np.bool_), ordered[1:] == ordered[:-1]))
    tied = same.copy()
    tied[:-1] |= same[1:]
    # Ties of short strings are equal, or differ by trailing zero bytes.
    tied &= more[order] | bool((keys & np.uint64(0xFF) == 0).any())
    at = np.flatnonzero(tied)
    if not len(at):
        return order
    if len(at) > len(values) // 4:
        return _order(values)
    groups = number_array(np.cumsum(~same)[at])
    subset = pa.table({"group": groups, "value": values.take(number_array(order[at]))})
    keyed: Any = [("group", "ascending"), ("value", "ascending")]
    import pyarrow.compute as pc

    order[at] = order[at][as_numpy(pc.sort_indices(subset, sort_keys=keyed))]
    return order


def _prefixes(values: Any) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return eight bytes of each string after the common prefix, and whether more bytes follow."""
    import pyarrow.compute as pc

    bits = 8 if pa.types.is_large_binary(values.type) else 4
    _, stored, data = values.buffers()
    offsets = items_of(stored, f"<i{bits}", len(values) + 1, values.offset * bits)
    extremes: Any = pc.min_max(values)
    common = _common(extremes["min"].as_py(), extremes["max"].as_py())
    starts = offsets[:-1].astype(np.int64) + common
    sizes = offsets[1:].astype(np.int64) - starts
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _PREFIX, np.uint8)
    padded[:-_PREFIX] = items_of(data, np.uint8, last - first, first) if data else 0
    windows = np.ndarray(last - first + 1, ">u8", padded, strides=(1,))
    keys = windows[starts - first].astype(np.uint64)
    # Clear the bytes of the next string.
    cut = np.clip(_PREFIX - sizes, 0, _PREFIX).astype(np.uint64) * np.uint64(8)
    keys = np.where(cut == 64, np.uint64(0), keys >> np.minimum(cut, 63) << np.minimum(cut, 63))
    return keys, sizes > _PREFIX


def _common(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix of two byte strings."""
    size = min(len(first), len(second))
    differing = (at for at in range(size) if first[at] != second[at])
    return next(differing, size)


# --- Sort in bounded memory: spill sorted runs to a temporary folder, and merge them ----
#
# Specification: "Building" in ``docs/format/indices.md``.

_SPILLED: Final = "values of an index, which exceed memory_limit,"
_MEMORY_FACTOR = 5
"""Approximate memory for sorting, as a multiple of the values with their rows."""

_MIN_WINDOW_ROWS = 1024
"""Minimum rows of a run to read at a time."""


_MIN_WINDOWS_BYTES = 2**28
"""Maximum bytes of the minimum windows of all runs: for long strings, windows have fewer rows."""


class SortedRun(Protocol):
    """Values with their rows, sorted by value, nulls first."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def nulls(self) -> int:
        """Number of null rows."""

    @property
    def nbytes(self) -> int:
        """Approximate bytes of all rows."""

    def read(self, start: int, stop: int) -> ValueBatch:
        """Read some rows."""


@dataclass(frozen=True, eq=False)
class _Run:
    """Sorted rows in memory, or in a mapped file."""

    rows: Any

    @property
    def num_rows(self) -> int:
        return int(self.rows.num_rows)

    @property
    def nulls(self) -> int:
        return int(self.rows.column(0).null_count)

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)

    def read(self, start: int, stop: int) -> ValueBatch:
        part = self.rows.slice(start, stop - start)
        return ValueBatch(_array(part.column(0)), as_numpy(_array(part.column(1))))


def _array(column: Any) -> Any:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@contextmanager
def sorted_runs(batches: Iterable[ValueBatch], memory_limit: int) -> Iterator[list[SortedRun]]:
    """Sort all rows into runs; one run in memory if the memory limit allows (context manager).

    Spilled runs are Arrow IPC files in a temporary folder, which exists from the first spill to the
    end. Where the system allows it, mapped files are unlinked.

    Raises
    ------
    StoreError
        The system fails to write a run.
    """
    folder: Path | None = None
    runs: list[SortedRun] = []
    with ExitStack() as stack:
        pending = _Pending()
        limit = max(1, memory_limit // _MEMORY_FACTOR)
        for batch in batches:
            if pending.nbytes and not pending.has_room(batch, limit):
                if folder is None:
                    with spilling(_SPILLED):
                        folder = Path(mkdtemp(prefix="glaive-sort-"))
                    stack.callback(_remove, folder, Origin())
                runs.append(_spilled(pending.sorted(), folder / f"{len(runs)}.arrow"))
                pending = _Pending()
            pending.add(batch)
        if pending.nbytes:
            runs.append(_Run(pending.sorted()))
        yield runs


def _remove(folder: Path, origin: Origin) -> None:
    """Remove a folder as far as possible; ignore errors, because they could hide another one."""
    if not origin.is_this_process:
        return
    try:
        folder.rmdir()  # works for an empty folder even with too many open files
    except OSError:
        rmtree(folder, ignore_errors=True)


class _Pending:
    """Batches of the next run."""

    def __init__(self) -> None:
        self._batches: list[ValueBatch] = []
        self.nbytes = 0

    def has_room(self, batch: ValueBatch, limit: int) -> bool:
        """Return whether a batch fits into the array and the byte limit of the run."""
        return bool(self.nbytes + batch.values.nbytes <= min(limit, MAX_OFFSET))

    def add(self, batch: ValueBatch) -> None:
        if len(batch.values):
            self._batches.append(batch)
            self.nbytes += batch.values.nbytes + batch.rows.nbytes

    def sorted(self) -> pa.Table:
        values = _array(pa.chunked_array([batch.values for batch in self._batches]))
        rows = np.concatenate([batch.rows for batch in self._batches])
        self._batches.clear()
        values, rows = sorted_batch(ValueBatch(values, rows))
        return pa.table({"values": values, "rows": number_array(rows)})


def _spilled(rows: pa.Table, path: Path) -> SortedRun:
    with spilling(_SPILLED):
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        mapped: Any = pa.memory_map(str(path))
        with suppress(OSError):  # some systems keep the names of mapped files
            path.unlink()
        return _Run(pa.ipc.open_file(mapped).read_all())


# --- merging ------------------------------------------------------------------------------


class _Limits(NamedTuple):
    """Limits of a window of a run: rows (from the run's size) and bytes."""

    rows: int
    nbytes: int

    def rows_after(self, batch: ValueBatch) -> int:
        """Return the rows of the next window, from the decoded bytes of the last window."""
        rows = len(batch.rows)
        per_row = max(1, (batch.values.nbytes + batch.rows.nbytes) // max(1, rows))
        return max(1, min(self.rows, WINDOW_GROWTH * rows, self.nbytes // per_row))


class _Window(NamedTuple):
    """Rows of a run in memory, start of the next window, and its number of rows."""

    run: SortedRun
    batch: ValueBatch
    next: int
    rows: int

    @classmethod
    def of(cls, run: SortedRun, start: int, rows: int, caps: _Limits) -> Self:
        """Read ``rows`` rows."""
        stop = min(run.num_rows, start + rows)
        batch = run.read(start, stop)
        return cls(run, batch, stop, caps.rows_after(batch))

    def after(self, caps: _Limits) -> _Window:
        """Read the next window."""
        return _Window.of(self.run, self.next, self.rows, caps)

    @property
    def is_last(self) -> bool:
        return self.next >= self.run.num_rows

    def halved(self) -> _Window:
        """Return the first half of the rows, at least one; the rest will be read again."""
        rows = -(-len(self.batch.rows) // 2)
        batch = ValueBatch(self.batch.values[:rows], self.batch.rows[:rows])
        return self._replace(batch=batch, next=self.next - len(self.batch.rows) + rows)


def merged(runs: Sequence[SortedRun], memory_limit: int) -> Iterator[ValueBatch]:
    """Merge runs: yield all rows by value, nulls first, in batches.

    Parameters
    ----------
    memory_limit
        Maximum bytes of memory for a window of each run; a window has at least 1,024 rows.
    """
    rows = sum(run.num_rows for run in runs)
    per_row = max(1, sum(run.nbytes for run in runs) // max(1, rows))
    each = per_row * max(1, len(runs))
    minimum = max(1, min(_MIN_WINDOW_ROWS, _MIN_WINDOWS_BYTES // each))
    window = max(minimum, memory_limit // _MEMORY_FACTOR // each)
    for run in runs:
        for start in range(0, run.nulls, window):
            yield run.read(start, min(run.nulls, start + window))
    limit = min(
        memory_limit // _MEMORY_FACTOR, settings.max_decoded_bytes_per_page // WINDOW_GROWTH
    )
    caps = _Limits(window, limit // max(1, len(runs)))
    first = min(window, FIRST_WINDOW_ROWS)
    windows = [_Window.of(run, run.nulls, first, caps) for run in runs if run.nulls < run.num_rows]
    while windows:
        taken, windows = _up_to_bound(windows, caps)
        yield taken


def _up_to_bound(windows: list[_Window], caps: _Limits) -> tuple[ValueBatch, list[_Window]]:
    """Return the rows up to the smallest window end, and the windows after them."""
    ends = [_Ends.of(window.batch.values) for window in windows if not window.is_last]
    bound = min(ends, key=lambda end: end.key).value if ends else None
    taken, rest = [], []
    for window in windows:
        values, numbers = window.batch
        count = len(values) if bound is None else _count_up_to(values, bound)
        taken.append(ValueBatch(values[:count], numbers[:count]))
        if count < len(values):
            rest.append(window._replace(batch=ValueBatch(values[count:], numbers[count:])))
        elif not window.is_last:
            rest.append(window.after(caps))
    if sum(batch.values.nbytes for batch in taken) > MAX_OFFSET:
        if max(len(window.batch.rows) for window in windows) > 1:
            return _up_to_bound([window.halved() for window in windows], caps)
        return _smallest(windows, caps)
    values = _array(pa.chunked_array([batch.values for batch in taken]))
    numbers = np.concatenate([batch.rows for batch in taken])
    whole = ValueBatch(values, numbers)
    return (sorted_batch(whole) if len(taken) > 1 else whole), rest


def _smallest(windows: list[_Window], caps: _Limits) -> tuple[ValueBatch, list[_Window]]:
    """Return the smallest row of windows with one row each, and the windows after it."""
    keys = [_Ends.of(window.batch.values).key for window in windows]
    at = min(range(len(windows)), key=keys.__getitem__)
    found = windows[at]
    after = [] if found.is_last else [found.after(caps)]
    return found.batch, [*windows[:at], *after, *windows[at + 1 :]]


class _Ends(NamedTuple):
    """The last value of a window, and its key."""

    key: Any
    value: Any

    @classmethod
    def of(cls, values: Any) -> _Ends:
        last = values[len(values) - 1 :]
        return cls(sort_keys(last)[0], last)


def _count_up_to(values: Any, bound: Any) -> int:
    """Return how many sorted values are at most a bound."""
    if is_number(values.type):
        return int(np.searchsorted(sort_keys(values), sort_keys(bound), "right")[0])
    import pyarrow.compute as pc

    below: Any = pc.less_equal(comparable_decimals(values), comparable_decimals(bound[0]))
    return int(below.true_count)
