"""The order of values in scalar indices: ascending, floats by total order, strings by bytes.

Specification: "BTREE" in ``docs/format/scalar-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import NUMPY_TYPES, ascending, flag_array, number_array, pack_flags
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import (
    HasText,
    InRange,
    IsNull,
    IsOneOf,
    comparable_decimals,
    filled,
    float_order,
)
from glaive.dataclass import NamedTuple
from glaive.types import Flags, Int64s, UInt64s, as_buffer, items_of

SortKeys: TypeAlias = NDArray[Any]
"""Numbers or Python objects that sort like the values."""

_WORDS: Mapping[str, Sequence[pa.DataType]] = {
    "<i1": [pa.int8()],
    "<i2": [pa.int16(), pa.float16()],
    "<i4": [pa.int32(), pa.float32(), pa.date32(), pa.time32("s")],
    "<i8": [
        pa.int64(), pa.float64(), pa.date64(), pa.time64("us"), pa.timestamp("s"), pa.duration("s"),
    ],
    "<u1": [pa.uint8()],
    "<u2": [pa.uint16()],
    "<u4": [pa.uint32()],
    "<u8": [pa.uint64()],
}  # fmt: skip
_NUMBERS = {kind.id: np.dtype(word) for word, kinds in _WORDS.items() for kind in kinds}
"""Integer dtype of each number type, by type id; looked up for every constant of a query."""


def is_sortable(kind: pa.DataType) -> bool:
    """Return whether values of a type have an order."""
    return is_number(kind) or _is_object(kind) or pa.types.is_boolean(kind)


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is an integer, float or time, so that its keys are numbers."""
    return kind.id in _NUMBERS


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a string type."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type is a binary type of variable length."""
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_object(kind: pa.DataType) -> bool:
    is_fixed = pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind)
    return is_text(kind) or is_binary(kind) or is_fixed


def bytes_of(values: Any) -> Any:
    """View strings as binary values; return other arrays unchanged."""
    kind = values.type
    if pa.types.is_string(kind):
        return values.view(pa.binary())
    return values.view(pa.large_binary()) if pa.types.is_large_string(kind) else values


def sort_keys(values: pa.Array) -> SortKeys:
    """Return the keys of an array of a sortable type; keys of nulls are arbitrary.

    Keys of strings, binary values and decimals are Python objects. Use them for page bounds and
    query constants only: columns have too many values.
    """
    kind: Any = values.type
    if is_number(kind):
        return _numbers(values)
    if pa.types.is_boolean(kind):
        return as_numpy(filled(values, False)).view(np.uint8)
    return np.array(filled(bytes_of(values), _absent(kind)).to_pylist(), np.object_)


def distinct_keys(values: pa.Array) -> SortKeys:
    """Return the distinct keys of the valid values, ascending."""
    keys = sort_keys(values.drop_null() if values.null_count else values)
    return ascending(keys)


def values_of_keys(keys: NDArray[Any], kind: Any, absent: Flags | None = None) -> Any:
    """Convert number keys to values of a type; ``absent`` flags become null."""
    words = float_order(keys) if pa.types.is_floating(kind) else keys
    valid = None if absent is None or not absent.any() else pack_flags(~absent)
    return pa.Array.from_buffers(kind, len(words), [valid, as_buffer(np.ascontiguousarray(words))])


def key_of(value: Any) -> SortKeys:
    """Return the key of a valid scalar, in an array of one."""
    return sort_keys(pa.repeat(value, 1))


def prefix_range(prefix: str) -> tuple[SortKeys, SortKeys | None]:
    """Return keys of the first string with a prefix, and of the first string after all of these."""
    word = prefix.encode()
    stem = word.rstrip(b"\xff")
    return _object(word), _object(stem[:-1] + bytes([stem[-1] + 1])) if stem else None


def _object(key: bytes) -> SortKeys:
    keys = np.empty(1, np.object_)
    keys[0] = key
    return keys


def _absent(kind: Any) -> Any:
    if pa.types.is_decimal(kind):
        return 0
    return bytes(kind.byte_width) if pa.types.is_fixed_size_binary(kind) else b""


def _numbers(values: Any) -> NDArray[Any]:
    """Return fixed-width values as integers with the same order; copies only floats."""
    kind, data = values.type, values.buffers()[1]
    dtype = _NUMBERS[kind.id]
    if data is None:
        return np.zeros(len(values), dtype)
    words = items_of(data, dtype, len(values), values.offset * dtype.itemsize)
    return float_order(words) if pa.types.is_floating(kind) else words


def ascends(values: Any) -> bool:
    """Return whether all values of an array of a sortable type are valid and sorted."""
    if values.null_count:
        return False
    if is_number(values.type):
        keys = sort_keys(values)
        return bool((keys[1:] >= keys[:-1]).all())
    import pyarrow.compute as pc

    compared = comparable_decimals(values)
    below: Any = pc.less(compared[1:], compared[:-1])
    return not below.true_count


def group_starts(values: Any) -> Int64s:
    """Return the starts of distinct values in a sorted array, all valid or all null."""
    if not len(values):
        return np.empty(0, np.int64)
    if values.null_count:
        return np.zeros(1, np.int64)
    if is_number(values.type) or pa.types.is_boolean(values.type):
        keys = sort_keys(values)
        changes = keys[1:] != keys[:-1]
    else:
        import pyarrow.compute as pc

        if pa.types.is_decimal(values.type):  # Arrow refuses to compare negative scales
            values = values.view(pa.binary(values.type.byte_width))
        changes = as_numpy(pc.not_equal(values[1:], values[:-1]))
    return np.concatenate((np.zeros(1, np.int64), np.flatnonzero(changes) + 1))


