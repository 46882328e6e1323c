"""Metadata of a schema that other libraries act on, made safe for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from glaive.format.extension_metadata import withheld
from glaive.format.logical_types import COLUMNS_OF_PARQUET
from glaive.format.pandas_metadata import fitting, is_unsafe

__all__ = ["safe_for_others"]

_PANDAS: Final = "pandas"


def safe_for_others(
    metadata: Mapping[str, bytes], fields: Sequence[pa.Field[Any]]
) -> dict[str, bytes]:
    """The entries, less what pandas notes where it is unsafe, those of an extension type withheld.

    What it notes of columns that have other types now is corrected.

    Nor is there what describes the columns of a file of Parquet: it would be written to a file with
    others. Of two entries of its own, Arrow reads the first.

    No schema is of an extension type. But by its C interface Arrow takes a schema for a struct, and
    gives the entries of this one to the class of the type, as those of a field.
    """
    safe = {
        key: value for key, value in withheld(metadata).items() if key not in COLUMNS_OF_PARQUET
    }
    if _PANDAS in safe:
        if is_unsafe(safe[_PANDAS], (field.name for field in fields)):
            del safe[_PANDAS]
        else:
            safe[_PANDAS] = fitting(safe[_PANDAS], fields)
    return safe
