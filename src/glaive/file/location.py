"""Where single files are, as users write it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store

__all__ = ["refuse_namespace", "split_path"]


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


def refuse_namespace(client: object, table_id: object) -> None:
    """Raise if a file is to be opened through a namespace."""
    if client is not None or table_id is not None:
        raise UnsupportedFeatureError(
            "namespace_client and table_id: files are opened by their path. Ask the namespace: "
            "pass the storage_options of client.describe_table(...)"
        )
