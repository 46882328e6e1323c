"""Constants as arrays, the bytes of values, and the only place with loops over rows in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from glaive.arrow.chunked import concat_arrays, dictionary_encoded, row_bytes
from glaive.arrow.conditions import NO_PYTHON_VALUE
from glaive.errors import CapacityError, FilterError, GlaiveError
from glaive.types import MAX_OFFSET

# --- pyarrow as ``Any``: functions here take values of any type, which its stubs do not allow

pa: Any = import_module("pyarrow")
"""``pyarrow``."""

pc: Any = import_module("glaive.arrow.compute")
"""``pyarrow.compute``, once a function of it is used."""


# --- Check the bytes of an expression's values before they are computed -----------------
# A constant of a megabyte for a million rows would take a terabyte, and 32-bit offsets would
# overflow. More than ``MAX_BATCH_BYTES`` for several rows raise ``CapacityError`` with the number
# of parts to split the rows into; see :func:`glaive.arrow.chunked.in_parts`.

MAX_BATCH_BYTES: Final = 2**26
"""Bytes of values computed at a time for several rows; several threads may do so at once."""

MAX_VALUE_BYTES: Final = 2**28
"""Bytes of one value that functions such as ``lpad`` and ``repeat`` expand from a short one."""


MAX_HELD_BYTES: Final = 2**30
"""Bytes of computed arguments that wait for the others of their functions, in one thread."""


MAX_VALUES: Final = 2**22
"""Values within lists, maps and structs of several rows that a function takes at a time."""


MAX_LIST_ITEMS: Final = 2**24
"""Items of lists of several rows that have positions and flags in memory at a time."""


MAX_VALUES_OF_A_ROW: Final = 2**25
"""Those of one row, of both: over a gigabyte. A file need not have a byte for each."""


def check_held(maker: str, size: int, rows: int) -> None:
    """Check that computed arguments of so many bytes may be in memory, of this call and outer ones.

    Raises
    ------
    CapacityError
        There are too many rows.
    FilterError
        There is one row.
    """
    if size <= MAX_HELD_BYTES:
        return
    what = f"the arguments of {maker}, and of what it is an argument of, take {size} bytes"
    raise _too_much(what, rows, -(-size // MAX_BATCH_BYTES), MAX_HELD_BYTES)


def check_bytes(maker: str, size: int, rows: int, kind: Any = None) -> None:
    """Check that values of ``size`` bytes in total may be made for so many rows.

    Parameters
    ----------
    maker
        Name of the function that makes them, for the message.
    kind
        The type of the values; a single value of a large type may have any size.

    Raises
    ------
    CapacityError
        There are too many rows, or the value of a single row does not fit one array.
    """
    if size <= MAX_BATCH_BYTES:
        return
    if rows > 1:
        raise CapacityError(
            f"{maker} makes {size} bytes for {rows} rows, at most {MAX_BATCH_BYTES} at a time",
            parts=min(rows, -(-size // MAX_BATCH_BYTES)),
        )
    if size > MAX_OFFSET and has_offsets(kind):
        raise CapacityError(
            f"{maker} makes {size} bytes for one row, at most {MAX_OFFSET} fit a value of {kind}. "
            "Cast an argument to a large type: arrow_cast(x, 'LargeUtf8')"
        )


def check_values(count: int, rows: int, most: int = MAX_VALUES) -> None:
    """Check that a function may take so many values within lists, maps and structs at once.

    ``most`` is of several rows. Errors as for :func:`check_held`.
    """
    if count > (most if rows > 1 else MAX_VALUES_OF_A_ROW):
        what = f"a function or a comparison takes {count} values and items of lists"
        raise _too_much(what, rows, -(-count // most), MAX_VALUES_OF_A_ROW)


def _too_much(what: str, rows: int, parts: int, most: int) -> GlaiveError:
    """The error that has rows cut into parts; of one row, that which says how much is supported."""
    if rows > 1:
        return CapacityError(f"{what} for {rows} rows", parts=min(rows, parts))
    return FilterError(f"{what} for one row; at most {most} are supported")


def values_within(array: Any) -> int:
    """Values that lists, maps and structs have; others count as none, structs as three more."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return values_within(array.storage)
    if types.is_struct(kind):
        members = sum(values_within(array.field(at)) for at in range(kind.num_fields))
        return int(len(array) * (3 + kind.num_fields) + members)
    if types.is_fixed_size_list(kind):
        first, count = array.offset * kind.list_size, len(array) * kind.list_size
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        first = array.offsets[0].as_py()
        count = array.offsets[len(array)].as_py() - first
    else:
        return 0
    if types.is_map(kind):
        parts, each = [array.keys, array.items], 5
    else:
        parts, each = [array.values], 1
    within = sum(values_within(part.slice(first, count)) for part in parts)
    return int(count * each + within)


