"""Names of files that are not finished yet.

A file is written as ``.<name>.<16 hexadecimal digits>.tmp`` in its final folder. The digits are
random, and such files are only created if no file has the name, so that nobody can put a link
there beforehand. Listings omit all names that begin with a dot and end in ``.tmp``.
"""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = [
    "final_name",
    "is_others_temporary",
    "is_removed",
    "is_temporary",
    "removal_name",
    "removed_path",
    "temporary_path",
]

_END: Final = ".tmp"
_ASIDE: Final = ".removed.tmp"
_WRITTEN: Final = r"(?s)\.(.+?)\.(?:[0-9a-f]{4,32}(?:\.removed)?|removal)\.tmp"

_OTHERS: Final = r"\.tmp[0-9A-Za-z]{6}"


def temporary_path(full: str) -> str:
    """A new temporary path for the file that will be renamed to ``full``."""
    folder, _, name = full.rpartition("/")
    return f"{folder}/.{name}.{os.urandom(8).hex()}{_END}"


def removal_name(name: str) -> str:
    """Name of the marker file for the removal of an unfinished file of this name."""
    return f".{name}.removal{_END}"


def removed_path(full: str) -> str:
    """A new path for an unfinished file that is being removed."""
    return temporary_path(full).removesuffix(_END) + _ASIDE


def is_removed(name: str) -> bool:
    """Whether a file was moved away to be removed: no writer is going to rename it."""
    return name.endswith(_ASIDE)


def is_temporary(name: str) -> bool:
    """Whether listings omit a file of this name."""
    return name.startswith(".") and name.endswith(_END)


def is_others_temporary(name: str) -> bool:
    """Whether a file has a name that pylance gives to files on local disks while it writes them."""
    return re.fullmatch(_OTHERS, name) is not None


def final_name(name: str) -> str | None:
    """The final name of a temporary file; ``None`` if it is not a temporary file of ours."""
    match = re.fullmatch(_WRITTEN, name)
    return None if match is None else match[1]
