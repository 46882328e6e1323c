"""Columns of a change feed in each of the versions that its rows come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.scan.system_columns import SYSTEM_COLUMNS

__all__ = ["CHANGE_COLUMNS", "fitted", "sources"]

_ADDED: list[Any] = [
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False),
]
CHANGE_COLUMNS = pa.schema(_ADDED)
"""What a feed tells of each row, after the columns of the dataset."""


def sources(
    names: Sequence[str],
    wanted: LanceSchema,
    stored: LanceSchema,
    *,
    same_fields: bool | None,
    where: str,
) -> list[str | None]:
    """The name that each column had in a version; ``None`` if it did not have the column.

    Parameters
    ----------
    names
        Top-level columns of ``wanted``, and system columns.
    wanted, stored
        Schema that the feed has, and schema of the version.
    same_fields
        Whether field ids mean the same columns in both; ``None`` if that is not known.

    Raises
    ------
    SchemaError
        A column may have been renamed, which only field ids would tell.
    """
    found: list[str | None] = []
    for name in names:
        if name in SYSTEM_COLUMNS or name in stored.names:
            found.append(name)
            continue
        (field,) = wanted.find(name)
        renamed = [column.name for column in stored.fields if column.id == field.id]
        if not renamed or same_fields is False:
            found.append(None)
        elif same_fields:
            found.append(renamed[0])
        else:
            raise SchemaError(
                f"column {name!r} does not exist in {where}, where {renamed[0]!r} may be the same "
                "column under another name. Start at a later version, or leave the column out"
            )
    return found


def fitted(array: pa.ChunkedArray, column: pa.Field, where: str) -> pa.ChunkedArray:
    """Values of an earlier type of a column in the type that the feed has.

    Raises
    ------
    SchemaError
        A value cannot be converted.
    """
    if array.type == column.type:
        return array
    try:
        return array.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {column.name!r} is {array.type} in {where} and {column.type} in the feed: "
            f"{error}. Leave the column out, or read changes since its type was changed"
        ) from error
