"""What a search for vectors adds to rows: their distance and, in a batch, the query."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pyarrow as pa

from glaive.errors import OptionError
from glaive.scan.found_columns import AddedColumns
from glaive.scan.views import Views

__all__ = ["DISTANCE", "QUERY", "added_columns"]

DISTANCE: Final = "_distance"
QUERY: Final = "query_index"

_DISTANCE: Final = pa.field(DISTANCE, pa.float32())
_QUERY: Final = pa.field(QUERY, pa.int32(), nullable=False)

_OF_ONE: Final = AddedColumns(MappingProxyType({DISTANCE: _DISTANCE}), (), DISTANCE)
_OF_BATCH: Final = AddedColumns(
    MappingProxyType({DISTANCE: _DISTANCE, QUERY: _QUERY}), (QUERY,), DISTANCE
)


def added_columns(views: Views, *, batch: bool) -> AddedColumns:
    """Columns that a search of one query adds, or of several.

    Raises
    ------
    OptionError
        The dataset has a column with a name that the result of a batch needs.
    """
    if not batch:
        return _OF_ONE
    if QUERY in views.snapshot.manifest.schema.names:
        raise OptionError(
            f"nearest: the dataset has a column {QUERY!r}, which is what the result of several "
            "queries calls the number of the query. Search with one query at a time."
        )
    return _OF_BATCH
