"""Values as Python objects, also where Python has none: dates after the year 9999, unknown zones.

Only for what is shown to people: other values keep the types of Arrow.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["NO_PYTHON_VALUE", "python_rows", "python_values"]

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


def _value(column: pa.Array | pa.ChunkedArray, at: int) -> object:
    try:
        return column[at].as_py()
    except NO_PYTHON_VALUE:
        one: Any = column.slice(at, 1)
        whole = one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one
        return " ".join(whole.to_string().split())[1:-1].strip()
