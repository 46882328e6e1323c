"""Structs within structs of a slice, for those who import Arrow's C data.

A slice of a struct in Arrow is an offset above members that stay whole. DuckDB refuses such an
offset above a struct, and other importers overlook it. Here members are cut instead.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["cut_members", "nests_structs"]


def nests_structs(schema: pa.Schema) -> bool:
    """Whether a column is a struct with a struct for a member."""
    return any(_nests(field.type) for field in schema)


def cut_members(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with no offset above a struct; copies nothing but the nulls of structs."""
    columns = [_cut(column) if _nests(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _nests(kind: Any) -> bool:
    kind = _stored(kind)
    return pa.types.is_struct(kind) and any(
        pa.types.is_struct(_stored(member.type)) for member in kind
    )


def _stored(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _cut(array: Any) -> Any:
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _cut(array.storage))
    if not pa.types.is_struct(array.type) or not array.type.num_fields:
        return array
    members = [_cut(array.field(at)) for at in range(array.type.num_fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(array.type), mask=mask)
