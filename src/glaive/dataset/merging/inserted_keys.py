"""Which keys a merge inserts, told to other writers where they are the primary key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataset.merging.clauses import MergeClauses, primary_key
from glaive.dataset.merging.source import one_array
from glaive.format.fields import LanceSchema
from glaive.table.key_filter import hash_words, key_filter

__all__ = ["inserted_keys"]


def inserted_keys(
    schema: LanceSchema, clauses: MergeClauses, rows: pa.Table, inserted: NDArray[np.bool_] | None
) -> Any:
    """What tells other writers which keys were inserted, if the keys are the primary key."""
    if inserted is None or not inserted.any() or primary_key(schema) != clauses.on:
        return None
    if len(clauses.on) > 1:
        return None
    column = one_array(rows.column(clauses.on[0])).filter(pa.array(inserted))
    if column.null_count or not pa.types.is_integer(column.type) or column.type.bit_width < 32:
        return None
    signed = pa.types.is_signed_integer(column.type)
    words = column.cast(pa.int64() if signed else pa.uint64()).to_numpy().view(np.uint64)
    ids = [schema.find(name)[-1].id for name in clauses.on]
    return key_filter(ids, hash_words(words))
