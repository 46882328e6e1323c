"""Rows that another library keeps in a log beside the table (MemWAL) until it merges them.

They have the columns that the table had when they were written, found by the ids of fields.
"""

from __future__ import annotations

from typing import Final

from glaive.errors import SchemaError
from glaive.format.manifest import Manifest

__all__ = ["refuse_for_logged_rows"]

_LOG: Final = "__lance_mem_wal"
"""Name of the entry of the index section that says that there is a log."""


def refuse_for_logged_rows(manifest: Manifest, change: str) -> None:
    """Refuse a change of columns that rows in a log would not have.

    Raises
    ------
    SchemaError
        The table has a log.
    """
    if any(index.name == _LOG for index in manifest.indices):
        raise SchemaError(
            f"{change}: the table has a log of rows (MemWAL), which would lose these values or "
            "not be found any more. Merge its rows and drop it (drop_index) first, with pylance."
        )
