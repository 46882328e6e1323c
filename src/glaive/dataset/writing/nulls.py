"""Nulls within columns, where none may be: in members of structs and items of lists.

Those of whole columns are refused by the file, which counts them anyway.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from glaive.dataset.writing.source import Rows
from glaive.errors import SchemaError
from glaive.format.field import Field
from glaive.format.fields import LanceSchema

__all__ = ["check_members"]


def check_members(rows: Rows, schema: LanceSchema) -> None:
    """Refuse nulls in members and items that are never null; what lies under a null is no value.

    Parameters
    ----------
    rows
        With the columns of ``schema``, in its order.

    Raises
    ------
    SchemaError
        Names the member and how many nulls there are.
    """
    for at in _strict_columns(schema):
        field, column = schema.fields[at], rows.column(at)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _check(chunk, field, field.name)


@lru_cache(maxsize=64)  # appends have the same schema again and again
def _strict_columns(schema: LanceSchema) -> tuple[int, ...]:
    """Columns with a member or item that is never null."""
    return tuple(at for at, field in enumerate(schema.fields) if _is_strict(field))


def _is_strict(field: Field) -> bool:
    # Arrow itself has no maps without entries or keys.
    return field.logical_type != "map" and any(
        not child.nullable or _is_strict(child) for child in field.children
    )


def _check(array: Any, field: Field, path: str) -> None:
    if not _is_strict(field):
        return
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(array.type):
        array = array.drop_null() if array.null_count else array
        parts = [array.field(child.name) for child in field.children]
    else:
        parts = [array.flatten()]
    for child, part in zip(field.children, parts, strict=True):
        below = f"{path}.{child.name}"
        if not child.nullable and part.null_count:
            raise SchemaError(
                f"column {below!r}: expected no nulls, found {part.null_count}. Fill them, or "
                "make it nullable: in a dataset by alter_columns."
            )
        _check(part, child, below)
