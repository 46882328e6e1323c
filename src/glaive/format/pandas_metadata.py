"""What pandas notes in the metadata of a schema: types and index of a frame.

Arrow makes types of pandas of it wherever a table becomes a frame, also by its own methods.
"""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["is_unsafe"]

_OF_TYPES: Final = ("columns", "column_indexes")
_SUSPECT: Final = (b"dateutil", b"\\")
_WIDE: Final = re.compile(r"(?:^|\W)(?:[aSUV]?\d|\()")
"""A type of NumPy with a number of bytes or items, such as ``S300`` or ``(300,)i8``."""


def is_unsafe(noted: bytes) -> bool:
    """Whether making types of a note opens files, or takes memory that the note chooses.

    A time zone of dateutil opens any path. The names of columns are converted to a type that the
    note names, each to so many bytes. pandas itself notes no such types: time zones have an entry
    of their own, and names are objects, texts, numbers or times.
    """
    suspect = any(one in noted for one in _SUSPECT)  # JSON escapes letters with a backslash
    try:
        said = json.loads(noted)
        kinds = [one["numpy_type"] for key in _OF_TYPES for one in said.get(key, ())]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        # Damaged, so that nothing is lost without it.
        return suspect or b"column_indexes" in noted
    return any("dateutil/" in str(kind) for kind in kinds) or any(
        _WIDE.search(str(one.get(key, ""))) is not None
        for one in said.get("column_indexes", ())
        for key in ("numpy_type", "pandas_type")
    )