def scalar_bytes(value: Any) -> int:
    """Bytes of a constant per row; 0 for types of a few bytes."""
    if not value.is_valid or not varies(value.type):
        return 0
    if isinstance(value, pa.StringScalar | pa.BinaryScalar):
        return int(value.as_buffer().size)
    return int(pa.repeat(value, 1).nbytes)


def bytes_of(argument: Any, rows: int) -> int:
    """Bytes of the values of an array, or of a constant repeated for so many rows."""
    if isinstance(argument, pa.Scalar):
        return scalar_bytes(argument) * rows
    size = int(argument.nbytes)
    if not pa.types.is_nested(argument.type):
        return size
    # Nulls of no type take no memory, but offsets count them.
    sizes = row_bytes(argument, null=1)
    counted = sizes * len(argument) if isinstance(sizes, int) else int(sizes.sum())
    return max(size, counted)


def largest(argument: Any) -> int:
    """Bytes of the largest value of an array, or of a constant; nulls of no type have one, too."""
    if isinstance(argument, pa.Scalar):
        return max(scalar_bytes(argument), fixed_bytes(argument.type))
    sizes = row_bytes(argument, null=1)
    return sizes if isinstance(sizes, int) else int(sizes.max(initial=0))


@lru_cache(maxsize=256)
def fixed_bytes(kind: Any) -> int:
    """Bytes that each value of a type takes, whatever it is, null included."""
    types = pa.types
    if types.is_fixed_size_list(kind):
        return int(kind.list_size) * fixed_bytes(kind.value_type)
    if types.is_struct(kind):
        return sum(fixed_bytes(kind.field(at).type) for at in range(kind.num_fields))
    fixed = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return int(kind.bit_width) // 8 if fixed else 0


@lru_cache(maxsize=256)
def has_offsets(kind: Any) -> bool:
    """Whether arrays of a type have 32-bit offsets, at any depth."""
    types = pa.types
    if kind is None or types.is_string(kind) or types.is_binary(kind):
        return True
    if types.is_list(kind) or types.is_map(kind):
        return True
    return any(has_offsets(kind.field(at).type) for at in range(kind.num_fields))


@lru_cache(maxsize=256)
def varies(kind: Any) -> bool:
    """Whether values of a type may have more than a few bytes."""
    types = pa.types
    plain = types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind)
    return not (plain or types.is_interval(kind))


def is_constant(argument: Any) -> bool:
    """Whether an argument has one value for all rows."""
    return isinstance(argument, pa.Scalar)


def count_rows(arguments: Sequence[Any]) -> int:
    """Return the number of rows of the arguments that are arrays; 1 if all are constants."""
    return next((len(argument) for argument in arguments if isinstance(argument, pa.Array)), 1)


def broadcast(argument: Any, rows: int) -> Any:
    """Return a constant as an array of that many rows; arrays unchanged."""
    return repeat(argument, rows) if is_constant(argument) else argument


def broadcast_all(arguments: Sequence[Any], rows: int) -> list[Any]:
    """Return all as arrays of that many rows.

    Raises
    ------
    CapacityError
        The constants would take much together: process fewer rows at a time.
    """
    size = sum(scalar_bytes(argument) for argument in arguments if is_constant(argument))
    check_bytes("constants", size * rows, rows)
    return [broadcast(argument, rows) for argument in arguments]


