"""What the numbers and names of a manifest can be, whatever it says.

Manifests, transactions and index sections are checked against these when they are read, so that
everything behind them may rely on it: a row address holds a fragment id and a row, and a name
leads to a file below the folder it is meant for.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

from typing import Final

from glaive.errors import CorruptFileError
from glaive.format.paths import is_path

__all__ = ["MAX_FIELD_ID", "MAX_FRAGMENT_ID", "MAX_FRAGMENT_ROWS", "check_file_name"]

MAX_FRAGMENT_ID: Final = 2**32 - 1
"""Highest id of a fragment: the upper half of a row address."""

MAX_FRAGMENT_ROWS: Final = 2**32
"""Rows of a fragment at most: the lower half of a row address tells them apart."""

MAX_FIELD_ID: Final = 2**31 - 1
"""Highest id of a field."""


def check_file_name(name: str, what: str, where: object) -> None:
    """Make sure that a name from a file leads to a file below the folder it is meant for.

    Raises
    ------
    CorruptFileError
        It is none, as ``is_path`` tells.
    """
    if not is_path(name):
        raise CorruptFileError(
            what,
            expected="a path below its folder, without '.', '..', '\\' or control characters",
            found=repr(name),
            where=where,
        )
