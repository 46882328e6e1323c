"""Which keys a merge inserts, told to other writers where they are the primary key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_column
from glaive.dataset.merging.clauses import MergeClauses, primary_key
from glaive.format.fields import LanceSchema
from glaive.table.key_filter import hash_keys, key_filter

__all__ = ["inserted_keys"]


def inserted_keys(
    schema: LanceSchema, clauses: MergeClauses, rows: pa.Table, inserted: NDArray[np.bool_] | None
) -> Any:
    """What tells other writers which keys were inserted, if the keys are the primary key."""
    if inserted is None or not inserted.any() or primary_key(schema) != clauses.on:
        return None
    kept = pa.array(inserted)
    hashes = hash_keys([join_column(rows.column(name)).filter(kept) for name in clauses.on])
    if hashes is None:
        return None
    return key_filter([schema.find(name)[-1].id for name in clauses.on], hashes)
