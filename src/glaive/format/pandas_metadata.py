"""What pandas notes in the metadata of a schema: types and index of a frame.

Arrow makes types of pandas of it wherever a table becomes a frame, also by its own methods.
"""

from __future__ import annotations

import json
from typing import Final

__all__ = ["names_files"]

_OF_TYPES: Final = ("columns", "column_indexes")
_SUSPECT: Final = (b"dateutil", b"\\")


def names_files(noted: bytes) -> bool:
    """Whether a type has a time zone of dateutil, which opens any path.

    pandas itself notes no such types: time zones have an entry of their own.
    """
    if not any(one in noted for one in _SUSPECT):  # JSON escapes letters with a backslash
        return False
    try:
        said = json.loads(noted)
        kinds = [one["numpy_type"] for key in _OF_TYPES for one in said.get(key, ())]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return True  # damaged, so that nothing is lost without it
    return any("dateutil/" in str(kind) for kind in kinds)
