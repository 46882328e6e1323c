"""What the numbers and names of a manifest can be, whatever it says.

Manifests, transactions and index sections are checked against these when they are read, so that
everything behind them may rely on it: a row address holds a fragment id and a row, and a name
leads to a file below the folder it is meant for.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

import re
from typing import Final

from glaive.errors import CorruptFileError

__all__ = [
    "MAX_FIELD_ID",
    "MAX_FRAGMENT_ID",
    "MAX_FRAGMENT_ROWS",
    "check_file_name",
    "is_file_name",
]

MAX_FRAGMENT_ID: Final = 2**32 - 1
"""Highest id of a fragment: the upper half of a row address."""

MAX_FRAGMENT_ROWS: Final = 2**32
"""Rows of a fragment at most: the lower half of a row address tells them apart."""

MAX_FIELD_ID: Final = 2**31 - 1
"""Highest id of a field."""

_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\\]|^/|//|/$|(?:^|/)\.\.?(?:/|$)|^$")
"""Control characters, the separator of another system, and paths that are absolute, lead upwards
or name a folder.
"""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
"""Nearly all names are plain, which is told far sooner."""


def is_file_name(name: str) -> bool:
    """Whether a name leads to a file below the folder that it is joined to, on any system."""
    return bool(_PLAIN(name)) or not _UNFIT.search(name)


def check_file_name(name: str, what: str, where: object) -> str:
    """Make sure that a name from a file or a row leads to a file below its folder; returns it.

    Every such name goes through here before it is joined to a place.

    Raises
    ------
    CorruptFileError
        It is absolute, leads upwards, names no file, or has backslashes or control characters.
    """
    if is_file_name(name):
        return name
    raise CorruptFileError(
        what,
        expected="a path below its folder, without '.', '..', backslashes or control characters",
        found=f"{name!r:.300}",
        where=where,
    )
