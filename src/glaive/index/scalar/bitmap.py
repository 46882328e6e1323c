"""BITMAP and LABEL_LIST: the set of rows of each distinct value or list item.

Specification: "BITMAP" and "LABEL_LIST" in ``docs/format/scalar-indices.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, pairwise
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import number_array
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf, constants, filled
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    Entries,
    HasLabels,
    IndexKind,
    IndexQuery,
    IndexSource,
    RebuiltSegment,
    ScalarIndex,
    ValueBatch,
    check_same_type,
    check_type,
    index_kind,
    shared_type,
    stored_batches,
)
from glaive.index.row_sets import (
    NO_ROWS,
    ROWSETS,
    AddressMap,
    RowLimit,
    RowNumbers,
    RowSet,
    SetFormat,
    row_set_in,
    row_set_of,
    rows_per_byte,
)
from glaive.index.scalar.ordering import (
    SortKeys,
    accepts,
    group_starts,
    is_sortable,
    is_text,
    key_of,
    sort_keys,
)
from glaive.index.scalar.sorting import SortedRun, merged, sorted_batch, sorted_runs
from glaive.index.segment import IndexFile, Keep, Segment, SegmentWriter, load_uncached
from glaive.types import Int64s, items_of

# --- The file of BITMAP and LABEL_LIST: keys, and the set of rows of each ---------------
# Specification: "BITMAP" in ``docs/format/scalar-indices.md``.

LOOKUP = "bitmap_page_lookup.lance"
STATS = "lance:index_stats"

_BITS_PER_ROW = 12
"""Approximate bits of a stored set per row: 16 in small sets, fewer in large sets."""

_RESIDENT_BYTES = 1 << 23
"""Maximum size of a file whose sets are read when it is opened."""


class KeyBatch(NamedTuple):
    """Some keys, and the stored sets of their rows."""

    keys: Any
    sets: Any


@dataclass(frozen=True, eq=False)
class KeySets:
    """An opened file: its keys, and the sets if they are small.

    Parameters
    ----------
    file
        The file.
    keys
        All keys, ascending, null first.
    present
        Sort keys of the valid keys.
    sets
        Sets of all keys; ``None`` if they are read on demand.
    order
        Row of each key in the file; ``None`` if the file is in key order.
    keep
        Cache for keys and sets.
    """

    file: IndexFile
    keys: Any
    present: SortKeys
    sets: Any
    order: Int64s | None = None
    keep: Keep = load_uncached

    @classmethod
    def open(cls, file: IndexFile, keep: Keep = load_uncached) -> Self:
        """Read the keys.

        Raises
        ------
        CorruptFileError
            A key occurs several times.
        UnsupportedFeatureError
            The type of the keys is unordered.
        """
        file.check(keys=None, bitmaps=pa.binary())
        kind = file.schema.field("keys").type
        if not is_sortable(kind):
            raise UnsupportedFeatureError(f"{file.path}: keys of type {kind} are not searched")
        resident = file.size <= _RESIDENT_BYTES

        def load() -> tuple[pa.Table, int]:
            rows = file.read(["keys", "bitmaps"] if resident else ["keys"])
            return rows, rows.nbytes

        rows: pa.Table = keep("keys", load)
        keys: Any = rows["keys"].combine_chunks()
        sets = rows["bitmaps"].combine_chunks() if resident else None
        nulls = int(keys.null_count)
        present, order = sort_keys(keys[nulls:]), None
        if keys[nulls:].null_count or (present[1:] < present[:-1]).any():
            # pylance up to 10 writes keys in the order of a hash table.
            is_null = as_numpy(keys.is_null())
            known = np.flatnonzero(~is_null)
            by_key = np.argsort(sort_keys(keys.drop_null()), kind="stable")
            order = np.concatenate((np.flatnonzero(is_null), known[by_key]))
            at: Any = number_array(order)
            keys = keys.take(at)
            sets = None if sets is None else sets.take(at)
            present = sort_keys(keys[nulls:])
        if nulls > 1 or (present[1:] == present[:-1]).any():
            raise file.corrupt_column("keys", "each key once", "some several times")
        return cls(file, keys, present, sets, order, keep=keep)

    @property
    def has_nulls(self) -> bool:
        """Whether null rows are complete: compactions of Lance up to 0.29 lost them."""
        return bool(self.keys.null_count) or STATS in self.file.metadata

    @property
    def nbytes(self) -> int:
        """Approximate bytes of memory; cached keys and sets count separately."""
        objects = 33 * len(self.present) if self.present.dtype == np.object_ else 0
        return int(self.file.nbytes + self.present.nbytes + objects)

    def accepts(self, query: object) -> bool:
        """Return whether the query is a condition on the keys."""
        kind = self.keys.type
        return (isinstance(query, HasText) and is_text(kind)) or accepts(kind, query)

    def select(self, condition: Condition) -> Int64s:
        """Return the positions of the keys that pass a condition, ascending."""
        nulls = int(self.keys.null_count)
        if isinstance(condition, IsNull):
            return np.arange(nulls) if not condition.negated else np.arange(nulls, len(self.keys))
        if isinstance(condition, IsOneOf):
            return self._one_of(condition)
        if isinstance(condition, InRange):
            return np.arange(*self._range(condition))
        mask: Any = condition.mask(self.keys)
        return np.flatnonzero(as_numpy(mask))

    def _one_of(self, condition: IsOneOf) -> Int64s:
        nulls = int(self.keys.null_count)
        values: Any = condition.values
        if condition.negated and values.null_count:
            return np.empty(0, np.int64)
        wanted = sort_keys(values.drop_null())
        at = np.searchsorted(self.present, wanted)
        known = np.flatnonzero(at < len(self.present))
        at = at[known]
        at = at[self.present[at] == wanted[known]]
        chosen = np.zeros(len(self.present), np.bool_)
        chosen[at] = True
        return np.flatnonzero(~chosen if condition.negated else chosen) + nulls

    def _range(self, condition: InRange) -> tuple[int, int]:
        first, last = 0, len(self.present)
        if condition.low is not None:
            side: Any = "left" if condition.low_included else "right"
            first = int(np.searchsorted(self.present, key_of(condition.low), side)[0])
        if condition.high is not None:
            side = "right" if condition.high_included else "left"
            last = int(np.searchsorted(self.present, key_of(condition.high), side)[0])
        nulls = int(self.keys.null_count)
        return first + nulls, max(first, last) + nulls

    def estimate(self, at: Int64s) -> int:
        """Estimate the rows of the keys at some positions, from the bytes of their sets."""
        if not len(at):
            return 0
        if self.sets is None:
            return -(-self.file.size * 8 * len(at) // (_BITS_PER_ROW * len(self.keys)))
        sets = self._sets(at)
        ends = items_of(sets.buffers()[1], "<i4", len(sets) + 1, sets.offset * 4)
        size = int(ends[-1]) - int(ends[0])
        return math.ceil(size * rows_per_byte(sets, self.file.path))

    def rows(self, at: Int64s) -> RowSet:
        """Return the rows that have any of the keys at some ascending positions."""
        if len(at) != 1:
            return row_set_of(self._sets(at), self.file.path, self.file.size)

        def load() -> tuple[RowSet, int]:
            rows = row_set_of(self._sets(at), self.file.path, self.file.size)
            return rows, rows.nbytes

        rows: RowSet = self.keep(("key", int(at[0])), load)
        return rows

    def rows_of_each(self, at: Int64s) -> Iterator[RowSet]:
        """Yield the rows of each key at some positions."""
        sets, file = self._sets(at), self.file
        return (row_set_of(sets[one : one + 1], file.path, file.size) for one in range(len(at)))

    def _sets(self, at: Int64s) -> Any:
        if not len(at):
            return pa.nulls(0, pa.binary())
        first, last = int(at[0]), int(at[-1]) + 1
        if self.sets is None:
            found = self._read_sets(at)
        elif last - first == len(at):
            found = self.sets[first:last]
        else:
            found = self.sets.take(number_array(at))
        self.file.check_present(found)
        return found

    def _read_sets(self, at: Int64s) -> Any:
        if self.order is None:
            return self.file.take(["bitmaps"], at)[0]
        rows, back = np.unique(self.order[at], return_inverse=True)
        found: Any = self.file.take(["bitmaps"], rows)[0]
        return found.take(number_array(back))

    def batches(self) -> Iterator[KeyBatch]:
        """Yield all keys and sets. The caller holds all of them, which the memory limit covers.

        Raises
        ------
        UnsupportedFeatureError
            They exceed ``max_decoded_bytes_per_page`` and ``USUAL_RATIO`` times the bytes of the
            file.
        """
        size = 0
        for start in range(0, len(self.keys), _BATCH_KEYS):
            stop = min(len(self.keys), start + _BATCH_KEYS)
            sets = self._sets(np.arange(start, stop))
            size += sets.nbytes
            self.file.check_decoded(size, "sets of rows")
            yield KeyBatch(self.keys[start:stop], sets)


_BATCH_KEYS = 1 << 16
"""Maximum number of keys whose sets are Python objects at a time."""

_JOINED_BYTES = 1 << 25
"""Maximum bytes of these sets, unless one key has more."""


# --- writing ------------------------------------------------------------------------------


def grouped(
    runs: Sequence[SortedRun], memory_limit: int, form: SetFormat = ROWSETS
) -> Iterator[KeyBatch]:
    """Yield the distinct values of sorted runs, ascending, with the set of rows of each.

    Memory: windows of the runs, and the encoded sets of a batch.
    """
    pending: _Group | None = None
    for batch in merged(runs, memory_limit):
        values: Any = batch.values
        rows, starts = batch.rows, group_starts(values)
        keys: Any = values.take(number_array(starts))
        sets: Any = form.encode(rows, np.append(starts, len(rows)))
        first = 0
        if pending is not None:
            if pending.has(keys[:1]):
                pending.parts.append(sets[0].as_py())
                first = 1
            if len(keys) > first:
                yield pending.closed(form)
                pending = None
        last = len(keys) - 1
        if pending is None:
            if last > first:
                yield KeyBatch(keys[first:last], sets[first:last])
            pending = _Group(keys[last:], [sets[last].as_py()])
    if pending is not None:
        yield pending.closed(form)


@dataclass(eq=False)
class _Group:
    """A key whose rows may continue in the next batch, and parts of its set of rows."""

    key: Any
    parts: list[bytes]

    def has(self, key: Any) -> bool:
        """Return whether another key is equal."""
        if self.key.null_count or key.null_count:
            return bool(self.key.null_count == key.null_count)
        return bool(sort_keys(self.key)[0] == sort_keys(key)[0])

    def closed(self, form: SetFormat) -> KeyBatch:
        """Return the key with its complete set."""
        parts = self.parts
        whole = parts[0] if len(parts) == 1 else form.union(parts)
        return KeyBatch(self.key, constants([whole], pa.binary()))


def merged_keys(batches: Iterable[KeyBatch], form: SetFormat = ROWSETS) -> Iterator[KeyBatch]:
    """Merge batches that share keys; yield ascending keys. Holds all encoded sets in memory."""
    found = list(batches)
    if not found:
        return
    keys: Any = pa.concat_arrays([batch.keys for batch in found])
    # Concatenate first: taking sets from chunks costs as much as reading all of them.
    wide: Any = pa.large_binary()
    sets: Any = pa.concat_arrays([cast("Any", batch.sets).cast(wide) for batch in found])
    found.clear()
    keys, positions = sorted_batch(ValueBatch(keys, np.arange(len(keys), dtype=np.uint64)))
    nulls = int(keys.null_count)
    starts = group_starts(keys[nulls:]) + nulls
    starts = np.concatenate((np.zeros(min(nulls, 1), np.int64), starts))
    bounds = np.append(starts, len(keys))
    sizes = np.diff(items_of(sets.buffers()[1], "<i8", len(sets) + 1, sets.offset * 8))
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes[positions.astype(np.int64)])))
    # Bytes before the sets of each key, to bound the bytes per batch of keys.
    at = before[bounds]
    first = 0
    while first < len(starts):
        last = int(at.searchsorted(at[first] + _JOINED_BYTES, side="right")) - 1
        last = min(max(first + 1, last), first + _BATCH_KEYS, len(starts))
        begin, end = bounds[first].item(), bounds[last].item()
        listed = sets.take(number_array(positions[begin:end])).to_pylist()
        joined = [
            listed[start] if stop - start == 1 else form.union(listed[start:stop])
            for start, stop in pairwise((bounds[first : last + 1] - begin).tolist())
        ]
        yield KeyBatch(keys.take(number_array(starts[first:last])), constants(joined, pa.binary()))
        first = last


def remapped(
    file: IndexFile, names: Sequence[str], form: SetFormat, address_map: AddressMap
) -> Iterator[tuple[pa.ChunkedArray, list[bytes]]]:
    """Yield keys of a file, and their sets with new addresses, some at a time."""
    limit = RowLimit(address_map, file.path)
    for rows in file.windows(names, _BATCH_KEYS):
        file.check_present(rows[names[1]])
        stored: Any = rows[names[1]].to_pylist()
        yield rows[names[0]], form.remap(stored, address_map, file.path, limit)


def write_keys(
    out: SegmentWriter,
    kind: pa.DataType,
    batches: Iterable[KeyBatch],
    buffers: Mapping[str, bytes] | None = None,
) -> None:
    """Write the file; ``buffers`` maps metadata keys to global buffers."""
    schema = pa.schema([pa.field("keys", kind), pa.field("bitmaps", pa.binary())])
    file = out.create(LOOKUP, schema)
    count = 0
    for keys, sets in batches:
        file.write(pa.record_batch([keys, sets], schema=schema))
        count += len(keys)
    for key, data in (buffers or {}).items():
        file.add_metadata({key: str(file.add_buffer(data))})
    file.add_metadata({STATS: f'{{"num_bitmaps":{count}}}'})
    file.finish()


# --- BITMAP and LABEL_LIST, searched: read and join the sets of the keys that pass ------
# Specification: "BITMAP" and "LABEL_LIST" in ``docs/format/scalar-indices.md``.


class OpenedBitmap(ScalarIndex):
    """All values, and the rows of each.

    Parameters
    ----------
    key_sets
        The values.
    """

    def __init__(self, key_sets: KeySets) -> None:
        self._keys = key_sets

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._keys.nbytes

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query is a condition on this type; null rows must be complete."""
        is_known = self._keys.has_nulls or not isinstance(query, IsNull)
        return is_known and self._keys.accepts(query)

    def estimate(self, query: IndexQuery) -> int:
        """Estimate the rows of the keys that pass, from the bytes of their sets."""
        condition: Any = query
        return self._keys.estimate(self._keys.select(condition))

    def compared(self, query: IndexQuery) -> int:
        """Return the number of keys whose rows are joined."""
        condition: Any = query
        return len(self._keys.select(condition))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows, exactly unless null rows are incomplete; at most one read, of the sets."""
        condition: Any = query
        rows = self._keys.rows(self._keys.select(condition))
        if not nulls:
            return Candidates(rows, None, exact=True)
        return Candidates(rows, self._unknown(condition), exact=self._keys.has_nulls)

    def _unknown(self, condition: Any) -> RowSet:
        """Return the rows for which a condition is null."""
        if isinstance(condition, IsNull):
            return NO_ROWS
        if isinstance(condition, IsOneOf) and condition.values.null_count:
            # With a null among the values, a row that differs from all values may equal the null.
            equal = self._keys.select(IsOneOf(condition.values.drop_null()))
            return self._keys.rows(np.setdiff1d(np.arange(len(self._keys.keys)), equal))
        return self._keys.rows(self._keys.select(IsNull()))


class OpenedLabelList(ScalarIndex):
    """All list items, and the rows whose list contains each.

    Parameters
    ----------
    key_sets
        The items.
    null_lists
        Rows whose list is null; ``None`` if an old writer omitted them.
    """

    def __init__(self, key_sets: KeySets, null_lists: RowSet | None) -> None:
        self._keys, self._null_lists = key_sets, null_lists

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._keys.nbytes + (0 if self._null_lists is None else self._null_lists.nbytes)

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query asks for items of this type, or for null lists."""
        if isinstance(query, IsNull):
            return self._null_lists is not None and not query.negated
        if not isinstance(query, HasLabels):
            return False
        values = query.values
        same_type = bool(values.type == self._keys.keys.type)
        return same_type and len(values) > 0 and not values.null_count

    def estimate(self, query: IndexQuery) -> int:
        """Estimate the rows of the requested items, from the bytes of their sets."""
        if isinstance(query, HasLabels):
            at = self._keys.select(IsOneOf(query.values))
            rows = self._keys.estimate(at)
            return rows // max(1, len(at)) if query.every else rows
        return 0 if self._null_lists is None else self._null_lists.count

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows, exactly unless null lists are unknown."""
        unknown = self._null_lists
        if not isinstance(query, HasLabels):
            return Candidates(unknown or NO_ROWS, NO_ROWS if nulls else None, exact=True)
        at = self._keys.select(IsOneOf(query.values))
        if not query.every:
            rows = self._keys.rows(at)
        elif len(at) < len(query.values.unique()):
            rows = NO_ROWS
        else:
            # Intersect two sets at a time, because a query may have very many items.
            rows = reduce(_in_both, self._keys.rows_of_each(at))
        if not nulls:
            return Candidates(rows, None, exact=True)
        return Candidates(rows, unknown or NO_ROWS, exact=unknown is not None)


def _in_both(first: RowSet, second: RowSet) -> RowSet:
    return RowSet.intersection([first, second])


NULLS = "lance:label_list_nulls"


@index_kind
class Bitmap(IndexKind):
    """A set of rows per value."""

    name: ClassVar[str] = "bitmap"
    title: ClassVar[str] = "BITMAP"
    newest: ClassVar[int] = 0
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (LOOKUP,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets; keep keys with surviving rows."""
        lookup = segment.open(LOOKUP)
        lookup.check(keys=None, bitmaps=pa.binary())
        schema = pa.schema([lookup.schema.field(name) for name in ("keys", "bitmaps")])
        if is_sortable(schema.field("keys").type):
            # Check for duplicate keys first: a few bytes may encode very many equal keys.
            KeySets.open(lookup)
        file = out.create(LOOKUP, schema.with_metadata(lookup.schema.metadata))
        metadata = {key: value for key, value in lookup.metadata.items() if key != NULLS}
        if (data := lookup.named_buffer(NULLS)) is not None:
            (nulls,) = ROWSETS.remap([data], address_map, lookup.path)
            metadata[NULLS] = str(file.add_buffer(nulls))
        count, has_null = 0, False
        for keys, sets in remapped(lookup, schema.names, ROWSETS, address_map):
            surviving = np.flatnonzero([any(row_set[:4]) for row_set in sets])
            kept = keys if len(surviving) == len(sets) else keys.take(number_array(surviving))
            bitmaps = constants([sets[at] for at in surviving], pa.binary())
            file.write(pa.table([kept, bitmaps], schema=schema))
            count, has_null = count + len(surviving), has_null or bool(kept.null_count)
        if has_null or STATS in metadata:  # readers take this metadata to mean that nulls are known
            metadata[STATS] = f'{{"num_bitmaps":{count}}}'
        file.add_metadata(metadata)
        file.finish()
        return RebuiltSegment()

    def open(self, segment: Segment) -> ScalarIndex:
        """Read the keys, and the sets if they are small."""
        return OpenedBitmap(KeySets.open(segment.open(LOOKUP), segment.keep))

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the number of distinct values, including null."""
        return {"num_bitmaps": segment.open(LOOKUP).num_rows}

    def value_type(self, segment: Segment) -> pa.DataType | None:
        """Return the type of the keys."""
        lookup = segment.open(LOOKUP)
        lookup.check(keys=None)
        kind: pa.DataType = lookup.schema.field("keys").type
        return kind

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Sort the values of the source within its memory limit.

        Joins the sets of equal keys of the segments: all encoded sets are in memory.
        """
        opened = [KeySets.open(segment.open(LOOKUP)) for segment in given.segments]
        null_sets = [self._null_set(keys) for keys in opened]
        kind: Any = shared_type([keys.file for keys in opened], "keys") if opened else None
        null_rows = [np.empty(0, np.uint64)]
        values: Iterator[ValueBatch] = iter(())
        if given.source is not None:
            found = self._key_type(given.source.field)
            if opened:
                check_same_type(opened[0].file, "keys", found)
            kind, values = found, self._keyed(given.source, null_rows)
        limit = given.memory_limit
        with sorted_runs(values, limit) as runs:
            batches = grouped(runs, limit)
            if opened:
                stored = chain.from_iterable(keys.batches() for keys in opened)
                batches = merged_keys(chain(stored, batches))
            null_sets.append(ROWSETS.of(np.sort(np.concatenate(null_rows))))
            buffers = {NULLS: ROWSETS.union(null_sets)} if self.newest else None
            write_keys(out, kind, batches, buffers)
        return BuiltSegment(self._details, version=self.newest)

    _details: ClassVar[str] = "/lance.table.BitmapIndexDetails"

    def _key_type(self, field: pa.Field[Any]) -> Any:
        """Return the type of the keys of a column."""
        check_type("BITMAP", field, supported=is_sortable(field.type))
        return field.type

    def _keyed(self, source: IndexSource, _: list[RowNumbers]) -> Iterator[ValueBatch]:
        """Yield the keys of a source, and add rows of null lists to a list."""
        return stored_batches(source)

    def _null_set(self, keys: KeySets) -> bytes:
        """Return the rows of null lists of a segment, encoded."""
        if not keys.has_nulls:
            raise UnsupportedFeatureError(
                f"{keys.file.path}: an old writer may have lost nulls: build it again"
            )
        return ROWSETS.of(np.empty(0, np.uint64))


