"""One value for many rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["repeat"]


def repeat(value: Any, rows: int) -> Any:
    """An array of ``rows`` times the same scalar, of any type."""
    # Arrow cannot repeat a list zero times.
    found: Any = pa.repeat(value, max(rows, 1))
    return found.slice(0, rows)
