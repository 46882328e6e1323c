"""Constants as arrays, and the only place where expressions loop over rows in Python.

Functions use kernels of Arrow, numpy and the package datafusion. What has no kernel calls
:func:`map_rows` or :func:`row_values`, at a microsecond or more per row, and mentions it in the
docstring of its module. :func:`map_distinct` and :func:`map_constants` call Python once per
distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glaive.arrow.chunked import concat_arrays, dictionary_encoded
from glaive.arrow.conditions import NO_PYTHON_VALUE
from glaive.errors import CapacityError
from glaive.expr.functions.untyped import pa
from glaive.expr.sizes import check_bytes, check_values, scalar_bytes, values_within


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
