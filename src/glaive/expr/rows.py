"""Constants as arrays, bytes of values, and all Python loops over rows (row by row)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from glaive.arrow.blocks import number_array
from glaive.arrow.chunked import concat_arrays, dictionary_encoded, row_bytes
from glaive.arrow.conditions import NO_PYTHON_VALUE
from glaive.errors import CapacityError, FilterError, GlaiveError
from glaive.types import MAX_OFFSET

# --- pyarrow as ``Any``: functions take values of any type, which its stubs refuse ---

pa: Any = import_module("pyarrow")
"""``pyarrow``."""

pc: Any = import_module("glaive.arrow.compute")
"""``pyarrow.compute``, loaded when a function of it is used."""


# --- Check the bytes of an expression's values before computing them --------------------
#
# A constant of a megabyte for a million rows would take a terabyte, and 32-bit offsets would
# overflow. If values of several rows exceed ``MAX_BATCH_BYTES``, a ``CapacityError`` has the number
# of parts to split the rows into; see :func:`glaive.arrow.chunked.in_parts`.

MAX_BATCH_BYTES: Final = 2**26
"""Maximum bytes of values computed at a time for several rows, per thread."""

MAX_VALUE_BYTES: Final = 2**28
"""Maximum bytes of a value that functions such as ``lpad`` and ``repeat`` make of a short one."""


MAX_HELD_BYTES: Final = 2**30
"""Maximum bytes of computed arguments in memory, of a call and its outer calls, per thread."""


MAX_VALUES: Final = 2**22
"""Maximum values within lists, maps and structs of several rows for a function at a time."""


MAX_LIST_ITEMS: Final = 2**24
"""Maximum list items of several rows that have positions and flags in memory at a time."""


MAX_VALUES_OF_A_ROW: Final = 2**25
"""Maximum of both for one row: over a gigabyte. A file may have fewer bytes than values."""


def check_held(maker: str, size: int, rows: int) -> None:
    """Check the memory of computed arguments, of a call and its outer calls.

    Raises
    ------
    CapacityError
        The limit is exceeded, with several rows.
    FilterError
        The limit is exceeded, with one row.
    """
    if size <= MAX_HELD_BYTES:
        return
    what = f"the arguments of {maker}, and of what it is an argument of, take {size} bytes"
    raise _too_much(what, rows, -(-size // MAX_BATCH_BYTES), MAX_HELD_BYTES)


def check_bytes(maker: str, size: int, rows: int, kind: Any = None) -> None:
    """Check that values of ``size`` bytes in total may be made for some rows.

    Parameters
    ----------
    maker
        Name of the function that makes them, for the message.
    kind
        Type of the values; a single value of a large type may have any size.

    Raises
    ------
    CapacityError
        Several rows exceed the limit, or the value of one row exceeds an array.
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


