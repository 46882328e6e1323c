"""Brain floats in Arrow: the extension type ``lance.bfloat16``, two bytes per value.

Importing this module registers the type with pyarrow; columns of it are then read as
:class:`BFloat16Array`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import total_ordering
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.conditions import filled
from glaive.errors import MissingDependencyError, SchemaError
from glaive.types import Float32s, UInt16s

_NAN = 0x7FC0


def bits_of(floats: Float32s) -> UInt16s:
    """Return the nearest brain floats, ties to even, as 16 bit words. NaN stays NaN."""
    words = np.ascontiguousarray(floats, np.float32).view(np.uint32)
    lowest_kept = (words >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        rounded = ((words + np.uint32(0x7FFF) + lowest_kept) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(words.view(np.float32)), np.uint16(_NAN), rounded)


def floats_of(bits: UInt16s) -> Float32s:
    """Return the floats of brain floats; exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


@total_ordering
class BFloat16:
    """One brain float.

    Parameters
    ----------
    value
        A number; rounded to the nearest brain float.
    """

    __slots__ = ("_bits",)
    __hash__ = None  # type: ignore[assignment]  # equal values may differ in bits: zeros

    def __init__(self, value: float) -> None:
        given: Any = value
        if not hasattr(given, "__float__"):
            raise SchemaError(f"BFloat16: expected a number, found {value!r:.60}")
        with np.errstate(over="ignore"):
            self._bits = bits_of(np.array([float(value)]).astype(np.float32))

    @classmethod
    def from_bytes(cls, bytes: bytes) -> BFloat16:
        """Return the brain float stored in two bytes, the lower first.

        Raises
        ------
        SchemaError
            The number of bytes differs from two.
        """
        if len(bytes) != 2:
            raise SchemaError(f"BFloat16.from_bytes: expected 2 bytes, got {len(bytes)}")
        made = cls.__new__(cls)
        made._bits = np.frombuffer(bytes, "<u2").astype(np.uint16)  # noqa: SLF001  # of this class
        return made

    def as_float(self) -> float:
        """Return the value as a Python float."""
        return float(floats_of(self._bits)[0])

    def __float__(self) -> float:
        return self.as_float()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat16) and self.as_float() == other.as_float()

    def __lt__(self, other: BFloat16) -> bool:
        return self.as_float() < other.as_float()

    def __repr__(self) -> str:
        value = self.as_float()
        return "NaN" if np.isnan(value) else f"{value:g}" if value.is_integer() else repr(value)

    def __reduce__(self) -> tuple[object, ...]:
        return BFloat16.from_bytes, (self._bits.tobytes(),)


class BFloat16Scalar(pa.ExtensionScalar):
    """One value of a :class:`BFloat16Array`."""

    def as_py(self, **options: Any) -> BFloat16 | None:
        """Return the value, ``None`` for null. pyarrow defines the options."""
        stored = self.value
        return None if stored is None else BFloat16.from_bytes(stored.as_py(**options))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BFloat16Scalar):
            return self.as_py() == other.as_py()
        if type(other).__name__ == "bfloat16":  # NumPy's, by ml_dtypes
            other = BFloat16(float(other))  # type: ignore[arg-type]  # it is a number
        return isinstance(other, BFloat16) and self.as_py() == other

    __hash__ = None  # type: ignore[assignment]  # as BFloat16


class BFloat16Array(pa.ExtensionArray):
    """Brain floats. Made by :func:`bfloat16_array`, :meth:`from_numpy`, or a scan."""

    def __repr__(self) -> str:
        return f"<lance.arrow.BFloat16Array object at {id(self):#018x}>\n{self}"

    def __str__(self) -> str:
        values = [f"\n  {value}" for value in list(self)]
        return f"[{','.join(values)}\n]"

    def bits(self) -> UInt16s:
        """Return the values as 16 bit words, without a copy; words at nulls have no meaning."""
        buffer = self.storage.buffers()[1]
        if buffer is None or not len(self):
            return np.zeros(len(self), np.uint16)
        return np.frombuffer(buffer, "<u2", len(self), 2 * self.offset)

    def to_numpy(  # type: ignore[override]  # pyarrow's copies objects one by one
        self, zero_copy_only: bool = False
    ) -> np.ndarray[Any, Any]:
        """Return the values as a NumPy array of the package ``ml_dtypes``, without a copy.

        Raises
        ------
        SchemaError
            There are nulls.
        MissingDependencyError
            ``ml_dtypes`` is not installed.
        """
        if self.null_count:
            raise SchemaError("Cannot convert null values to numpy: fill or drop them first")
        return self.bits().view(_numpy_type())

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> BFloat16Array:
        """Return an array of NumPy values of the type ``bfloat16`` of ``ml_dtypes``.

        Raises
        ------
        SchemaError
            The array has another type, or more than one dimension.
        """
        if array.dtype.name != "bfloat16":
            raise SchemaError(
                f"Cannot convert non-bfloat16 values to BFloat16Array: found {array.dtype}"
            )
        if array.ndim != 1:
            raise SchemaError(
                f"Cannot convert multi-dimensional array to BFloat16Array: found {array.ndim} "
                "dimensions"
            )
        return from_bits(np.ascontiguousarray(array).view(np.uint16))


