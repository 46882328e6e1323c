"""Conditions: tests on the values of one column, in the column's own Arrow type.

Filters are split into conditions where possible. Readers evaluate them on stored values
(``BoundColumn.find``); :meth:`InRange.mask` and its like define the result.

A null row passes :class:`IsNull` only. Floats are compared by the total order of their bits:
``-NaN < -Inf < … < -0.0 < 0.0 < … < Inf < NaN``, and a NaN equals itself. Strings and binary
values are ordered by bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import compute as pc
from glaive.arrow.blocks import flag_array, known_true, number_array, pack_flags, with_parts
from glaive.arrow.chunked import as_numpy
from glaive.dataclass import dataclass
from glaive.errors import SchemaError
from glaive.types import items_of

# --- Constants of plain types, made directly: ``pyarrow.array`` imports pandas (0.2 s) --

_FORMATS: Final = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.uint64(): "Q",
    pa.float32(): "f",
    pa.float64(): "d",
}

_OFFSETS: Final = {
    pa.string(): ("i", str),
    pa.large_string(): ("q", str),
    pa.binary(): ("i", bytes),
    pa.large_binary(): ("q", bytes),
}

_EXACT: Final = 1 << 24
"""Integers up to this are floats of all widths."""

_MAX_PLAIN_VALUES: Final = 10_000
"""Maximum values that are made one by one; more take longer than pandas."""


def scalar(value: object, kind: pa.DataType) -> Any:
    """Return a value of a type, as ``pyarrow.scalar`` makes it; raises what that raises."""
    if value is None:
        null: Any = kind
        return pa.nulls(1, null)[0]
    array = _plain([value], kind)
    return pa.scalar(value, kind) if array is None else array[0]


def constants(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Return the values of a type, as ``pyarrow.array`` makes them; raises what that raises."""
    array = _plain(values, kind)
    return pa.array(values, kind) if array is None else array


def filled(values: Any, value: object) -> Any:
    """Return values with a constant of their type in place of nulls."""
    return values.fill_null(scalar(value, values.type)) if values.null_count else values


def valid_where(chosen: Any, values: Any) -> Any:
    """Return the values of the chosen rows, and nulls in all other rows."""
    return pc.if_else(chosen, values, scalar(None, values.type))


