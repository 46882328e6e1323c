"""One value for many rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.expr.sizes import reserve, scalar_bytes

__all__ = ["repeat"]


def repeat(value: Any, rows: int) -> Any:
    """An array of ``rows`` times the same scalar, of any type.

    Raises
    ------
    CapacityError
        It is large, and the rows should be worked on in parts: Arrow would wrap around.
    """
    size = scalar_bytes(value) if isinstance(value, pa.Scalar) else 0
    if size:
        reserve("a constant", size * rows, rows, value.type)
    # Arrow cannot repeat a list zero times.
    found: Any = pa.repeat(value, max(rows, 1))
    return found.slice(0, rows)
