"""Conditions: tests on the values of one column, in the column's own Arrow type.

Filters are split into conditions where possible. Readers evaluate them without making arrays
of the values (``BoundColumn.find``); :meth:`InRange.mask` and its like define the result.

A null row passes :class:`IsNull` only. Floats are compared by the total order of their bits:
``-NaN < -Inf < … < -0.0 < 0.0 < … < Inf < NaN``, and a NaN equals itself. Strings and binary
values are ordered by bytes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import pack_flags
from glaive.arrow.decimals import comparable_decimals
from glaive.arrow.scalars import FALSE, scalar
from glaive.dataclass import dataclass
from glaive.errors import SchemaError
from glaive.memory import items_of
from glaive.types import Flags

__all__ = ["Condition", "HasText", "InRange", "IsNull", "IsOneOf", "float_order"]


_MAX_COMPARISONS = 8
"""An array is compared with each value of a set of up to this size; larger sets are hashed."""


class _Maskable:
    """A condition that Arrow arrays can be tested with."""

    __slots__ = ()

    def mask(self, array: pa.Array) -> pa.BooleanArray:
        """Which values pass; no result is null."""
        values: Any = array
        if isinstance(values.type, pa.BaseExtensionType):
            return self.mask(values.storage)
        if pa.types.is_dictionary(values.type):
            result: pa.BooleanArray = self._dictionary_mask(values)
        elif pa.types.is_null(values.type) and not isinstance(self, IsNull):
            result = _booleans(np.zeros(len(values), np.bool_))
        else:
            result = self._plain_mask(values)
        return result

    def _dictionary_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        passing: Any = pc.take(self.mask(array.dictionary), array.indices)
        return pc.and_(pc.is_valid(array), pc.fill_null(passing, FALSE))

    def _plain_mask(self, array: Any) -> Any:
        """The mask of an array that is neither a dictionary nor of an extension type."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class InRange(_Maskable):
    """Whether a value lies between two bounds; None is no bound.

    Bounds have the type of the column (of a dictionary column: of its values) and are not
    null.
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
            mask = pc.and_(mask, pc.fill_null(passed, FALSE))
        if self.high is not None:
            below = pc.less_equal if self.high_included else pc.less
            passed = below(array, comparable_decimals(self.high))
            mask = pc.and_(mask, pc.fill_null(passed, FALSE))
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
        return pc.and_(_booleans(flags), pc.is_valid(array))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class IsOneOf(_Maskable):
    """Whether a value is among ``values``, or, ``negated``, is none of them.

    As in SQL, no value is known to differ from a null: negated, with a null among ``values``,
    nothing passes. Compared and hashed by identity, so that caches can have it as weak key.
    """

    values: pa.Array
    negated: bool = False

    def _plain_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        values: Any = self.values
        _check_types(array, values)
        if self.negated and values.null_count:
            return _booleans(np.zeros(len(array), np.bool_))
        valid = pc.is_valid(array)
        if pa.types.is_floating(array.type):
            # By their bits; those under a null are arbitrary.
            numbers = _integers(values.drop_null())
            mask = pc.and_(pc.is_in(_integers(array), value_set=numbers), valid)
        else:
            mask = _is_in(comparable_decimals(array), comparable_decimals(values))
        return pc.and_not(valid, mask) if self.negated else mask


@dataclass(frozen=True, slots=True)
class IsNull(_Maskable):
    """Whether a row is null, or, ``negated``, is not."""

    negated: bool = False

    def _plain_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        return pc.is_valid(array) if self.negated else pc.is_null(array)

    def _dictionary_mask(self, array: Any) -> Any:
        import pyarrow.compute as pc

        valid = pc.is_valid(array)
        if array.dictionary.null_count:
            present = pc.take(pc.is_valid(array.dictionary), array.indices)
            valid = pc.and_(valid, pc.fill_null(present, FALSE))
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
        return pc.fill_null(mask, FALSE)


Condition: TypeAlias = InRange | IsOneOf | IsNull | HasText


def float_order(words: NDArray[Any]) -> NDArray[Any]:
    """Signed numbers in the total order of the floats whose bits ``words`` are (signed)."""
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
    return pc.fill_null(mask, FALSE)


def _check_types(array: Any, *operands: Any) -> None:
    for operand in operands:
        if operand.type != array.type:
            raise SchemaError(
                f"a condition on values of type {operand.type}, on a column of type {array.type}"
            )


def _array_of(value: Any) -> Any:
    return pa.repeat(value, 1)


def _integers(array: Any) -> Any:
    """The bits of floats as integers of the same width."""
    return array.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[array.type.bit_width])


def _words(array: Any) -> NDArray[Any]:
    """The bits of floats, those under nulls included, as signed integers."""
    width = array.type.bit_width // 8
    values = array.buffers()[1]
    return items_of(values, f"<i{width}", len(array), array.offset * width)


def _booleans(flags: Flags) -> Any:
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pack_flags(flags)])
