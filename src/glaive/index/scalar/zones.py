"""ZONEMAP and BLOOMFILTER: bounds or a Bloom filter per zone, a range of rows of a fragment.

Specification: "Zones" in ``docs/format/scalar-indices.md``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import flag_array, number_array
from glaive.arrow.chunked import as_numpy, decode_dictionary, dictionary_encoded
from glaive.arrow.conditions import InRange, IsNull, IsOneOf
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.bitmaps import (
    BLOCK_BYTES,
    BLOCK_WORDS,
    bit_numbers,
    block_numbers,
    filter_bytes,
    may_have,
)
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    Entries,
    IndexKind,
    IndexQuery,
    IndexSource,
    RebuiltSegment,
    ScalarIndex,
    check_type,
    index_kind,
    integer,
    probability,
    stored_batches,
)
from glaive.index.row_sets import NO_ROWS, ROWSETS, AddressMap, RowNumbers, RowSet, row_set_in
from glaive.index.scalar.ordering import (
    Extremes,
    SortKeys,
    accepts,
    hash_values,
    is_hashed,
    is_sortable,
    key_of,
    prefix_range,
    sort_keys,
)
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.text.postings import encode_varints
from glaive.types import Flags, Int64s, UInt32s, UInt64s, as_buffer, items_of

NULLS = "null_bitmap"
_SHIFT = np.uint64(32)
_NO_ROWS = np.empty(0, np.uint64)

ZONE_FIELDS: tuple[pa.Field[Any], ...] = tuple(
    pa.field(name, pa.uint64(), nullable=False)
    for name in ("fragment_id", "zone_start", "zone_length")
)


@dataclass(frozen=True, eq=False)
class StoredZones:
    """The zones of a segment as ranges of row addresses, and the null rows.

    Parameters
    ----------
    starts, stops
        First and past-the-end address of each zone.
    nulls
        Addresses of null rows; ``None`` if an old writer omitted them.
    """

    starts: RowNumbers
    stops: RowNumbers
    nulls: RowSet | None

    @classmethod
    def read(cls, file: IndexFile) -> Self:
        """Read the zones of a file.

        Raises
        ------
        CorruptFileError
            Columns are missing, or a zone exceeds the addresses of its fragment.
        """
        names = [field.name for field in ZONE_FIELDS]
        file.check(**dict.fromkeys(names, pa.uint64()))
        rows = file.read(names)
        for name in names:
            file.check_present(rows[name])
        fragments, starts, lengths = (as_numpy(rows[name]) for name in names)
        limit = np.uint64(2**32 - 1)
        wrong = (fragments >= limit) | (starts > limit) | (lengths > limit)
        if bool(wrong.any()) or bool((starts + lengths > limit).any()):
            raise file.corrupt("zones of an index", "rows of a fragment", "others")
        first = (fragments << _SHIFT) + starts
        nulls = row_set_in(file.named_buffer(NULLS), file.path, file.size)
        return cls(first, first + lengths, nulls)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        nulls = 0 if self.nulls is None else self.nulls.nbytes
        return int(self.starts.nbytes + self.stops.nbytes + nulls)

    def rows(self, zones: Flags) -> RowSet:
        """Return all rows of some zones."""
        return RowSet.of_ranges(self.starts[zones], self.stops[zones])

    def count(self, zones: Flags) -> int:
        """Return the number of rows of some zones."""
        return int((self.stops[zones] - self.starts[zones]).sum())

    @cached_property
    def every(self) -> Flags:
        """Flags that select all zones."""
        return np.ones(len(self.starts), np.bool_)


class OpenedZones(ScalarIndex):
    """The zones of a segment. A search skips zones whose rows all fail.

    Parameters
    ----------
    zones
        Rows of the zones.
    has_null
        Flags of the zones with nulls.
    """

    def __init__(self, zones: StoredZones, has_null: Flags) -> None:
        self._zones, self._has_null = zones, has_null

    def compared(self, query: IndexQuery) -> int:
        """Return the number of zones."""
        return len(self._has_null)

    def estimate(self, query: IndexQuery) -> int:
        """Return the number of rows in zones that may pass, or of null rows."""
        if isinstance(query, IsNull) and not query.negated and self._zones.nulls is not None:
            return self._zones.nulls.count
        return self._zones.count(self._select(query))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find zones whose rows may pass; null rows are exact."""
        zones, known = self._zones, self._zones.nulls
        if isinstance(query, IsNull) and known is not None:
            rows = zones.rows(zones.every).difference(known) if query.negated else known
            return Candidates(rows, NO_ROWS if nulls else None, exact=True)
        rows = zones.rows(self._select(query))
        return Candidates(rows, known or NO_ROWS if nulls else None, exact=False)

    @abstractmethod
    def _select(self, query: Any) -> Flags:
        """Return flags of the zones whose rows may pass."""


