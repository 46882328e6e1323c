"""Rows of an index file after rows of the dataset moved: those that are left, at their places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.index.address_map import AddressMap

__all__ = ["rows_left"]


def rows_left(rows: pa.Table, column: str, moved: AddressMap) -> tuple[pa.Table, NDArray[np.bool_]]:
    """Rows whose address is left, in their order, with new addresses; and which they are.

    Parameters
    ----------
    column
        Row addresses (uint64), none of them null.
    """
    found, kept = moved.apply(rows[column].to_numpy().astype(np.uint64, copy=False))
    left = rows if kept.all() else rows.take(np.flatnonzero(kept))
    at = left.schema.get_field_index(column)
    return left.set_column(at, left.schema.field(at), pa.array(found[kept])), kept
