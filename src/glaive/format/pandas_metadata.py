"""What pandas notes in the metadata of a schema: types and index of a frame.

Arrow makes types of pandas of it wherever a table becomes a frame, also by its own methods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["is_unsafe"]

_WIDE: Final = re.compile(r"(?:^|\W)[aSUV]?\d")
"""A type of NumPy with a number of bytes or items: ``S300``, ``S 300``, ``3i8``, ``(3,)i8``."""

_LONG: Final = 1_000
"""Characters of a name with levels, at most: each may be an item, and each item is a level."""


def is_unsafe(noted: bytes, names_of_columns: Iterable[str]) -> bool:
    """Whether making a frame by a note opens files, or takes memory or time that the note chooses.

    A time zone of dateutil opens any path. The names of columns are converted to a type that the
    note names, each to so many bytes. pandas itself notes no such types: time zones have an entry
    of their own, and names are objects, texts, numbers or times. Nor does it note an index of
    several ranges, each of which takes memory for all rows, and its names have few levels.
    """
    try:
        said = json.loads(noted)
        described = said.get("columns", ())
        columns = [str(one["numpy_type"]) for one in described]
        names = said.get("column_indexes", ())
        of_names = [str(one[key]) for one in names for key in ("numpy_type", "pandas_type")]
        ranges = [one for one in said.get("index_columns", ()) if isinstance(one, dict)]
        with_levels: list[Any] = []
        if len(names) > 1:  # then each name is read as a tuple
            with_levels = [*names_of_columns, *(one.get("name") for one in described)]
    except ValueError:
        return False  # no JSON: nobody makes types of it
    except (AttributeError, KeyError, RecursionError, TypeError):
        return True  # damaged, so that nothing is lost without it
    return (
        len(ranges) > 1
        or any(len(str(name)) > _LONG for name in with_levels)
        or any("dateutil/" in kind for kind in columns + of_names)
        or any(map(_WIDE.search, of_names))
    )