class ZoneKind(IndexKind):
    """A kind of index with one file that has a row per zone. A rewrite changes the zones."""

    newest: ClassVar[int] = 0
    stores_addresses: ClassVar[bool] = True

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Remove deleted rows from the null rows, and keep all zones.

        A zone of deleted rows only costs some time in searches. Return ``None`` if rows move, or if
        an old writer omitted null rows: zones must be built again.
        """
        (name,) = self.markers
        file = segment.open(name)
        if address_map.moves or NULLS not in file.metadata:
            return None
        (nulls,) = ROWSETS.remap([stored_nulls(file)], address_map, file.path)
        metadata = {key: value for key, value in file.metadata.items() if key != NULLS}
        rows = file.read().replace_schema_metadata()
        out.write(name, rows, metadata=metadata, buffers={NULLS: nulls})
        return RebuiltSegment()

    def _write(
        self,
        tables: Sequence[pa.Table],
        files: Sequence[IndexFile],
        made: tuple[pa.Table, bytes] | None,
        metadata: Mapping[str, str],
        out: SegmentWriter,
        stored: Callable[[pa.Table], pa.Table] = lambda zones: zones,
    ) -> pa.Schema:
        """Write the zones of some files, and of a source; return their columns."""
        nulls = [stored_nulls(file) for file in files]
        if made is not None:
            tables, nulls = [*tables, made[0]], [*nulls, made[1]]
        zones = stored(joined(tables, files))
        (name,) = self.markers
        out.write(name, zones, metadata=metadata, buffers={NULLS: ROWSETS.union(nulls)})
        return zones.schema


class ZoneBatch(NamedTuple):
    """Adjacent rows of a fragment, and their zones.

    Parameters
    ----------
    values
        Values of the rows.
    zones
        Numbers of the zones in the batch, ascending; the source's first zone is 0. The first zone
        may begin, and the last may end, in another batch.
    starts
        Start of each of these zones in the batch.
    """

    values: Any
    zones: Int64s
    starts: Int64s


class Zoned:
    """Cuts the rows of a source into zones of ``rows_per_zone`` live rows, in one fragment each.

    While :meth:`batches` reads, it collects the zones and the null rows.
    """

    def __init__(self, source: IndexSource, rows_per_zone: int) -> None:
        self._source, self._per_zone = source, rows_per_zone
        self._fragment, self._live, self._count = -1, 0, 0
        self._parts: list[tuple[Int64s, RowNumbers, RowNumbers, Int64s]] = []
        self._null_rows: list[RowNumbers] = []

    def batches(self) -> Iterator[ZoneBatch]:
        """Yield batches of rows with their zones."""
        for values, rows in stored_batches(self._source):
            if len(rows):
                yield self._zoned(values, rows)

    def _zoned(self, values: Any, rows: RowNumbers) -> ZoneBatch:
        fragment = int(rows[0] >> _SHIFT)
        if fragment != self._fragment:
            self._fragment, self._live = fragment, 0
        inside = self._live % self._per_zone
        starts = np.arange(-inside % self._per_zone, len(rows), self._per_zone)
        if inside:
            starts = np.concatenate((np.zeros(1, np.int64), starts))
        zones = np.arange(len(starts)) + (self._count - (inside > 0))
        self._live += len(rows)
        self._count = int(zones[-1]) + 1
        nulls = np.zeros(len(starts), np.int64)
        if values.null_count:
            absent = as_numpy(values.is_null())
            nulls = np.add.reduceat(absent.astype(np.int64), starts)
            self._null_rows.append(rows[absent])
        lasts = np.append(starts[1:], len(rows)) - 1
        self._parts.append((zones, rows[starts], rows[lasts], nulls))
        return ZoneBatch(values, zones, starts)

    def columns(self) -> tuple[Sequence[pa.Array], Int64s]:
        """Return ``fragment_id``, ``zone_start`` and ``zone_length``, and nulls per zone."""
        if not self._parts:
            none = number_array(np.empty(0, np.uint64))
            return (none, none, none), np.empty(0, np.int64)
        zones, first, last, nulls = (
            np.concatenate(part) for part in zip(*self._parts, strict=True)
        )
        begins = np.flatnonzero(np.diff(zones, prepend=-1))
        ends = np.append(begins[1:], len(zones)) - 1
        first, last = first[begins], last[ends]
        offsets = first & np.uint64(0xFFFF_FFFF)
        found = (first >> _SHIFT, offsets, last - first + np.uint64(1))
        return [number_array(column) for column in found], np.add.reduceat(nulls, begins)

    def nulls(self) -> bytes:
        """Return the null rows, encoded."""
        return ROWSETS.of(np.sort(np.concatenate([_NO_ROWS, *self._null_rows])))


# --- merging ------------------------------------------------------------------------------


def shared_setting(files: Sequence[IndexFile], key: str, default: str) -> str:
    """Return a metadata value that must be equal in all files.

    Raises
    ------
    UnsupportedFeatureError
        The files have different values.
    """
    found = {file.metadata.get(key, default) for file in files}
    if len(found) > 1:
        raise UnsupportedFeatureError(
            f"{files[0].path}: segments with different {key} ({', '.join(sorted(found))}) are not "
            "merged: build the index again"
        )
    return found.pop()


def stored_setting(file: IndexFile, given: Mapping[str, int], name: str) -> int:
    """Check a build parameter in the metadata; raise ``CorruptFileError`` if it is wrong."""
    try:
        return integer(given, name, 1)
    except OptionError as error:
        raise file.corrupt(f"setting {name!r}", "a number of rows", str(error)) from error


def stored_nulls(file: IndexFile) -> bytes:
    """Return the null rows, encoded.

    Raises
    ------
    UnsupportedFeatureError
        An old writer omitted them.
    """
    data = file.named_buffer(NULLS)
    if data is None:
        raise UnsupportedFeatureError(
            f"{file.path}: an old writer did not say which rows are null: build the index again"
        )
    return data


def joined(tables: Sequence[pa.Table], files: Sequence[IndexFile]) -> pa.Table:
    """Concatenate the zones of some files, and of a source."""
    schema = tables[-1].schema.remove_metadata()
    for table, file in zip(tables, files, strict=False):
        if not table.schema.equals(schema):
            raise file.corrupt("zones of an index", f"{schema}", f"{table.schema}")
    return pa.concat_tables([table.replace_schema_metadata() for table in tables])


# --- ZONEMAP, searched: skip zones by their bounds --------------------------------------
# Specification: "ZONEMAP" in ``docs/format/scalar-indices.md``.


class OpenedZoneMap(OpenedZones):
    """The bounds of all zones.

    Parameters
    ----------
    zones
        Rows of the zones.
    low, high
        Smallest and largest number or other value of each zone; null if unknown.
    nulls
        Number of null rows of each zone.
    has_nan
        Flags of zones with NaN. The bounds of such a zone are ignored.
    """

    def __init__(
        self, zones: StoredZones, low: Any, high: Any, nulls: UInt32s, has_nan: Flags
    ) -> None:
        super().__init__(zones, nulls > 0)
        self._kind = low.type
        self._low, self._high = sort_keys(low), sort_keys(high)
        self._bounded = as_numpy(low.is_valid()) & as_numpy(high.is_valid()) & ~has_nan
        # For some types pylance omits bounds: such a zone may have any value.
        self._any = ~self._bounded & (nulls < zones.stops - zones.starts)
        self._own_bytes = int(low.nbytes + high.nbytes) * 4 + 3 * len(nulls)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._zones.nbytes + self._own_bytes

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query is a condition on this type; for strings, also a prefix."""
        return accepts(self._kind, query)

    def _select(self, query: Any) -> Flags:
        """Return flags of the zones whose rows may pass."""
        if isinstance(query, IsNull):
            return self._zones.every if query.negated else self._has_null
        if isinstance(query, IsOneOf):
            found = self._one_of(query)
        elif isinstance(query, InRange):
            low, high = (None if one is None else key_of(one) for one in (query.low, query.high))
            found = self._within(low, high, (query.low_included, query.high_included))
        else:
            found = self._within(*prefix_range(query.word), (True, False))
        flags: Flags = self._any | (found & self._bounded)
        return flags

    def _within(self, low: SortKeys | None, high: SortKeys | None, included: _Ends) -> Flags:
        found = np.ones(len(self._low), np.bool_)
        # Compare with arrays of one: NumPy strips trailing zero bytes from byte string scalars.
        if low is not None:
            found &= self._high >= low if included[0] else self._high > low
        if high is not None:
            found &= self._low <= high if included[1] else self._low < high
        return found

    def _one_of(self, query: IsOneOf) -> Flags:
        values: Any = query.values
        if query.negated and values.null_count:
            return np.zeros(len(self._low), np.bool_)
        wanted = np.sort(sort_keys(values.drop_null()))
        if not len(wanted):
            return np.full(len(self._low), query.negated)
        at = np.searchsorted(wanted, self._low)
        nearest = wanted[np.minimum(at, len(wanted) - 1)]
        inside = (at < len(wanted)) & (nearest <= self._high)
        return ~(inside & (self._low == self._high)) if query.negated else inside


