"""BLOOMFILTER: a filter of the values of each zone of rows.

Specification: "BLOOMFILTER" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import InRange, IsNull, IsOneOf
from glaive.format.bitmaps import BLOCK_BYTES, BLOCK_WORDS, bit_numbers, block_numbers, word_masks
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
)
from glaive.index.row_sets import NO_ROWS, ROWSETS, AddressMap
from glaive.index.scalar.ordering import bytes_of, is_number
from glaive.index.scalar.zones import (
    NULLS,
    ZONE_FIELDS,
    StoredZones,
    ZoneBatch,
    Zoned,
    joined,
    retained_zones,
    shared_setting,
    stored_nulls,
    stored_setting,
)
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.kernels.hashing import hash_strings, hash_words
from glaive.kernels.strings import Strings
from glaive.types import Flags, UInt64s, as_buffer, items_of

MEMBER = b"glaive.member"
"""Key of the metadata of a field that is a member of documents, not a column."""

# --- Bloom filters of zones of rows, and of what values they are made -------------------
# Specification: "BLOOMFILTER" in ``docs/format/indices.md``.

_MAX_BYTES = 1 << 27
_CROWDED = 4096
"""Values of a block of 256 bits that leave none of them: an index may say any number."""

_MOST_PER_VALUE = 1024
"""Bytes of a filter for each value, at most: one of 10^12 other values passes it. An index that
asks for less would take any amount of memory."""


def is_hashed(kind: pa.DataType) -> bool:
    """Whether filters can be made for values of a type."""
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    is_number_or_time = is_number(kind) and not (types.is_float16(kind) or types.is_duration(kind))
    return is_number_or_time or any(test(kind) for test in texts)


def hash_values(values: Any) -> UInt64s:
    """XXH64 of the bytes of values of a hashed type, of which none is null."""
    count = len(values)
    if not count:
        return np.empty(0, np.uint64)
    if not is_number(values.type):
        plain = bytes_of(values)
        _, offsets, data = plain.buffers()
        bits = 64 if pa.types.is_large_binary(plain.type) else 32
        start = plain.offset * bits // 8
        return hash_strings(Strings(offsets.slice(start), bits, data or pa.py_buffer(b"")), count)
    width = values.type.bit_width // 8
    words = items_of(values.buffers()[1], f"<u{width}", count, values.offset * width)
    if width == 8:
        return hash_words(words)
    ends = as_buffer(np.arange(count + 1, dtype=np.int64) * width)
    return hash_strings(Strings(ends, 64, as_buffer(np.ascontiguousarray(words))), count)


class FilterBuilder:
    """Makes the filter of each zone, batch by batch.

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
        """Take the values of a batch into account."""
        values, zones, starts = batch
        for first in range(0, len(zones), self._at_once):
            last = min(len(zones), first + self._at_once)
            stop = starts[last] if last < len(zones) else len(values)
            start = int(starts[first])
            self._close(int(zones[first]))
            self._open(int(zones[last - 1]))
            part = values[start : int(stop)]
            owner = np.repeat(
                zones[first:last] - self._first, np.diff(np.append(starts[first:last], stop))
            )
            if part.null_count:
                owner = owner[np.asarray(part.is_valid())]
                part = part.drop_null()
            self._set(owner, hash_values(part))

    @property
    def _at_once(self) -> int:
        """Zones whose filters are made at a time."""
        return max(1, _MAX_BYTES // (8 * self._size))

    def _set(self, owner: NDArray[np.int64], hashes: UInt64s) -> None:
        flat = self._bits.reshape(-1)
        blocks = block_numbers(hashes, self._size // BLOCK_BYTES)
        base = (owner * self._size + blocks * BLOCK_BYTES) * 8
        for word in range(BLOCK_WORDS):
            flat[base + word * 32 + bit_numbers(hashes, word)] = True

    def _open(self, zone: int) -> None:
        """Make room for the filters up to a zone."""
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
        """The filters of all zones."""
        self._close(self._first + len(self._bits))
        data = np.concatenate([np.empty(0, np.uint8), *self._finished])
        fixed: Any = pa.binary(self._size)
        count = len(data) // self._size
        filters: Any = pa.Array.from_buffers(fixed, count, [None, as_buffer(data)])
        cast: pa.Array = filters.cast(pa.binary())
        return cast


def may_have(filters: NDArray[np.uint32], hashes: UInt64s) -> Flags:
    """Which filters may have which values.

    Parameters
    ----------
    filters
        Words of the filters. Shape ``(filters, words)``.
    hashes
        Shape ``(values,)``.

    Returns
    -------
    numpy.ndarray
        Shape ``(filters, values)``.
    """
    blocks = block_numbers(hashes, filters.shape[1] // BLOCK_WORDS)
    words = filters[:, blocks[:, None] * BLOCK_WORDS + np.arange(BLOCK_WORDS)]
    bits = word_masks(hashes)
    flags: Flags = ((words & bits) == bits).all(axis=2)
    return flags


@cache
def filter_bytes(items: int, probability: float) -> int:
    """Bytes of a filter of so many values: the smallest power of two with that probability."""
    size, most = BLOCK_BYTES, min(_MAX_BYTES, _MOST_PER_VALUE * items)
    while size < most and _false_positives(items, size // BLOCK_BYTES) > probability:
        size *= 2
    return size


def _false_positives(items: int, blocks: int) -> float:
    """Probability that a value that was not inserted is found: values per block are Poisson."""
    mean = items / blocks
    if mean > _CROWDED:
        return 1.0
    most = int(mean + 12 * mean**0.5 + 32)
    counts = np.arange(most + 1)
    logs = np.concatenate((np.zeros(1), np.cumsum(np.log(counts[1:]))))
    chances = np.exp(counts * np.log(mean) - mean - logs)
    return float((chances * (1 - (1 - 1 / 32) ** counts) ** BLOCK_WORDS).sum())


# --- BLOOMFILTER, searched: zones whose filter has none of the values are left out ------
# Specification: "BLOOMFILTER" in ``docs/format/indices.md``.

_RESIDENT_BYTES = 1 << 26
"""Filters of files up to this size are read when they are opened."""

_WINDOW_BYTES = 1 << 24
"""Of larger files, so much is read at a time."""

_MAX_VALUES, _MAX_ZONES = 64, 1 << 12
"""Values that are looked for at a time, and in so many zones: 32 bytes for each value and zone."""


class OpenedBloomFilter(ScalarIndex):
    """The zones, and their filters if they are small.

    Parameters
    ----------
    file
        The file of the filters.
    zones
        Where they are.
    """

    def __init__(self, file: IndexFile, zones: StoredZones) -> None:
        self._file, self._zones = file, zones
        self._type: pa.DataType | None = None
        self._is_column = True
        has_null: Any = file.read(["has_null"])["has_null"].combine_chunks()
        file.check_present(has_null)
        self._has_null = np.asarray(has_null)
        self._filters = self._read(0, file.num_rows) if file.size <= _RESIDENT_BYTES else None

    def of_members(self, kind: pa.DataType | None) -> OpenedBloomFilter:
        """Answer for members of documents, which are of this type; None: only for nulls.

        A filter of 7.0 or of '7' does not have 7, though a function reads 7 in all of them.
        """
        self._is_column, self._type = False, kind
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        filters = 0 if self._filters is None else self._filters.nbytes
        return int(self._zones.nbytes + self._has_null.nbytes + self._file.nbytes + filters)

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for some values, or for nulls."""
        if isinstance(query, IsNull):
            return not query.negated
        values = _values(query)
        if values is None or not (self._is_column or values.type == self._type):
            return False
        return is_hashed(values.type)

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the zones with nulls; of others, of as many zones as there are values."""
        if isinstance(query, IsNull):
            known = self._zones.nulls
            return self._zones.count(self._has_null) if known is None else known.count
        values = _values(query)
        count = len(self._has_null)
        share = min(1.0, len(values) / max(1, count))
        return int(self._zones.count(self._zones.every) * share)

    def compared(self, query: IndexQuery) -> int:
        """All zones."""
        return len(self._has_null)

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find zones that may have a value; nulls are known exactly."""
        known = self._zones.nulls
        if isinstance(query, IsNull):
            if known is not None:
                return Candidates(known, NO_ROWS if nulls else None, exact=True)
            rows = self._zones.rows(self._has_null)
            return Candidates(rows, NO_ROWS if nulls else None, exact=False)
        rows = self._zones.rows(self._select(hash_values(_values(query).drop_null())))
        return Candidates(rows, known or NO_ROWS if nulls else None, exact=False)

    def _select(self, hashes: UInt64s) -> Flags:
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
        """Words of the filters of some zones, which are all of one size."""
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
    """Where each value of a binary array begins, and the last one ends."""
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
    """The values that a query asks for; None if it asks for something else."""
    if isinstance(query, IsOneOf):
        return None if query.negated else query.values
    if isinstance(query, InRange) and query.low is not None and query.low == query.high:
        if not (query.low_included and query.high_included):
            return None
        # Both: -0.0 and 0.0 are equal, and hashed as their bits are.
        low, high = cast("Any", query.low), cast("Any", query.high)
        return pa.concat_arrays([pa.repeat(low, 1), pa.repeat(high, 1)])
    return None


FILTERS = "bloomfilter.lance"
_ITEMS, _PROBABILITY = "number_of_items", "probability"
_STORED_ITEMS, _STORED_PROBABILITY = "bloomfilter_item", "bloomfilter_probability"
_DEFAULT_ITEMS, _DEFAULT_PROBABILITY = 8192, 0.00057
_STORED_TYPE = "glaive.value_type"
_OF_MEMBERS = {str(kind): kind for kind in (pa.int64(), pa.float64(), pa.string())}
"""Types of members of documents that filters are made of; those of columns are in the schema."""


@index_kind
class BloomFilter(IndexKind):
    """A filter for the values of each zone of rows; a rewrite cuts other zones."""

    name: ClassVar[str] = "bloomfilter"
    title: ClassVar[str] = "BLOOMFILTER"
    options: ClassVar[tuple[str, ...]] = (_ITEMS, _PROBABILITY)
    newest: ClassVar[int] = 0
    indexes_dictionaries: ClassVar[bool] = False
    stores_addresses: ClassVar[bool] = True
    markers: ClassVar[tuple[str, ...]] = (FILTERS,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Drop nulls where rows stay where they are; else None: zones do not follow rows."""
        return retained_zones(segment, FILTERS, address_map, out)

    def open(self, segment: Segment) -> OpenedBloomFilter:
        """Read where the zones are; the filters too if they are small."""
        file = segment.open(FILTERS)
        file.check(has_null=pa.bool_(), bloom_filter_data=pa.binary())
        return OpenedBloomFilter(file, StoredZones.read(file))

    def value_type(self, segment: Segment) -> pa.DataType | None:
        """The type of the values, where the writer noted it: filters of others look the same."""
        return _OF_MEMBERS.get(segment.open(FILTERS).metadata.get(_STORED_TYPE, ""))

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The rows of a zone, and the probability."""
        file = segment.open(FILTERS)
        given = {_ITEMS: file.number(_STORED_ITEMS, _DEFAULT_ITEMS, least=1)}
        chance = file.metadata.get(_STORED_PROBABILITY, _text(_DEFAULT_PROBABILITY))
        items = stored_setting(file, given, _ITEMS)
        return {_ITEMS: items, _PROBABILITY: _probability_of(file, chance)}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Its zones, how many rows one has, and the probability."""
        count = segment.open(FILTERS).num_rows
        return {"type": "BloomFilter", "num_blocks": count, **self.parameters(segment)}

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Put the zones of all segments behind each other, and those of the source.

        Parameters are ``number_of_items``, the rows of a zone and the distinct values that are
        expected in it, 8,192 by default, and ``probability``, with which a zone is read in vain,
        0.00057 by default.
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
        tables = [file.read() for file in files]
        nulls = [stored_nulls(file) for file in files]
        kinds = {self.value_type(segment) for segment in given.segments}
        if given.source is not None:
            kinds.add(_noted(given.source))
            table, absent = _zones_of(given.source, items, wanted)
            tables.append(table)
            nulls.append(absent)
        return _write(joined(tables, files), nulls, settings, kinds, out)


def _probability_of(file: IndexFile, text: str) -> float:
    """The probability of the metadata; raises a ``CorruptFileError`` if it is none."""
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
    """The type that is noted in the file: of members of documents, not of columns."""
    return source.field.type if MEMBER in (source.field.metadata or {}) else None


def _zones_of(source: IndexSource, items: int, wanted: float) -> tuple[pa.Table, bytes]:
    """The zones of a source with their filters, and the rows that are null."""
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
    return pa.table([*columns, pa.array(nulls > 0), filters.finish()], schema=schema), zoned.nulls()


def _write(
    zones: pa.Table,
    nulls: Sequence[bytes],
    settings: tuple[str, str],
    kinds: set[pa.DataType | None],
    out: SegmentWriter,
) -> BuiltSegment:
    metadata = dict(zip((_STORED_ITEMS, _STORED_PROBABILITY), settings, strict=True))
    if len(kinds) == 1 and None not in kinds:
        metadata[_STORED_TYPE] = str(*kinds)
    out.write(FILTERS, zones, metadata=metadata, buffers={NULLS: ROWSETS.union(nulls)})
    return BuiltSegment("/lance.index.pb.BloomFilterIndexDetails")
