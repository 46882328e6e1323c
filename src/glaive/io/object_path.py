"""Check that a path names an object below the root of a store, whatever the store.

Paths come from manifests, transactions and users. A path that leads out of the root, or has a
character that no file's name should have, is rejected before any store sees it.
"""

from __future__ import annotations

import os
import re
from typing import Final

from glaive.errors import StoreError

__all__ = ["check_object_path"]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_OTHER_SEPARATORS: Final = os.sep != "/"
"""On Windows, paths may have ``\\`` between parts, and a drive before them."""


def check_object_path(path: str, root: str) -> None:
    """Raise ``StoreError`` for a path that does not name an object below ``root``.

    Such a path is absolute, leads upwards, or has a control character or half of a surrogate pair.
    """
    parts = path.split("/")
    if _OTHER_SEPARATORS:
        parts = re.split(r"[/\\]", path)
    if path and (not parts[0] or ".." in parts or (_OTHER_SEPARATORS and ":" in path)):
        raise StoreError(
            f"path {path!r} leads out of {root}. A manifest that names such a path is damaged or "
            "malicious."
        )
    try:
        os.fsencode(path)  # some halves stand for bytes of names that are no text
    except UnicodeEncodeError:
        raise StoreError(
            f"path {path!r} below {root} has half of a surrogate pair, which no file's name has. "
            "Check how the name was decoded."
        ) from None
    if _CONTROL.search(path):
        character = "null" if "\0" in path else "control"
        raise StoreError(
            f"path {path!r} below {root} has a {character} character, which no file's name has. "
            "A manifest that names such a path is damaged."
        )