_Ends: TypeAlias = tuple[bool, bool]


ZONES = "zonemap.lance"
_ROWS = "rows_per_zone"
_DEFAULT_ROWS = 8192
_BOUNDS = ("min", "max")
_COUNTS = ("null_count", "nan_count")


@index_kind
class ZoneMap(ZoneKind):
    """Smallest and largest value of each zone of rows."""

    name: ClassVar[str] = "zonemap"
    title: ClassVar[str] = "ZONEMAP"
    options: ClassVar[tuple[str, ...]] = (_ROWS,)
    markers: ClassVar[tuple[str, ...]] = (ZONES,)

    def open(self, segment: Segment) -> OpenedZoneMap:
        """Read all zones."""
        file = _opened(segment)
        rows = file.read([*_BOUNDS, *_COUNTS])
        low, high = (_decoded(rows[name].combine_chunks()) for name in _BOUNDS)
        if not is_sortable(low.type):
            raise UnsupportedFeatureError(
                f"{file.path}: values of type {low.type} are not searched"
            )
        for name in _COUNTS:
            file.check_present(rows[name])
        nulls, nans = (as_numpy(rows[name]) for name in _COUNTS)
        return OpenedZoneMap(StoredZones.read(file), low, high, nulls, nans > 0)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the rows per zone."""
        file = segment.open(ZONES)
        given = {_ROWS: file.number(_ROWS, _DEFAULT_ROWS, minimum=1)}
        return {_ROWS: stored_setting(file, given, _ROWS)}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the number of zones, and the rows per zone."""
        return {"num_zones": segment.open(ZONES).num_rows, **self.parameters(segment)}

    def value_type(self, segment: Segment) -> pa.DataType | None:
        """Return the type of the bounds."""
        file = _opened(segment)
        kind: pa.DataType = file.schema.field("min").type
        return kind

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Concatenate the zones of all segments, then the zones of the source.

        The parameter ``rows_per_zone`` is 8,192 by default.
        """
        files = [_opened(segment) for segment in given.segments]
        rows_per_zone = integer(given.parameters, _ROWS, _DEFAULT_ROWS)
        kind, made = None, None
        if files:
            shared_setting(files, _ROWS, str(_DEFAULT_ROWS))
            kind = self.value_type(given.segments[-1])
        tables = [_plain(file.read()) for file in files]
        if given.source is not None:
            field = given.source.field
            if not files:
                check_type("ZONEMAP", field, supported=is_sortable(field.type))
            made = _zones_of(given.source, rows_per_zone)
            kind = given.source.dictionary_type
        metadata = {_ROWS: str(rows_per_zone)}
        schema = self._write(tables, files, made, metadata, out, partial(_stored_as, kind=kind))
        return BuiltSegment(_DETAILS, _details(rows_per_zone, schema.field("min").type))


def _opened(segment: Segment) -> IndexFile:
    """Open the file of a segment, and check the columns of bounds and counts.

    Raises
    ------
    CorruptFileError
        Columns are missing or have wrong types.
    """
    file = segment.open(ZONES)
    file.check(min=None, max=None, **dict.fromkeys(_COUNTS, pa.uint32()))
    kinds = {file.schema.field(name).type for name in _BOUNDS}
    if len(kinds) > 1:
        raise file.corrupt("zones of an index", "bounds of one type", f"{kinds}")
    return file


def _zones_of(source: IndexSource, rows_per_zone: int) -> tuple[pa.Table, bytes]:
    """Return the zones of a source, and the null rows; bounds of dictionaries are decoded.

    For unordered types, bounds are null: pylance builds such indices, too.
    """
    zoned, extremes = Zoned(source, rows_per_zone), Extremes(source.field.type)
    has_order = is_sortable(source.field.type)
    for batch in zoned.batches():
        if has_order:
            extremes.add(*batch)
    columns, nulls = zoned.columns()
    if has_order:
        low, high, nans = extremes.finish()
    else:
        kind: Any = source.field.type
        low = high = pa.nulls(len(nulls), kind)
        nans = np.zeros(len(nulls), np.int64)
    counts = [number_array(one.astype(np.uint32)) for one in (nulls, nans)]
    schema = _schema(source.field.type)
    return pa.table([low, high, *counts, *columns], schema=schema), zoned.nulls()


_DETAILS = "/lance.table.ZoneMapIndexDetails"


@lru_cache(maxsize=64)
def _details(rows_per_zone: int, kind: pa.DataType) -> bytes:
    """Encode the rows per zone, pylance's ``use_seeds``, and a flag that null rows are stored."""
    tests = ("string", "large_string", "binary", "large_binary", "decimal")
    seeds = any(getattr(pa.types, f"is_{test}")(kind) for test in tests)
    rows = bytes(encode_varints(np.array([rows_per_zone]))[0])
    return b"\x08" + rows + bytes([0x10, int(seeds), 0x18, 1])