def _plain(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Return an array of valid values; ``None`` if ``pyarrow`` has to make it or raise an error."""
    if len(values) > _MAX_PLAIN_VALUES:
        return None
    form = _FORMATS.get(kind)
    if form is not None and form in "fd":
        values = [float(one) if type(one) is int and abs(one) <= _EXACT else one for one in values]
    types = set(map(type, values))
    if form is None and pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        form = {32: "i", 64: "q"}[kind.bit_width]
    buffers: list[pa.Buffer | None] = [None]
    if form is not None and types <= {float if form in "fd" else int}:
        try:
            buffers.append(pa.py_buffer(struct.pack(f"<{len(values)}{form}", *values)))
        except (struct.error, OverflowError):
            return None
    elif kind == pa.bool_() and types <= {bool}:
        buffers.append(pack_flags(np.array(values, np.bool_)))
    elif kind in _OFFSETS and types <= {_OFFSETS[kind][1]}:
        try:
            raw = [value if isinstance(value, bytes) else value.encode() for value in values]
            ends = list(accumulate(map(len, raw), initial=0))
            offsets = struct.pack(f"<{len(ends)}{_OFFSETS[kind][0]}", *ends)
        except (UnicodeEncodeError, struct.error):
            return None
        buffers += [pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))]
    elif pa.types.is_decimal(kind) and types <= {Decimal, int}:
        try:
            return constants([*map(str, values)], pa.string()).cast(kind)
        except pa.ArrowInvalid:
            return None
    else:
        return None
    return pa.Array.from_buffers(kind, len(values), buffers)


FALSE: Final = scalar(False, pa.bool_())
TRUE: Final = scalar(True, pa.bool_())
"""Flags, which ``pyarrow.compute`` would make with ``pyarrow.scalar``."""


# --- Types of decimals that Arrow computes with -----------------------------------------

MAX_SCALE: Final = {128: 38, 256: 76}
"""Largest absolute scale of decimals by bits.

Arrow has powers of 10 up to there. With a larger scale it fails to write values, and casts read
beyond these powers.
"""


def decimal_type(bits: int, precision: int, scale: int) -> pa.DataType:
    """Return the type of decimals of 128 or 256 bits.

    Raises
    ------
    ValueError
        The type has fewer digits, in total or after the point.
    """
    limit = MAX_SCALE[bits]
    if not 1 <= precision <= limit or abs(scale) > limit:
        raise ValueError(f"decimals of {bits} bits have up to {limit} digits, before or after 0")
    return pa.decimal128(precision, scale) if bits == 128 else pa.decimal256(precision, scale)


def unscaled(array: Any) -> Any:
    """Return the decimals of one type as integers, in the same bytes, which have the same order.

    Arrow refuses to compare decimals of scales below 0, or to rescale large ones.
    """
    bits = array.type.bit_width
    buffers = array.buffers()
    kind = decimal_type(bits, MAX_SCALE[bits], 0)
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset)


def comparable_decimals(values: Any) -> Any:
    """Return an array or scalar as Arrow compares it with the same type: see :func:`unscaled`."""
    kind = values.type
    if not pa.types.is_decimal(kind) or kind.scale >= 0:
        return values
    if isinstance(values, pa.Scalar):
        one: Any = values
        return unscaled(pa.repeat(one, 1))[0]
    return unscaled(values)


def doubles_of(array: Any) -> Any:
    """Return decimals as 64-bit floats: the unscaled number, rounded, over the power of ten.

    Arrow multiplies by an inexact power: 2.01 becomes 2.0100000000000002.
    """
    if array.type.bit_width < 64:
        array = array.cast(pa.decimal64(array.type.precision, array.type.scale))
    width, scale = array.type.bit_width // 64, array.type.scale
    words = items_of(array.buffers()[1], "<u8", len(array) * width, array.offset * 8 * width)
    words = words.reshape(-1, width)
    low = words[:, 0].view(np.int64)
    numbers = low.astype(np.float64)
    large = (words[:, 1:] != (low >> 63).view(np.uint64)[:, None]).any(axis=1)
    if large.any():
        exact = [int.from_bytes(number, "little", signed=True) for number in words[large]]
        numbers[large] = list(map(float, exact))
    numbers = numbers / 10.0**scale if scale >= 0 else numbers * 10.0**-scale
    nulls = as_numpy(array.is_null()) if array.null_count else None
    return number_array(numbers, nulls=nulls)


# --- Values as Python objects, or as texts: dates after the year 9999, unknown zones ----
#
# Only for what is shown to people, and for JSON: other values keep the types of Arrow.

NO_PYTHON_VALUE: Final = (ArithmeticError, LookupError, OSError, ValueError)
"""Errors of pyarrow: by limits of Python, and for unknown or invalid time zones."""


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values; values beyond the limits of Python are texts, as Arrow shows them."""
    try:
        values: list[Any] = column.to_pylist()
    except NO_PYTHON_VALUE:
        values = [_value(column, at) for at in range(len(column))]
    return values


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows, with values as :func:`python_values` returns them."""
    names, columns = rows.schema.names, map(python_values, rows.columns)
    if not names:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def exact_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows with all digits of their times, which Python's times lack.

    Nanoseconds of a day are texts, and durations numbers of their unit, as in exported files.
    """
    if not rows.schema.names:
        return python_rows(rows)
    columns: list[Any] = [
        column if _exact(column.type) == column.type else column.cast(_exact(column.type))
        for column in rows.columns
    ]
    return python_rows(pa.Table.from_arrays(columns, names=rows.schema.names))


def _exact(kind: Any) -> Any:
    """Return the type that keeps all digits in Python; the same type if it keeps them already."""
    types = pa.types
    if types.is_duration(kind):
        return pa.int64()
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType) or types.is_dictionary(kind):
        own = kind.value_type if types.is_dictionary(kind) else kind.storage_type
        exact = _exact(own)
        return kind if exact == own else exact
    return with_parts(kind, _exact)


def _value(column: pa.Array | pa.ChunkedArray, at: int) -> object:
    try:
        return column[at].as_py()
    except NO_PYTHON_VALUE:
        one: Any = column.slice(at, 1)
        whole = one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one
        return " ".join(whole.to_string().split())[1:-1].strip()


_MAX_COMPARISONS = 8
"""An array is compared with each value of a set of up to this size; larger sets are hashed."""


