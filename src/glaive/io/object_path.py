"""Check that a path names an object below the root of a store, whatever the store.

Paths come from manifests, transactions and users. A path that leads out of the root, or has a
character that no file's name should have, is rejected before any store sees it.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from glaive.errors import OptionError, StoreError

__all__ = ["ALWAYS_CHECKED", "absolute_path", "check_object_path", "check_root"]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_OTHER_SEPARATORS: Final = os.sep != "/"
"""On Windows, paths may have ``\\`` between parts, and a drive before them."""

ALWAYS_CHECKED: Final = _OTHER_SEPARATORS or sys.getfilesystemencoding() != "utf-8"
"""Whether printable paths of this machine are checked, too: names of its files are no UTF-8."""


def absolute_path(path: str, prefix: str = "") -> str:
    """A path from the root of the disk on.

    Raises
    ------
    OptionError
        It is relative, and the working directory of this process was removed.
    """
    try:
        return os.path.abspath(path)
    except OSError as error:
        raise OptionError(
            f"{prefix}{path!r} is relative, and the working directory cannot be found: "
            f"{error.strerror}. Give an absolute path, or change to a directory that exists."
        ) from None


def check_object_path(
    path: str, root: str, *, is_local: bool = False, in_url: bool = False
) -> None:
    """Raise ``StoreError`` for a path that does not name an object below ``root``.

    Such a path is absolute, leads upwards, has a control character or half of a surrogate pair, or
    characters that names of files of this machine (``is_local``) cannot have in this process. It
    also leads upwards as a part of a URL (``in_url``), for which some clients put it as it is.
    """
    parts = path.split("/")
    if _OTHER_SEPARATORS:
        parts = re.split(r"[/\\]", path)
    climbs = ".." in parts or (in_url and _climbs_in_url(path))
    if path and (not parts[0] or climbs or (_OTHER_SEPARATORS and ":" in path)):
        raise StoreError(
            f"path {path!r} leads out of {root}. A manifest that names such a path is damaged or "
            "malicious."
        )
    wrong = _wrong_character(path, is_local=is_local)
    if wrong is not None:
        raise StoreError(f"path {path!r} below {root}: {wrong}")
    if _CONTROL.search(path):
        character = "null" if "\0" in path else "control"
        raise StoreError(
            f"path {path!r} below {root} has a {character} character, which no file's name has. "
            "A manifest that names such a path is damaged."
        )


def _climbs_in_url(path: str) -> bool:
    """Whether a part is ``..`` once ``%2e`` and ``%2f`` are characters.

    To some web servers what follows ``;`` is no part of a name.
    """
    if ".." not in path and "%" not in path:
        return False
    from urllib.parse import unquote

    return any(part.partition(";")[0] == ".." for part in unquote(path).split("/"))


def check_root(root: str, *, is_local: bool) -> None:
    """Raise ``OptionError`` for a path or URI with a character that no name has.

    Nor may one of this machine (``is_local``) have what this process cannot write in names.
    """
    wrong = _wrong_character(root, is_local=is_local)
    if wrong is not None:
        raise OptionError(f"{root!r}: {wrong}")
    if "\0" in root:
        raise OptionError(f"{root!r} has a null character, which no file's name has")


def _wrong_character(name: str, *, is_local: bool) -> str | None:
    """What is wrong with a character of a name, and the remedy; ``None`` if nothing is.

    Names of files have the encoding of this process, which a locale such as C limits to ASCII.
    """
    encoding = sys.getfilesystemencoding() if is_local else "utf-8"
    try:
        # Some halves stand for bytes of names that are no text.
        name.encode(encoding, sys.getfilesystemencodeerrors() if is_local else "surrogateescape")
    except UnicodeEncodeError as error:
        if "\ud800" <= name[error.start] <= "\udfff":
            return (
                f"the character at {error.start} is half of a surrogate pair, which no file's name "
                "has. Check how the name was decoded."
            )
        return (
            f"the character at {error.start}, {name[error.start]!r}, is none that this process can "
            f"write in names of files, whose encoding is {encoding}. Set PYTHONUTF8=1, or a locale "
            "of UTF-8 such as LC_ALL=C.UTF-8."
        )
    return None