def _schema(kind: pa.DataType) -> pa.Schema:
    bounds = [pa.field(name, kind) for name in _BOUNDS]
    counts = [pa.field(name, pa.uint32(), nullable=False) for name in _COUNTS]
    return pa.schema([*bounds, *counts, *ZONE_FIELDS])


def _decoded(bounds: Any) -> Any:
    return decode_dictionary(bounds) if pa.types.is_dictionary(bounds.type) else bounds


def _plain(zones: pa.Table) -> pa.Table:
    """Decode the bounds of a file that are dictionaries."""
    return _with_bounds(zones, [_decoded(zones[name].combine_chunks()) for name in _BOUNDS])


def _with_bounds(zones: pa.Table, bounds: Sequence[Any]) -> pa.Table:
    for name, bound in zip(_BOUNDS, bounds, strict=True):
        at = zones.schema.get_field_index(name)
        zones = zones.set_column(at, pa.field(name, bound.type), bound)
    return zones


def _stored_as(zones: pa.Table, kind: pa.DataType | None) -> pa.Table:
    """Encode bounds as dictionaries if the column is one; keep them if its type is unknown."""
    if kind is None or not pa.types.is_dictionary(kind):
        return zones
    return _with_bounds(zones, [_encoded(zones[name].combine_chunks(), kind) for name in _BOUNDS])


