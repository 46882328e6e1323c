"""Limits of numbers and names in manifests.

Manifests, transactions and index sections are checked when they are read, so that later code can
rely on it: a row address has room for a fragment id and an offset, and a name leads to a file
below its folder.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2

__all__ = [
    "MAX_BASE_PATH",
    "MAX_FIELD_ID",
    "MAX_FRAGMENT_ID",
    "MAX_FRAGMENT_ROWS",
    "check_base_paths",
    "check_ending",
    "check_file_name",
    "is_file_name",
]

MAX_FRAGMENT_ID: Final = 2**32 - 1
"""Highest id of a fragment: the upper half of a row address."""

MAX_FRAGMENT_ROWS: Final = 2**32
"""Maximum rows of a fragment: the range of the lower half of a row address."""

MAX_FIELD_ID: Final = 2**31 - 1
"""Highest id of a field."""

MAX_BASE_PATH: Final = 4096
"""Most characters of a base path, as of any path on Linux; buckets have shorter names. All files
below it may appear in one report, each with the whole path.
"""

_SEPARATOR: Final = r"(?:/|%2[Ff]|%5[Cc])"
_UNFIT: Final = re.compile(
    r"[\x00-\x1f\x7f\\\ud800-\udfff]|^/|//|/$|^$|"
    rf"(?:^|{_SEPARATOR})(?:\.|%2[Ee]){{1,2}}(?:(?:;|%3[Bb])[^/]*)?(?:{_SEPARATOR}|$)"
)
"""Control characters, halves of surrogate pairs, which no message can have, the separator of
another system, and paths that are absolute, lead upwards or name a folder. In addresses of web
servers, which some file systems of fsspec make of names as they are, dots and slashes may be
written with ``%``, and what follows ``;`` may be no part of a name.
"""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
"""Nearly all names match this pattern, which is much faster to check."""


def is_file_name(name: str) -> bool:
    """Whether a name leads to a file below the folder it is joined to, on any system."""
    return bool(_PLAIN(name)) or not _UNFIT.search(name)


def check_file_name(name: str, subject: str, where: object) -> str:
    """Check that a name from a file or a row leads to a file below its folder; returns it.

    Must be called for every such name before it is joined to a path.

    Raises
    ------
    CorruptFileError
        It is absolute, leads upwards, names no file, or has backslashes or control characters.
    """
    if is_file_name(name):
        return name
    raise CorruptFileError(
        subject,
        expected="a path below its folder, without '.', '..', backslashes or control characters",
        found=f"{name!r:.300}",
        where=where,
    )


def check_ending(name: str, ending: str, subject: str, where: object) -> None:
    """Check that a name ends as those do that writers give to such files.

    A folder of a dataset may be a link to any other one of this machine, whose files have other
    names.

    Raises
    ------
    CorruptFileError
        It does not.
    """
    if not name.endswith(ending):
        raise CorruptFileError(
            subject, expected=f"a name that ends in {ending}", found=f"{name!r:.300}", where=where
        )


def check_base_paths(bases: Iterable[table_pb2.BasePath], where: object) -> None:
    """Check that no base path is longer than a system allows.

    Raises
    ------
    CorruptFileError
        One is.
    """
    for base in bases:
        if len(base.path) > MAX_BASE_PATH:
            raise CorruptFileError(
                f"base path {base.id}",
                expected=f"at most {MAX_BASE_PATH} characters",
                found=f"{len(base.path)} ({base.path[:100]!r}…)",
                where=where,
            )
