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

__all__ = ["MAX_FIELD_ID", "MAX_FRAGMENT_ID", "MAX_FRAGMENT_ROWS", "check_file_name"]

MAX_FRAGMENT_ID: Final = 2**32 - 1
"""Highest id of a fragment: the upper half of a row address."""

MAX_FRAGMENT_ROWS: Final = 2**32
"""Rows of a fragment at most: the lower half of a row address tells them apart."""

MAX_FIELD_ID: Final = 2**31 - 1
"""Highest id of a field."""

_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f]|^/|//|/$|(?:^|/)\.\.?(?:/|$)|^$")
"""Control characters, and paths that are absolute, lead upwards or name a folder."""

_DOUBTFUL: Final = ("", ".")
"""First characters of names that are looked at closely."""


def check_file_name(name: str, what: str, where: object) -> None:
    """Make sure that a name from a file leads to a file below the folder it is meant for.

    Raises
    ------
    CorruptFileError
        It is absolute, leads upwards, names no file, or has control characters.
    """
    # Nearly all names are plain, which is told far sooner.
    if name.isprintable() and "/" not in name and name[:1] not in _DOUBTFUL:
        return
    if _UNFIT.search(name):
        raise CorruptFileError(
            what,
            expected="a path below its folder, without '.', '..' or control characters",
            found=repr(name),
            where=where,
        )
