"""Names that columns of a dataset cannot have.

Specification: "Fields" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from glaive.errors import SchemaError
from glaive.format.pb import file_pb2

__all__ = ["RESERVED", "refuse_reserved"]

_OF_ROWS: Final = frozenset(
    ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")
)
"""What is known of each row, which changes of rows read by these names."""

RESERVED: Final = _OF_ROWS | {"_rowoffset"}
"""Names that no new column can have."""

_NO_PARENT: Final = -1


def refuse_reserved(fields: Iterable[file_pb2.Field], where: str) -> None:
    """Refuse to make a version with a column that has the name of what is known of each row.

    Other writers rename columns to these names. Values of a column of addresses would be taken for
    the addresses of rows, so that a merge changed others than those that it found.

    Raises
    ------
    SchemaError
        There is such a column; the message says how to get rid of it.
    """
    for field in fields:
        if field.parent_id == _NO_PARENT and field.name in _OF_ROWS:
            raise SchemaError(
                f"column {field.name!r} of {where}: the name is reserved for row ids, and changes "
                "would take its values for those. Nothing was changed. Rename the column "
                "(alter_columns), drop it (drop_columns), or restore a version without it"
            )
