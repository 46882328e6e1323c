"""Where single files are, as users write it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from glaive.errors import OptionError
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store

__all__ = ["split_path"]


def split_path(
    path: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[ObjectStore, str]:
    """The store of the directory that holds a file, and the file's name."""
    text = os.fspath(path)
    folder, slash, name = text.rpartition("/")
    if not name:
        raise OptionError(f"{text!r} names a directory; give the path of a file")
    root = folder or ("/" if slash else ".")
    return open_store(root, storage_options), name
