"""Metadata of a schema that other libraries act on, made safe for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from glaive.format.extension_metadata import withheld
from glaive.format.pandas_metadata import is_unsafe

__all__ = ["safe_for_others"]

_PANDAS: Final = "pandas"

_OF_PARQUET: Final = "ARROW:schema"
"""Of a file of Parquet, its columns as Arrow has them: types, with the parameters of extensions."""


def safe_for_others(
    metadata: Mapping[str, bytes], names_of_columns: Iterable[str]
) -> dict[str, bytes]:
    """The entries, less what pandas notes where it is unsafe, those of an extension type withheld.

    Nor is there what is for Arrow in files of Parquet: it would be written to one beside the entry
    of Arrow itself, which reads the first of both.

    No schema is of an extension type. But by its C interface Arrow takes a schema for a struct, and
    gives the entries of this one to the class of the type, as those of a field.
    """
    safe = withheld(metadata)
    safe.pop(_OF_PARQUET, None)
    if _PANDAS in safe and is_unsafe(safe[_PANDAS], names_of_columns):
        del safe[_PANDAS]
    return safe
