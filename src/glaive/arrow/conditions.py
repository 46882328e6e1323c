"""Conditions: tests on the values of one column, in the column's own Arrow type.

A filter is split into these where it can be; readers answer them without making arrays of
the values (``BoundColumn.find``), and :meth:`InRange.mask` and its like say what they mean.

A null row passes :class:`IsNull` only. Floats are compared by the total order of their bits:
``-NaN < -Inf < … < -0.0 < 0.0 < … < Inf < NaN``, and a NaN equals itself. Text and binary
are ordered by bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import pack_flags
from glaive.arrow.scalars import FALSE, scalar
from glaive.errors import SchemaError
from glaive.memory import items_of

__all__ = ["Condition", "HasText", "InRange", "IsNull", "IsOneOf", "float_order"]


_FEW = 8
"""Values of a set up to which an array is compared with each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InRange:
    """Whether a value lies between two bounds; None is no bound.

    Bounds have the type of the column (of a dictionary column: of its values) and are not
    null.
    """

    low: pa.Scalar[Any] | None = None
    high: pa.Scalar[Any] | None = None
    low_included: bool = True
    high_included: bool = True

    def mask(self, array: pa.Array) -> pa.BooleanArray:
        """Which values pass; no result is null."""
        found: pa.BooleanArray = _mask(self, array)
        return found

    def of_values(self, array: Any) -> Any:
        """The mask of an array of plain type."""
        import pyarrow.compute as pc

        _check(array.type, *[one.type for one in (self.low, self.high) if one is not None])
        if pa.types.is_floating(array.type):
            return self._of_floats(array)
        found = pc.is_valid(array)
        if self.low is not None:
            above = pc.greater_equal if self.low_included else pc.greater
            found = pc.and_(found, pc.fill_null(above(array, self.low), FALSE))
        if self.high is not None:
            below = pc.less_equal if self.high_included else pc.less
            found = pc.and_(found, pc.fill_null(below(array, self.high), FALSE))
        return found

    def _of_floats(self, array: Any) -> Any:
        import pyarrow.compute as pc

        keys = float_order(_words(array))
        flags = np.ones(len(array), np.bool_)
        if self.low is not None:
            low = float_order(_words(_single(self.low)))
            flags &= keys >= low if self.low_included else keys > low
        if self.high is not None:
            high = float_order(_words(_single(self.high)))
            flags &= keys <= high if self.high_included else keys < high
        return pc.and_(_booleans(flags), pc.is_valid(array))


@dataclass(frozen=True, slots=True)
class IsOneOf:
    """Whether a value is among ``values``, or, ``negated``, is none of them.

    As in SQL, no value is known to differ from a null: negated, with a null among
    ``values``, nothing passes. ``memo`` keeps what readers work out of the values.
    """

    values: pa.Array
    negated: bool = False
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def mask(self, array: pa.Array) -> pa.BooleanArray:
        """Which values pass; no result is null."""
        found: pa.BooleanArray = _mask(self, array)
        return found

    def of_values(self, array: Any) -> Any:
        """The mask of an array of plain type."""
        import pyarrow.compute as pc

        values: Any = self.values
        _check(array.type, values.type)
        if self.negated and values.null_count:
            return _booleans(np.zeros(len(array), np.bool_))
        if pa.types.is_floating(array.type):
            # By their bits; those under a null are arbitrary.
            valid = pc.is_valid(array)
            numbers = _integers(values.drop_null())
            found = pc.and_(pc.is_in(_integers(array), value_set=numbers), valid)
        else:
            valid = pc.is_valid(array)
            found = _is_in(array, values)
        return pc.and_not(valid, found) if self.negated else found


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a row is null, or, ``negated``, is not."""

    negated: bool = False

    def mask(self, array: pa.Array) -> pa.BooleanArray:
        """Which rows pass; no result is null."""
        found: pa.BooleanArray = _mask(self, array)
        return found

    def of_values(self, array: Any) -> Any:
        """The mask of an array of plain type."""
        import pyarrow.compute as pc

        return pc.is_valid(array) if self.negated else pc.is_null(array)


@dataclass(frozen=True, slots=True, kw_only=True)
class HasText:
    """Whether a text contains ``word``: at its beginning, its end, both, or anywhere."""

    word: str
    begins: bool = False
    ends: bool = False

    def mask(self, array: pa.Array) -> pa.BooleanArray:
        """Which values pass; no result is null."""
        found: pa.BooleanArray = _mask(self, array)
        return found

    def of_values(self, array: Any) -> Any:
        """The mask of an array of plain type."""
        import pyarrow.compute as pc

        if self.begins and self.ends:
            found = pc.equal(array, scalar(self.word, array.type))
        elif self.begins:
            found = pc.starts_with(array, self.word)
        else:
            found = (pc.ends_with if self.ends else pc.match_substring)(array, self.word)
        return pc.fill_null(found, FALSE)


Condition: TypeAlias = InRange | IsOneOf | IsNull | HasText


def float_order(words: NDArray[Any]) -> NDArray[Any]:
    """Signed numbers in the total order of the floats whose bits ``words`` are (signed)."""
    bits = words.dtype.itemsize * 8
    low = words.dtype.type((1 << (bits - 1)) - 1)
    keys: NDArray[Any] = words ^ ((words >> (bits - 1)) & low)
    return keys


def _is_in(array: Any, values: Any) -> Any:
    import pyarrow.compute as pc

    if not 0 < len(values) - values.null_count <= _FEW:
        return pc.is_in(array, value_set=values, skip_nulls=True)
    # Several times quicker than to look each of the array up.
    found: Any = None
    for value in values.drop_null():
        same = pc.equal(array, value)
        found = same if found is None else pc.or_(found, same)
    return pc.fill_null(found, FALSE)


def _mask(condition: Condition, array: Any) -> Any:
    if isinstance(array.type, pa.BaseExtensionType):
        return _mask(condition, array.storage)
    if pa.types.is_dictionary(array.type):
        return _of_dictionary(condition, array)
    if pa.types.is_null(array.type) and not isinstance(condition, IsNull):
        return _booleans(np.zeros(len(array), np.bool_))
    return condition.of_values(array)


def _of_dictionary(condition: Condition, array: Any) -> Any:
    import pyarrow.compute as pc

    valid = pc.is_valid(array)
    if array.dictionary.null_count:
        valid = pc.and_(
            valid, pc.fill_null(pc.take(pc.is_valid(array.dictionary), array.indices), FALSE)
        )
    if isinstance(condition, IsNull):
        return valid if condition.negated else pc.invert(valid)
    passing = _mask(condition, array.dictionary)
    return pc.and_(valid, pc.fill_null(pc.take(passing, array.indices), FALSE))


def _check(kind: pa.DataType, *others: pa.DataType) -> None:
    for other in others:
        if other != kind:
            raise SchemaError(f"a condition on values of type {other}, on a column of type {kind}")


def _single(value: Any) -> Any:
    return pa.repeat(value, 1)


def _integers(array: Any) -> Any:
    """The bits of floats as integers of the same width."""
    return array.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[array.type.bit_width])


def _words(array: Any) -> NDArray[Any]:
    """The bits of floats, those under nulls included, as signed integers."""
    width = array.type.bit_width // 8
    values = array.buffers()[1]
    return items_of(values, f"<i{width}", len(array), array.offset * width)


def _booleans(flags: NDArray[np.bool_]) -> Any:
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pack_flags(flags)])