class _Maskable:
    """A condition that Arrow arrays can be tested with."""

    __slots__ = ()

    def mask(self, array: pa.Array) -> pa.BooleanArray:
        """Return which values pass; all results are valid."""
        values: Any = array
        if isinstance(values.type, pa.BaseExtensionType):
            return self.mask(values.storage)
        if pa.types.is_dictionary(values.type):
            result: pa.BooleanArray = self._dictionary_mask(values)
        elif pa.types.is_null(values.type) and not isinstance(self, IsNull):
            result = flag_array(np.zeros(len(values), np.bool_))
        else:
            result = self._plain_mask(values)
        return result

    def _dictionary_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        passing: Any = pc.take(self.mask(array.dictionary), array.indices)
        return pc.and_(pc.is_valid(array), known_true(passing))

    def _plain_mask(self, array: Any) -> Any:
        """Return the mask of an array of a plain type."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class InRange(_Maskable):
    """Whether a value lies between two bounds; ``None`` means unbounded.

    Bounds are valid and have the type of the column (of a dictionary column: of its values).
    """

    low: pa.Scalar[Any] | None = None
    high: pa.Scalar[Any] | None = None
    low_included: bool = True
    high_included: bool = True

    def _plain_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        _check_types(array, *[bound for bound in (self.low, self.high) if bound is not None])
        if pa.types.is_floating(array.type):
            return self._float_mask(array)
        mask = pc.is_valid(array)
        array = comparable_decimals(array)
        if self.low is not None:
            above = pc.greater_equal if self.low_included else pc.greater
            passed: Any = above(array, comparable_decimals(self.low))
            mask = pc.and_(mask, known_true(passed))
        if self.high is not None:
            below = pc.less_equal if self.high_included else pc.less
            passed = below(array, comparable_decimals(self.high))
            mask = pc.and_(mask, known_true(passed))
        return mask

    def _float_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        keys = float_order(_words(array))
        flags = np.ones(len(array), np.bool_)
        if self.low is not None:
            low = float_order(_words(_array_of(self.low)))
            flags &= keys >= low if self.low_included else keys > low
        if self.high is not None:
            high = float_order(_words(_array_of(self.high)))
            flags &= keys <= high if self.high_included else keys < high
        return pc.and_(flag_array(flags), pc.is_valid(array))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class IsOneOf(_Maskable):
    """Whether a value is among ``values``, or, ``negated``, differs from all of them.

    As in SQL, a comparison with a null is unknown: negated, with a null among ``values``, all
    values fail. Compared and hashed by identity, so that caches can have it as weak key.
    """

    values: pa.Array
    negated: bool = False

    def _plain_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        values: Any = self.values
        _check_types(array, values)
        if self.negated and values.null_count:
            return flag_array(np.zeros(len(array), np.bool_))
        valid = pc.is_valid(array)
        if pa.types.is_floating(array.type):
            # By their bits; bits under a null are arbitrary.
            numbers = _integers(values.drop_null())
            mask = pc.and_(pc.is_in(_integers(array), value_set=numbers), valid)
        else:
            mask = _is_in(comparable_decimals(array), comparable_decimals(values))
        return pc.and_not(valid, mask) if self.negated else mask


@dataclass(frozen=True, slots=True)
class IsNull(_Maskable):
    """Whether a row is null, or, ``negated``, is valid."""

    negated: bool = False

    def _plain_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        return pc.is_valid(array) if self.negated else pc.is_null(array)

    def _dictionary_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        valid = pc.is_valid(array)
        if array.dictionary.null_count:
            present = pc.take(pc.is_valid(array.dictionary), array.indices)
            valid = pc.and_(valid, known_true(present))
        return valid if self.negated else pc.invert(valid)


@dataclass(frozen=True, slots=True, kw_only=True)
class HasText(_Maskable):
    """Whether a string contains ``word``: at its beginning, its end, both, or anywhere."""

    word: str
    begins: bool = False
    ends: bool = False

    def _plain_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        if self.begins and self.ends:
            mask = pc.equal(array, scalar(self.word, array.type))
        elif self.begins:
            mask = pc.starts_with(array, self.word)
        else:
            mask = (pc.ends_with if self.ends else pc.match_substring)(array, self.word)
        return known_true(mask)


Condition: TypeAlias = InRange | IsOneOf | IsNull | HasText


def float_order(words: NDArray[Any]) -> NDArray[Any]:
    """Return signed numbers in the total order of the floats whose bits ``words`` are (signed)."""
    bits = words.dtype.itemsize * 8
    low = words.dtype.type((1 << (bits - 1)) - 1)
    keys: NDArray[Any] = words ^ ((words >> (bits - 1)) & low)
    return keys


def _is_in(array: Any, values: Any) -> Any:
    import pyarrow.compute as pc

    if not 0 < len(values) - values.null_count <= _MAX_COMPARISONS:
        return pc.is_in(array, value_set=values, skip_nulls=True)
    # Several times faster than a hash lookup per value of the array.
    mask: Any = None
    for value in values.drop_null():
        equal = pc.equal(array, value)
        mask = equal if mask is None else pc.or_(mask, equal)
    return known_true(mask)


def _check_types(array: Any, *operands: Any) -> None:
    for operand in operands:
        if operand.type != array.type:
            raise SchemaError(
                f"a condition on values of type {operand.type}, on a column of type {array.type}"
            )


def _array_of(value: Any) -> Any:
    return pa.repeat(value, 1)


def _integers(array: Any) -> Any:
    """Return the bits of floats as integers of the same width."""
    return array.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[array.type.bit_width])


def _words(array: Any) -> NDArray[Any]:
    """Return the bits of floats, including floats under nulls, as signed integers."""
    width = array.type.bit_width // 8
    values = array.buffers()[1]
    return items_of(values, f"<i{width}", len(array), array.offset * width)