def accepts(kind: pa.DataType, query: object) -> bool:
    """Return whether an index of sorted values answers a condition; for strings, also a prefix."""
    if isinstance(query, IsNull):
        return True
    if isinstance(query, IsOneOf):
        return bool(query.values.type == kind)
    if isinstance(query, InRange):
        return all(one is None or one.type == kind for one in (query.low, query.high))
    return isinstance(query, HasText) and query.begins and is_text(kind)


# --- Hashes of values ----------------------------------------------------------------------


def is_hashed(kind: pa.DataType) -> bool:
    """Return whether Bloom filters support a type."""
    is_other = pa.types.is_float16(kind) or pa.types.is_duration(kind)
    return (is_number(kind) and not is_other) or is_text(kind) or is_binary(kind)


def hash_values(values: Any) -> UInt64s:
    """Hash the bytes of valid values of a hashed type by XXH64."""
    from glaive.kernels.hashing import hash_strings
    from glaive.kernels.strings import Strings

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
    ends = as_buffer(np.arange(count + 1, dtype=np.int64) * width)
    return hash_strings(Strings(ends, 64, as_buffer(np.ascontiguousarray(words))), count)


# --- Smallest and largest values of zones; nulls and NaN are skipped --------------------
# Specification: "ZONEMAP" in ``docs/format/scalar-indices.md``.


class _Part(NamedTuple):
    """Number, smallest and largest value, and number of NaN of some zones.

    Number types store keys until the end; ``absent`` flags zones of nulls and NaN only.
    """

    zones: Int64s
    low: Any
    high: Any
    absent: Flags | None
    nans: Int64s


class Extremes:
    """Collects smallest and largest values of zones, batch by batch.

    Parameters
    ----------
    kind
        Type of the values.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._parts: list[_Part] = []

    def add(self, values: Any, zones: Int64s, starts: Int64s) -> None:
        """Add values; zone ``zones[i]`` begins at ``starts[i]``."""
        nans = np.zeros(len(zones), np.int64)
        if pa.types.is_floating(self._kind):
            flags = _is_nan(values)
            if flags.any():
                nans = np.add.reduceat(flags.astype(np.int64), starts)
                values = _without(values, flags)
        low, high, absent = values, values, None
        if is_number(self._kind):
            low = high = sort_keys(values)
            absent = as_numpy(values.is_null()) if values.null_count else None
        self._parts.append(_Part(zones, *_reduced(low, high, absent, starts), nans))

    def finish(self) -> tuple[pa.Array, pa.Array, Int64s]:
        """Return smallest value, largest value (or NaN), and number of NaN of each zone."""
        if not self._parts:
            none: Any = pa.nulls(0, self._kind)
            return none, none, np.empty(0, np.int64)
        zones = np.concatenate([part.zones for part in self._parts])
        starts = np.flatnonzero(np.diff(zones, prepend=-1))
        nans = np.add.reduceat(np.concatenate([part.nans for part in self._parts]), starts)
        join: Any = np.concatenate if is_number(self._kind) else pa.concat_arrays
        low, high, absent = _reduced(
            join([part.low for part in self._parts]),
            join([part.high for part in self._parts]),
            _joined_flags([(part.absent, len(part.zones)) for part in self._parts]),
            starts,
        )
        if is_number(self._kind):
            low, high = (values_of_keys(keys, self._kind, absent) for keys in (low, high))
        if nans.any():
            import pyarrow.compute as pc

            nan = number_array(np.array([np.nan], NUMPY_TYPES[self._kind]))[0]
            high = pc.if_else(flag_array(nans > 0), nan, high)
        return low, high, nans


def _joined_flags(parts: list[tuple[Flags | None, int]]) -> Flags | None:
    """Concatenate flags of several parts; ``None`` is a part of ``False``."""
    if all(flags is None for flags, _ in parts):
        return None
    return np.concatenate(
        [np.zeros(count, np.bool_) if flags is None else flags for flags, count in parts]
    )


def _is_nan(values: Any) -> Flags:
    """Return flags of valid floats that are NaN."""
    words = float_order(sort_keys(values))
    flags: Flags = np.isnan(words.view(f"<f{words.itemsize}")) & as_numpy(values.is_valid())
    return flags


def _without(values: Any, flags: Any) -> Any:
    """Replace flagged values by null."""
    valid = as_numpy(values.is_valid()) & ~flags
    return values_of_keys(sort_keys(values), values.type, ~valid)


def _reduced(
    lows: Any, highs: Any, absent: Flags | None, starts: Int64s
) -> tuple[Any, Any, Flags | None]:
    """Return the smallest ``lows`` and the largest ``highs`` from each start to the next.

    Parameters
    ----------
    lows, highs
        Keys of numbers, or other values.
    absent
        Flags of keys of nulls; ``None`` if all are valid.

    Returns
    -------
    tuple
        Smallest and largest values, and flags of ranges of nulls only.
    """
    if not isinstance(lows, np.ndarray):
        return *_reduced_objects(lows, highs, starts), None
    nowhere: Flags | None = None
    if absent is not None:
        limits = np.iinfo(lows.dtype)
        lows = np.where(absent, limits.max, lows)
        highs = np.where(absent, limits.min, highs)
        nowhere = np.logical_and.reduceat(absent, starts)
    return np.minimum.reduceat(lows, starts), np.maximum.reduceat(highs, starts), nowhere


def _reduced_objects(lows: Any, highs: Any, starts: Int64s) -> tuple[Any, Any]:
    owner = np.zeros(len(lows), np.int64)
    owner[starts[1:]] = 1
    table = pa.table({"zone": number_array(np.cumsum(owner)), "low": lows, "high": highs})
    found = table.group_by("zone", use_threads=False).aggregate([("low", "min"), ("high", "max")])
    return _array(found["low_min"]), _array(found["high_max"])


def _array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
