"""``Bitmap``: a set of small integers, compressed; under the name of ``lance.bitmap``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from itertools import islice
from typing import Any, Self

import pyarrow as pa
from pyroaring import BitMap

from glaive.errors import OptionError
from glaive.types import integer_of

_HIGHEST = 2**32 - 1

_SHOWN = 1_000
"""Integers that are shown, at most: a few bytes may stand for billions."""


class Bitmap(MutableSet[int]):
    """A set of integers from 0 to 2**32 - 1, such as ids of fragments, in order.

    Methods and operators take any iterable of integers, so do those of built-in sets.

    Parameters
    ----------
    values
        Integers, an Arrow array of them without nulls, or another bitmap.

    Raises
    ------
    OptionError
        A value is no such integer, or null.
    """

    __slots__ = ("_bits",)
    __hash__ = None  # type: ignore[assignment]  # it can change

    def __init__(self, values: Iterable[int] | pa.Array | pa.ChunkedArray | None = None) -> None:
        self._bits: Any = _bits(() if values is None else values)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return cls(it)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and 0 <= value <= _HIGHEST and value in self._bits

    def __iter__(self) -> Iterator[int]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple):
            return len(self) == len(other) and all(one in self for one in other)
        return super().__eq__(other)

    def __repr__(self) -> str:
        shown = [*map(str, islice(self._bits, _SHOWN)), *["…"][: len(self) > _SHOWN]]
        return f"Bitmap({{{', '.join(shown)}}})"

    def __reduce__(self) -> tuple[object, ...]:
        return Bitmap._of, (self._bits.serialize(),)

    @classmethod
    def _of(cls, data: bytes) -> Bitmap:
        return cls.of_roaring(BitMap.deserialize(data))

    @classmethod
    def of_roaring(cls, bits: BitMap) -> Self:
        """One that holds these bits, without a copy."""
        made = cls()
        made._bits = bits  # of this class
        return made

    def add(self, value: int) -> None:
        """Add an integer."""
        self._bits.add(_integer(value))

    def discard(self, value: int) -> None:
        """Remove an integer, if it is there."""
        if value in self:
            self._bits.discard(value)

    def update(self, values: Iterable[int]) -> None:
        """Add integers."""
        self._bits |= _bits(values)

    def clear(self) -> None:
        """Remove all."""
        self._bits = BitMap()

    def copy(self) -> Self:
        """A copy."""
        return type(self)(self)

    def union(self, other: Iterable[int]) -> Self:
        """Integers of either."""
        return self._with(self._bits | _bits(other))

    def intersection(self, other: Iterable[int]) -> Self:
        """Integers of both."""
        return self._with(self._bits & _bits(other))

    def difference(self, other: Iterable[int]) -> Self:
        """Integers of this one only."""
        return self._with(self._bits - _bits(other))

    def symmetric_difference(self, other: Iterable[int]) -> Self:
        """Integers of one of them only."""
        return self._with(self._bits ^ _bits(other))

    def issubset(self, other: Iterable[int]) -> bool:
        """Whether all are in the other, too."""
        return bool(self._bits.issubset(_bits(other)))

    def issuperset(self, other: Iterable[int]) -> bool:
        """Whether all of the other are here, too."""
        return bool(self._bits.issuperset(_bits(other)))

    def _with(self, bits: Any) -> Self:
        return self.of_roaring(bits)


def _bits(values: Any) -> Any:
    if isinstance(values, Bitmap):
        return BitMap(values._bits)  # noqa: SLF001  # of this module
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            raise OptionError("Bitmap cannot be constructed from an array containing nulls")
        values = values.to_pylist()
    return BitMap([_integer(value) for value in values])


def _integer(value: Any) -> int:
    number = int(value) if isinstance(value, bool) else integer_of(value)
    if number is None:
        raise OptionError(f"Bitmap: expected integers, found {value!r:.60}")
    if not 0 <= number <= _HIGHEST:
        raise OptionError(f"Bitmap values must fit in an unsigned 32-bit integer, got {number}")
    return number