def repeat(value: Any, rows: int) -> Any:
    """An array of ``rows`` times the same scalar, of any type.

    Raises
    ------
    CapacityError
        The array would be large: process fewer rows at a time (Arrow's offsets would overflow).
    """
    size = scalar_bytes(value) if is_constant(value) else 0
    if size:
        check_bytes("a constant", size * rows, rows, value.type)
    # Arrow cannot repeat a list zero times.
    return pa.repeat(value, max(rows, 1)).slice(0, rows)


def array_of(values: list[Any], kind: Any) -> Any:
    """Python values as one array.

    Raises
    ------
    CapacityError
        They do not fit one array; Arrow would make several chunks.
    pyarrow.ArrowInvalid
        One is no value of the type, such as ``NaT``, which is the least timestamp, and the
        least duration, in Python.
    """
    try:
        array = pa.array(values, kind)
    except (ValueError, OverflowError, pa.ArrowTypeError) as error:
        if isinstance(error, pa.ArrowException) and not isinstance(error, TypeError):
            raise
        raise pa.ArrowInvalid(f"Arrow does not have a value: {error}") from None
    if isinstance(array, pa.ChunkedArray):
        raise CapacityError(f"{len(values)} values of {kind} do not fit one array", parts=2)
    return array


def map_rows(
    kind: Any, compute: Callable[..., Any], *arguments: Any, nulls: Sequence[int] = ()
) -> Any:
    """Call a Python function for each row; the results as an array of type ``kind``.

    Parameters
    ----------
    arguments
        Arrays of equal length, or scalars, which are passed for each row.
    nulls
        Indices of the arguments that may be null; a null in another makes the result null.
    """
    return array_of(row_values(compute, *arguments, nulls=nulls), kind)


def row_values(
    compute: Callable[..., Any], *arguments: Any, nulls: Sequence[int] = ()
) -> list[Any]:
    """The same with Python values as results.

    Raises
    ------
    pyarrow.ArrowInvalid
        Python does not have a value: a damaged text, a time beyond the year 9999, or one of a
        zone that nobody knows.
    CapacityError
        There are many items in lists: process fewer rows at a time.
    FilterError
        There are too many in one row.
    """
    rows = count_rows(arguments)
    arrays = broadcast_all(arguments, rows)
    check_values(sum(map(values_within, arrays)), rows)
    try:
        columns = [column.to_pylist() for column in arrays]
    except NO_PYTHON_VALUE as error:
        raise pa.ArrowInvalid(f"Python does not have a value: {error}") from None
    strict = [number for number in range(len(arguments)) if number not in nulls]
    return [
        None if any(row[number] is None for number in strict) else compute(*row)
        for row in zip(*columns, strict=True)
    ]


def map_distinct(kind: Any, compute: Callable[[Any], Any], values: Any) -> Any:
    """Call a Python function for each distinct value; nulls stay nulls."""
    encoded = dictionary_encoded(values)
    return map_rows(kind, compute, encoded.dictionary).take(encoded.indices)


def _has_null(key: tuple[Any, ...]) -> bool:
    return None in key


def map_constants(
    kind: Any,
    compute: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    unless: Callable[[tuple[Any, ...]], bool] = _has_null,
) -> Any:
    """Call ``compute(values, *constants)`` once for each distinct set of the other arguments.

    Parameters
    ----------
    arguments
        The values, and the arguments that ``compute`` takes as constants.
    unless
        Tells for which constants the result is null.
    """
    rows = count_rows(arguments)
    values, *others = arguments
    values = broadcast(values, rows)
    if all(map(is_constant, others)):
        given = tuple(other.as_py() for other in others)
        return pa.nulls(rows, kind) if unless(given) else compute(values, *given)
    if not rows:
        return pa.nulls(0, kind)
    rows_by_key: dict[tuple[Any, ...], list[int]] = {}
    keys = row_values(lambda *key: key, *others, nulls=range(len(others)))
    for row, key in enumerate(keys):
        rows_by_key.setdefault(key, []).append(row)
    parts = []
    for key, numbers in rows_by_key.items():
        selected = values.take(pa.array(numbers, pa.int64()))
        parts.append(
            pa.nulls(len(selected), kind) if unless(key) else compute(selected, *key).cast(kind)
        )
    order = np.concatenate([np.array(numbers, np.int64) for numbers in rows_by_key.values()])
    return concat_arrays(parts).take(pa.array(np.argsort(order)))
