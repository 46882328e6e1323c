"""Check for nulls in non-nullable members of structs and items of lists.

File writers check top-level columns, as they count their nulls anyway.
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
    """Refuse nulls in non-nullable members and items, except below a null.

    Parameters
    ----------
    rows
        Rows with the columns of ``schema``, in its order.

    Raises
    ------
    SchemaError
        There are nulls.
    """
    for at in _strict_columns(schema):
        field, column = schema.fields[at], rows.column(at)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _check(chunk, field, field.name)


@lru_cache(maxsize=64)  # repeated appends have the same schema
def _strict_columns(schema: LanceSchema) -> tuple[int, ...]:
    """Columns with a non-nullable member or item."""
    return tuple(at for at, field in enumerate(schema.fields) if _is_strict(field))


def _is_strict(field: Field) -> bool:
    # Arrow never has null entries or keys of maps.
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
