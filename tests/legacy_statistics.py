"""All statistics of a file of the legacy format."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.file.legacy import LegacyFile

__all__ = ["page_statistics"]


def page_statistics(file: LegacyFile) -> pa.Table | None:
    """Return a row per batch, and a struct per measured field, named by its id."""
    found = {str(number): file.page_bounds(number) for number in file.schema.field_ids()}
    columns: dict[str, Any] = {
        name: pa.StructArray.from_arrays(
            [pa.array(bounds.null_count), bounds.min_value, bounds.max_value],
            names=["null_count", "min_value", "max_value"],
        )
        for name, bounds in found.items()
        if bounds is not None
    }
    return pa.table(columns) if columns else None