def check_values(count: int, rows: int, limit: int = MAX_VALUES) -> None:
    """Check that a function may take ``count`` values within lists, maps and structs at once.

    ``limit`` is the limit for several rows. Errors as for :func:`check_held`.
    """
    if count > (limit if rows > 1 else MAX_VALUES_OF_A_ROW):
        what = f"a function or a comparison takes {count} values and items of lists"
        raise _too_much(what, rows, -(-count // limit), MAX_VALUES_OF_A_ROW)


def _too_much(what: str, rows: int, parts: int, limit: int) -> GlaiveError:
    """Return an error that makes the caller split the rows; for one row, one with the limit."""
    if rows > 1:
        return CapacityError(f"{what} for {rows} rows", parts=min(rows, parts))
    return FilterError(f"{what} for one row; at most {limit} are supported")


def values_within(array: Any) -> int:
    """Count values in lists, maps and structs; a struct counts three more."""
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
    """Return the bytes of a constant per row; 0 for types of a few bytes."""
    if not value.is_valid or not varies(value.type):
        return 0
    if isinstance(value, pa.StringScalar | pa.BinaryScalar):
        return int(value.as_buffer().size)
    return int(pa.repeat(value, 1).nbytes)


def bytes_of(argument: Any, rows: int) -> int:
    """Return the bytes of an array, or of a constant repeated for some rows."""
    if isinstance(argument, pa.Scalar):
        return scalar_bytes(argument) * rows
    size = int(argument.nbytes)
    if not pa.types.is_nested(argument.type):
        return size
    # Nulls of type null take 0 bytes, but offsets count them.
    sizes = row_bytes(argument, null=1)
    counted = sizes * len(argument) if isinstance(sizes, int) else int(sizes.sum())
    return max(size, counted)


def largest(argument: Any) -> int:
    """Return the bytes of the largest value of an array or a constant; a typeless null counts 1."""
    if isinstance(argument, pa.Scalar):
        return max(scalar_bytes(argument), fixed_bytes(argument.type))
    sizes = row_bytes(argument, null=1)
    return sizes if isinstance(sizes, int) else int(sizes.max(initial=0))


@lru_cache(maxsize=256)
def fixed_bytes(kind: Any) -> int:
    """Return the bytes that each value of a type takes, including nulls."""
    types = pa.types
    if types.is_fixed_size_list(kind):
        return int(kind.list_size) * fixed_bytes(kind.value_type)
    if types.is_struct(kind):
        return sum(fixed_bytes(kind.field(at).type) for at in range(kind.num_fields))
    fixed = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return int(kind.bit_width) // 8 if fixed else 0


@lru_cache(maxsize=256)
def has_offsets(kind: Any) -> bool:
    """Return whether arrays of a type have 32-bit offsets, at any depth."""
    types = pa.types
    if kind is None or types.is_string(kind) or types.is_binary(kind):
        return True
    if types.is_list(kind) or types.is_map(kind):
        return True
    return any(has_offsets(kind.field(at).type) for at in range(kind.num_fields))


@lru_cache(maxsize=256)
def varies(kind: Any) -> bool:
    """Return whether values of a type may have more than a few bytes."""
    types = pa.types
    plain = types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind)
    return not (plain or types.is_interval(kind))


def is_constant(argument: Any) -> bool:
    """Return whether an argument has one value for all rows."""
    return isinstance(argument, pa.Scalar)


def count_rows(arguments: Sequence[Any]) -> int:
    """Return the number of rows of the arguments that are arrays; 1 if all are constants."""
    return next((len(argument) for argument in arguments if isinstance(argument, pa.Array)), 1)


def broadcast(argument: Any, rows: int) -> Any:
    """Return a constant as an array of that many rows; arrays unchanged."""
    return repeat(argument, rows) if is_constant(argument) else argument


def broadcast_all(arguments: Sequence[Any], rows: int) -> list[Any]:
    """Return all arguments as arrays of that many rows.

    Raises
    ------
    CapacityError
        The constants take too much memory together: process fewer rows at a time.
    """
    size = sum(scalar_bytes(argument) for argument in arguments if is_constant(argument))
    check_bytes("constants", size * rows, rows)
    return [broadcast(argument, rows) for argument in arguments]


def repeat(value: Any, rows: int) -> Any:
    """Return an array of ``rows`` times the same scalar, of any type.

    Raises
    ------
    CapacityError
        The array is too large, or Arrow's offsets would overflow: process fewer rows at a time.
    """
    size = scalar_bytes(value) if is_constant(value) else 0
    if size:
        check_bytes("a constant", size * rows, rows, value.type)
    # Arrow fails to repeat a list zero times.
    return pa.repeat(value, max(rows, 1)).slice(0, rows)


def array_of(values: list[Any], kind: Any) -> Any:
    """Convert Python values to one array.

    Raises
    ------
    CapacityError
        The values exceed one array; Arrow would make several chunks.
    pyarrow.ArrowInvalid
        A value is of another type, such as Python's ``NaT``, the least timestamp and duration.
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


def map_rows(kind: Any, compute: Callable[..., Any], *arguments: Any) -> Any:
    """Call a Python function for each row; return the results as an array of type ``kind``."""
    return array_of(row_values(compute, *arguments), kind)


def row_values(
    compute: Callable[..., Any], *arguments: Any, nulls: Sequence[int] = ()
) -> list[Any]:
    """Call a Python function for each row; return Python values.

    Parameters
    ----------
    arguments
        Arrays of equal length, or scalars, which are passed for each row.
    nulls
        Indices of arguments that may be null; a null in another argument makes the result null.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value is impossible in Python: an invalid string, a time after the year 9999, or an
        unknown time zone.
    CapacityError
        Lists have too many items: process fewer rows at a time.
    FilterError
        The lists of one row have too many items.
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


def map_constants(kind: Any, compute: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call ``compute(values, *constants)`` once per distinct set of the other arguments.

    The result is null where one of these is.

    Parameters
    ----------
    arguments
        The values, and the arguments that ``compute`` takes as constants.
    """
    rows = count_rows(arguments)
    values, *others = arguments
    values = broadcast(values, rows)
    if all(map(is_constant, others)):
        given = tuple(other.as_py() for other in others)
        return pa.nulls(rows, kind) if None in given else compute(values, *given)
    if not rows:
        return pa.nulls(0, kind)
    rows_by_key: dict[tuple[Any, ...], list[int]] = {}
    keys = row_values(lambda *key: key, *others, nulls=range(len(others)))
    for row, key in enumerate(keys):
        rows_by_key.setdefault(key, []).append(row)
    parts = []
    for key, numbers in rows_by_key.items():
        selected = values.take(number_array(np.array(numbers)))
        parts.append(
            pa.nulls(len(selected), kind) if None in key else compute(selected, *key).cast(kind)
        )
    order = np.concatenate([np.array(numbers, np.int64) for numbers in rows_by_key.values()])
    return concat_arrays(parts).take(number_array(np.argsort(order)))
