"""Values as Python objects, also where Python has none: dates after the year 9999, unknown zones.

Only for what is shown to people, and for JSON: other values keep the types of Arrow.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["NO_PYTHON_VALUE", "exact_rows", "python_rows", "python_values"]

NO_PYTHON_VALUE: Final = (ArithmeticError, LookupError, OSError, ValueError)
"""What pyarrow raises: by limits of Python, and for time zones that are unknown or no names."""


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values; those that Python cannot have are texts, as Arrow shows them."""
    try:
        values: list[Any] = column.to_pylist()
    except NO_PYTHON_VALUE:
        values = [_value(column, at) for at in range(len(column))]
    return values


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, as :func:`python_values` has their values."""
    names, columns = rows.schema.names, map(python_values, rows.columns)
    if not names:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def exact_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows with all digits of their times, which those of Python lack.

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
    """The type as which Python has all digits; the same where it has these already."""
    types = pa.types
    if types.is_duration(kind):
        return pa.int64()
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType) or types.is_dictionary(kind):
        own = kind.value_type if types.is_dictionary(kind) else kind.storage_type
        exact = _exact(own)
        return kind if exact == own else exact
    inner = [kind.field(at) for at in range(kind.num_fields)]
    fields = [field.with_type(_exact(field.type)) for field in inner]
    if fields == inner or types.is_union(kind):
        return kind
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_map(kind):
        return pa.map_(*fields[0].type)
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(fields[0])
    return pa.list_(fields[0]) if types.is_list(kind) else kind  # Lance has no views of lists


def _value(column: pa.Array | pa.ChunkedArray, at: int) -> object:
    try:
        return column[at].as_py()
    except NO_PYTHON_VALUE:
        one: Any = column.slice(at, 1)
        whole = one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one
        return " ".join(whole.to_string().split())[1:-1].strip()
