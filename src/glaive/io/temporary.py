"""Names of files that are not finished yet.

A file is written as ``.<name>.<16 hexadecimal digits>.tmp`` in the folder it belongs to. The
digits are random, and such files are only ever created where there is nothing, so that nobody
can put a link in the way. Listings leave out all names that begin with a dot and end in
``.tmp``.
"""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = [
    "final_name",
    "is_removed",
    "is_temporary",
    "removal_name",
    "removed_path",
    "temporary_path",
]

_END: Final = ".tmp"
_ASIDE: Final = ".removed.tmp"
_WRITTEN: Final = re.compile(r"\.(.+?)\.(?:[0-9a-f]{4,32}(?:\.removed)?|removal)\.tmp", re.DOTALL)


def temporary_path(full: str) -> str:
    """A new path for the file that is going to be ``full``."""
    folder, _, name = full.rpartition("/")
    return f"{folder}/.{name}.{os.urandom(8).hex()}{_END}"


def removal_name(name: str) -> str:
    """Name of the file that says that an unfinished file of this name is being removed."""
    return f".{name}.removal{_END}"


def removed_path(full: str) -> str:
    """A new path for an unfinished file that is being removed."""
    return temporary_path(full).removesuffix(_END) + _ASIDE


def is_removed(name: str) -> bool:
    """Whether a file was moved away to be removed: nobody waits to give it a name."""
    return name.endswith(_ASIDE)


def is_temporary(name: str) -> bool:
    """Whether listings leave out a file of this name."""
    return name.startswith(".") and name.endswith(_END)


def final_name(name: str) -> str | None:
    """What a temporary file is going to be called, or was; ``None`` if it is none of ours."""
    found = _WRITTEN.fullmatch(name)
    return None if found is None else found[1]