@index_kind
class LabelList(Bitmap):
    """A set of rows per list item, and the set of rows with a null list."""

    name: ClassVar[str] = "labellist"
    title: ClassVar[str] = "LABEL_LIST"
    newest: ClassVar[int] = 1
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = ()

    def open(self, segment: Segment) -> ScalarIndex:
        """Read the items, the rows of null lists, and the sets if they are small."""
        lookup = segment.open(LOOKUP)
        nulls = row_set_in(lookup.named_buffer(NULLS), lookup.path, lookup.size)
        return OpenedLabelList(KeySets.open(lookup, segment.keep), nulls)

    _details: ClassVar[str] = "/lance.table.LabelListIndexDetails"

    def _key_type(self, field: pa.Field[Any]) -> Any:
        """Return the type of the items."""
        kind: Any = field.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        check_type("LABEL_LIST", field, supported=is_list and is_sortable(kind.value_type))
        return kind.value_type

    def _keyed(self, source: IndexSource, nulls: list[RowNumbers]) -> Iterator[ValueBatch]:
        """Yield all items, each with the row of its list."""
        for values, rows in source.batches():
            lists: Any = values
            if lists.null_count:
                nulls.append(rows[as_numpy(lists.is_null())])
            counts = as_numpy(filled(lists.value_lengths(), 0))
            yield ValueBatch(lists.flatten(), np.repeat(rows, counts))

    def _null_set(self, keys: KeySets) -> bytes:
        """Return the rows of null lists of a segment, encoded."""
        data = keys.file.named_buffer(NULLS)
        if data is None:
            raise UnsupportedFeatureError(
                f"{keys.file.path}: an old writer did not say which lists are null: build it again"
            )
        return data