def _encoded(bounds: Any, kind: Any) -> Any:
    """Encode bounds as dictionaries with the column's index type, which pylance requires.

    If that type is too narrow for the bounds, they become null, as in pylance: such zones always
    pass.
    """
    encoded = dictionary_encoded(bounds)
    try:
        indices = encoded.indices.cast(kind.index_type)
    except pa.ArrowInvalid:
        indices = pa.nulls(len(bounds), kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)


# --- BLOOMFILTER: a Bloom filter per zone of rows ---------------------------------------
# Specification: "BLOOMFILTER" in ``docs/format/scalar-indices.md``.

MEMBER = b"glaive.member"
"""Metadata key of a field that is a member of JSON documents instead of a column."""
_MAX_BYTES = 1 << 27


class FilterBuilder:
    """Builds the filter of each zone, batch by batch.

    Parameters
    ----------
    size
        Bytes of a filter.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._bits = np.empty((0, size * 8), np.bool_)
        self._finished: list[NDArray[np.uint8]] = []
        self._first = 0

    def add(self, batch: ZoneBatch) -> None:
        """Add the values of a batch."""
        values, zones, starts = batch
        for first in range(0, len(zones), self._batch_zones):
            last = min(len(zones), first + self._batch_zones)
            stop = starts[last] if last < len(zones) else len(values)
            start = int(starts[first])
            self._close(int(zones[first]))
            self._open(int(zones[last - 1]))
            part = values[start : int(stop)]
            owner = np.repeat(
                zones[first:last] - self._first, np.diff(np.append(starts[first:last], stop))
            )
            if part.null_count:
                owner = owner[as_numpy(part.is_valid())]
                part = part.drop_null()
            self._set(owner, hash_values(part))

    @property
    def _batch_zones(self) -> int:
        """Number of zones whose filters are built at a time."""
        return max(1, _MAX_BYTES // (8 * self._size))

    def _set(self, owner: NDArray[np.int64], hashes: UInt64s) -> None:
        flat = self._bits.reshape(-1)
        blocks = block_numbers(hashes, self._size // BLOCK_BYTES)
        base = (owner * self._size + blocks * BLOCK_BYTES) * 8
        for word in range(BLOCK_WORDS):
            flat[base + word * 32 + bit_numbers(hashes, word)] = True

    def _open(self, zone: int) -> None:
        """Allocate the filters up to a zone."""
        missing = zone + 1 - self._first - len(self._bits)
        if missing > 0:
            more = np.zeros((missing, self._size * 8), np.bool_)
            self._bits = np.concatenate((self._bits, more)) if len(self._bits) else more

    def _close(self, zone: int) -> None:
        """Finish the filters before a zone."""
        done = min(zone - self._first, len(self._bits))
        if done > 0:
            packed = np.packbits(self._bits[:done], axis=1, bitorder="little")
            self._finished.append(packed.reshape(-1))
            self._bits = self._bits[done:]
            self._first += done

    def finish(self) -> pa.Array:
        """Return the filters of all zones."""
        self._close(self._first + len(self._bits))
        data = np.concatenate([np.empty(0, np.uint8), *self._finished])
        fixed: Any = pa.binary(self._size)
        count = len(data) // self._size
        filters: Any = pa.Array.from_buffers(fixed, count, [None, as_buffer(data)])
        cast: pa.Array = filters.cast(pa.binary())
        return cast


# --- BLOOMFILTER, searched: skip zones whose filter lacks the values --------------------
# Specification: "BLOOMFILTER" in ``docs/format/scalar-indices.md``.

_RESIDENT_BYTES = 1 << 26
"""Maximum size of a file whose filters are read when it is opened."""

_WINDOW_BYTES = 1 << 24
"""Bytes of a larger file that are read at a time."""

_MAX_VALUES, _MAX_ZONES = 64, 1 << 12
"""Values, and zones, to test at a time: 32 bytes of memory per value and zone."""


class OpenedBloomFilter(OpenedZones):
    """The zones, and their filters if these are small.

    Parameters
    ----------
    file
        File of the filters.
    zones
        Rows of the zones.
    """

    def __init__(self, file: IndexFile, zones: StoredZones) -> None:
        has_null: Any = file.read(["has_null"])["has_null"].combine_chunks()
        file.check_present(has_null)
        super().__init__(zones, as_numpy(has_null))
        self._file, self._is_column = file, True
        self._type: pa.DataType | None = None
        self._filters = self._read(0, file.num_rows) if file.size <= _RESIDENT_BYTES else None

    def of_members(self, kind: pa.DataType | None) -> OpenedBloomFilter:
        """Answer for members of JSON documents that have this type; with ``None``, only for nulls.

        The type matters: a filter with 7.0 or '7' lacks 7, although a JSON function may read 7 in
        all three.
        """
        self._is_column, self._type = False, kind
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        filters = 0 if self._filters is None else self._filters.nbytes
        return int(self._zones.nbytes + self._has_null.nbytes + self._file.nbytes + filters)

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query asks for some values, or for nulls."""
        if isinstance(query, IsNull):
            return not query.negated
        values = _values(query)
        if values is None or not (self._is_column or values.type == self._type):
            return False
        return is_hashed(values.type)

    def estimate(self, query: IndexQuery) -> int:
        """Return the number of null rows; for n values, the rows of n zones."""
        if isinstance(query, IsNull):
            return super().estimate(query)
        count = len(self._has_null)
        share = min(1.0, len(_values(query)) / max(1, count))
        return int(self._zones.count(self._zones.every) * share)

    def _select(self, query: Any) -> Flags:
        if isinstance(query, IsNull):
            return self._has_null
        hashes = hash_values(_values(query).drop_null())
        if self._filters is not None:
            return _any_of(self._filters, hashes)
        per_zone = max(1, self._file.size // max(1, len(self._has_null)))
        zones = max(1, _WINDOW_BYTES // per_zone)
        found = [
            _any_of(self._read(start, start + zones), hashes)
            for start in range(0, self._file.num_rows, zones)
        ]
        return np.concatenate(found)

    def _read(self, start: int, stop: int) -> NDArray[np.uint32]:
        """Read the words of the filters of some zones; all filters must have one size."""
        column = self._file.read(["bloom_filter_data"], start, stop)["bloom_filter_data"]
        self._file.check_present(column)
        data: Any = column.combine_chunks()
        if not len(data):
            return np.empty((0, BLOCK_BYTES // 4), np.uint32)
        sizes = np.unique(np.diff(_offsets_of(data)))
        size = int(sizes[0])
        if len(sizes) > 1 or size < BLOCK_BYTES or size % BLOCK_BYTES:
            expected = f"filters of one size, in blocks of {BLOCK_BYTES} bytes"
            raise self._file.corrupt("filters of an index", expected, f"{sizes[:4]} bytes")
        first = int(_offsets_of(data)[0])
        words = items_of(data.buffers()[2], "<u4", len(data) * size // 4, first)
        return words.reshape(len(data), -1)


def _offsets_of(data: Any) -> NDArray[np.int32]:
    """Return the offsets of a binary array."""
    return items_of(data.buffers()[1], "<i4", len(data) + 1, 4 * data.offset)


def _any_of(filters: NDArray[np.uint32], hashes: UInt64s) -> Flags:
    found = np.zeros(len(filters), np.bool_)
    for start in range(0, len(hashes), _MAX_VALUES):
        some, rest = hashes[start : start + _MAX_VALUES], np.flatnonzero(~found)
        for first in range(0, len(rest), _MAX_ZONES):
            zones = rest[first : first + _MAX_ZONES]
            found[zones] = may_have(filters[zones], some).any(axis=1)
    return found


def _values(query: Any) -> Any:
    """Return the values of a query by equality; ``None`` for another query."""
    if isinstance(query, IsOneOf):
        return None if query.negated else query.values
    if isinstance(query, InRange) and query.low is not None and query.low == query.high:
        if not (query.low_included and query.high_included):
            return None
        # Use both bounds: -0.0 equals 0.0, but has another hash.
        low, high = cast("Any", query.low), cast("Any", query.high)
        return pa.concat_arrays([pa.repeat(low, 1), pa.repeat(high, 1)])
    return None


FILTERS = "bloomfilter.lance"
_ITEMS, _PROBABILITY = "number_of_items", "probability"
_STORED_ITEMS, _STORED_PROBABILITY = "bloomfilter_item", "bloomfilter_probability"
_DEFAULT_ITEMS, _DEFAULT_PROBABILITY = 8192, 0.00057
_STORED_TYPE = "glaive.value_type"
_MEMBER_TYPES = {str(kind): kind for kind in (pa.int64(), pa.float64(), pa.string())}
"""Types of JSON members in filters; for columns, the schema has the type."""


@index_kind
class BloomFilter(ZoneKind):
    """A Bloom filter per zone of rows."""

    name: ClassVar[str] = "bloomfilter"
    title: ClassVar[str] = "BLOOMFILTER"
    options: ClassVar[tuple[str, ...]] = (_ITEMS, _PROBABILITY)
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (FILTERS,)

    def open(self, segment: Segment) -> OpenedBloomFilter:
        """Read the zones, and the filters if these are small."""
        file = segment.open(FILTERS)
        file.check(has_null=pa.bool_(), bloom_filter_data=pa.binary())
        return OpenedBloomFilter(file, StoredZones.read(file))

    def value_type(self, segment: Segment) -> pa.DataType | None:
        """Return the type of the values, if the file stores it; filters ignore it."""
        return _MEMBER_TYPES.get(segment.open(FILTERS).metadata.get(_STORED_TYPE, ""))

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the rows per zone, and the probability of false positives."""
        file = segment.open(FILTERS)
        given = {_ITEMS: file.number(_STORED_ITEMS, _DEFAULT_ITEMS, minimum=1)}
        chance = file.metadata.get(_STORED_PROBABILITY, _text(_DEFAULT_PROBABILITY))
        items = stored_setting(file, given, _ITEMS)
        return {_ITEMS: items, _PROBABILITY: _probability_of(file, chance)}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the number of zones, the rows per zone, and the probability of false positives."""
        count = segment.open(FILTERS).num_rows
        return {"type": "BloomFilter", "num_blocks": count, **self.parameters(segment)}

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Concatenate the zones of all segments, then the zones of the source.

        Parameters are ``number_of_items`` and ``probability``. ``number_of_items`` is the number of
        rows of a zone and the expected number of distinct values in it; default: 8,192.
        ``probability`` is the chance that a zone is read in vain; default: 0.00057.
        """
        files = [segment.open(FILTERS) for segment in given.segments]
        items = integer(given.parameters, _ITEMS, _DEFAULT_ITEMS)
        wanted = probability(given.parameters, _PROBABILITY, _DEFAULT_PROBABILITY)
        settings = str(items), _text(wanted)
        if files:
            settings = (
                shared_setting(files, _STORED_ITEMS, str(_DEFAULT_ITEMS)),
                shared_setting(files, _STORED_PROBABILITY, _text(_DEFAULT_PROBABILITY)),
            )
        made = None
        kinds = {self.value_type(segment) for segment in given.segments}
        if given.source is not None:
            kinds.add(_noted(given.source))
            made = _filtered_zones(given.source, items, wanted)
        metadata = dict(zip((_STORED_ITEMS, _STORED_PROBABILITY), settings, strict=True))
        if len(kinds) == 1 and None not in kinds:
            metadata[_STORED_TYPE] = str(*kinds)
        self._write([file.read() for file in files], files, made, metadata, out)
        return BuiltSegment("/lance.index.pb.BloomFilterIndexDetails")


def _probability_of(file: IndexFile, text: str) -> float:
    """Read the probability of the metadata; raise ``CorruptFileError`` for other values."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise file.corrupt(f"metadata {_STORED_PROBABILITY!r}", "a number from 0 to 1", repr(text))
    return value


def _text(value: float) -> str:
    return f"{value:.17f}".rstrip("0") if value < 1e-4 else repr(value)


def _noted(source: IndexSource) -> pa.DataType | None:
    """Return the type to store in the file; only for members of JSON documents."""
    return source.field.type if MEMBER in (source.field.metadata or {}) else None


def _filtered_zones(source: IndexSource, items: int, wanted: float) -> tuple[pa.Table, bytes]:
    """Return the zones of a source with their filters, and the null rows."""
    check_type("BLOOMFILTER", source.field, supported=is_hashed(source.field.type))
    zoned = Zoned(source, items)
    filters = FilterBuilder(filter_bytes(items, wanted))
    for batch in zoned.batches():
        filters.add(batch)
    columns, nulls = zoned.columns()
    schema = pa.schema(
        [
            *ZONE_FIELDS,
            pa.field("has_null", pa.bool_(), nullable=False),
            pa.field("bloom_filter_data", pa.binary(), nullable=False),
        ]
    )
    return pa.table(
        [*columns, flag_array(nulls > 0), filters.finish()], schema=schema
    ), zoned.nulls()