class BFloat16Type(pa.ExtensionType):
    """Arrow's type of brain floats."""

    def __init__(self) -> None:
        super().__init__(pa.binary(2), "lance.bfloat16")

    def __arrow_ext_serialize__(self) -> bytes:
        """Return empty bytes: the name says everything about the type."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> BFloat16Type:
        """Return the type; ``storage_type`` must be two bytes."""
        if storage_type != pa.binary(2):
            raise SchemaError(f"brain floats have two bytes, and are not stored as {storage_type}")
        return cls()

    def __arrow_ext_class__(self) -> type[Any]:
        """Return the class of arrays."""
        return BFloat16Array

    def __arrow_ext_scalar_class__(self) -> type[Any]:
        """Return the class of single values."""
        return BFloat16Scalar

    def to_pandas_dtype(self) -> Any:
        """Return the type of pandas columns."""
        # That module imports this one, and pandas.
        return import_module("glaive.arrow.bfloat16_pandas").PandasBFloat16Type()


def from_bits(bits: UInt16s, valid: pa.Buffer | None = None) -> BFloat16Array:
    """Return an array that shares the 16 bit words."""
    kind: Any = BFloat16Type()
    words: Any = bits
    made: Any = pa.Array.from_buffers(kind, len(bits), [valid, pa.py_buffer(words)])
    return made  # type: ignore[no-any-return]  # the type says which class


def bfloat16_array(values: Iterable[float | BFloat16 | None] | Any) -> BFloat16Array:
    """Return an array of brain floats.

    Parameters
    ----------
    values
        Numbers and ``None``; a NumPy or Arrow array of numbers is converted at once.

    Raises
    ------
    SchemaError
        A value is not a number.
    """
    if not isinstance(values, np.ndarray | pa.Array | pa.ChunkedArray):
        values = [one.as_float() if isinstance(one, BFloat16) else one for one in values]
    given: Any = values
    try:
        floats: Any = pa.array(given, from_pandas=False)
        if pa.types.is_null(floats.type) or not pa.types.is_floating(floats.type):
            floats = floats.cast(pa.float64())
        floats = floats.cast(pa.float32(), safe=False)
    except (pa.ArrowException, TypeError) as error:
        raise SchemaError(f"bfloat16_array: expected numbers: {error}") from error
    if isinstance(floats, pa.ChunkedArray):
        floats = floats.combine_chunks()
    numbers = filled(floats, 0).to_numpy(zero_copy_only=False)
    valid = floats.is_valid().buffers()[1] if floats.null_count else None
    return from_bits(bits_of(numbers), valid)


def _numpy_type() -> Any:
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise MissingDependencyError(
            f"NumPy has brain floats by the package ml_dtypes ({error}). Install it, or cast the "
            "array: glaive.arrow.cast(array, pa.float32())"
        ) from error
    return bfloat16


with suppress(pa.ArrowKeyError):  # another library may have registered the name
    pa.register_extension_type(BFloat16Type())  # type: ignore[arg-type]  # the stubs lack it


# --- ``cast``: Arrow's, and to and from brain floats ------------------------------------

_NAMES = ("bfloat16", "bf16")


def cast(arr: Any, target_type: Any, *args: Any, **options: Any) -> Any:
    """Cast an array; like :func:`pyarrow.compute.cast`, and to and from brain floats.

    Parameters
    ----------
    arr
        An array; floats for brain floats, or fixed-size lists of floats.
    target_type
        A type of Arrow or its name; ``"bfloat16"``, ``"bf16"`` or :class:`BFloat16Type`.
    *args, **options
        Options of pyarrow, where it does the work.

    Raises
    ------
    SchemaError
        Arrow refuses the cast, or lists differ in size.
    """
    target: Any = BFloat16Type() if target_type in _NAMES else target_type
    if isinstance(target, str):
        aliases: Any = pa.type_for_alias
        target = aliases(target)
    if isinstance(arr, pa.ChunkedArray):
        chunks: list[Any] = [cast(chunk, target, *args, **options) for chunk in arr.chunks]
        return pa.chunked_array(chunks, target)
    if isinstance(arr.type, BFloat16Type):
        return _from_bfloat16(arr, target)
    if isinstance(target, BFloat16Type):
        if not pa.types.is_floating(arr.type):
            raise SchemaError(
                f"Only support casting floating array to bfloat16 array, got: {arr.type}"
            )
        return bfloat16_array(arr)
    if pa.types.is_fixed_size_list(arr.type) and pa.types.is_fixed_size_list(target):
        if arr.type.list_size != target.list_size:
            raise SchemaError(
                "Only support casting fixed size list to fixed size list with the same size, "
                f"got: {arr.type} to {target}"
            )
        items = cast(arr.values, target.value_type, *args, **options)
        return pa.Array.from_buffers(
            pa.list_(pa.field(target.value_field.name, items.type), target.list_size),
            len(arr),
            arr.buffers()[:1],
            arr.null_count,
            arr.offset,
            children=[items],
        )
    return pc.cast(arr, target, *args, **options)


def _from_bfloat16(arr: BFloat16Array, target: Any) -> Any:
    if isinstance(target, BFloat16Type):
        return arr
    if not pa.types.is_floating(target):
        raise SchemaError(f"Only support casting bfloat16 array to floating array, got: {target}")
    missing = arr.is_null().to_numpy(zero_copy_only=False) if arr.null_count else None
    floats: Any = pa.array(np.ascontiguousarray(floats_of(arr.bits())), mask=missing)
    return pc.cast(floats, target, safe=False)
