"""What pandas notes in the metadata of a schema: types and index of a frame.

Arrow makes types of pandas of it wherever a table becomes a frame, also by its own methods.
"""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["is_unsafe"]

_WIDE: Final = re.compile(r"(?:^|\W)[aSUV]?\d")
"""A type of NumPy with a number of bytes or items: ``S300``, ``S 300``, ``3i8``, ``(3,)i8``."""


def is_unsafe(noted: bytes) -> bool:
    """Whether making types of a note opens files, or takes memory that the note chooses.

    A time zone of dateutil opens any path. The names of columns are converted to a type that the
    note names, each to so many bytes. pandas itself notes no such types: time zones have an entry
    of their own, and names are objects, texts, numbers or times.
    """
    try:
        said = json.loads(noted)
        columns = [str(one["numpy_type"]) for one in said.get("columns", ())]
        names = said.get("column_indexes", ())
        of_names = [str(one[key]) for one in names for key in ("numpy_type", "pandas_type")]
    except ValueError:
        return False  # no JSON: nobody makes types of it
    except (AttributeError, KeyError, RecursionError, TypeError):
        return True  # damaged, so that nothing is lost without it
    return any("dateutil/" in kind for kind in columns + of_names) or any(
        map(_WIDE.search, of_names)
    )
