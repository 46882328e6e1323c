"""Where single files are, as users write it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from glaive.dataclass import dataclass
from glaive.io.store import ObjectStore
from glaive.io.uri import open_object

__all__ = ["FileWithin", "split_path"]


@dataclass(frozen=True, slots=True)
class FileWithin(os.PathLike[str]):
    """A file of a store that is connected already, where a path is expected.

    Parameters
    ----------
    store
        The directory.
    name
        Path below it, which the store does not let lead out.
    """

    store: ObjectStore
    name: str

    def __fspath__(self) -> str:
        return self.store.full(self.name)


def split_path(
    path: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[ObjectStore, str]:
    """The store of the directory that holds a file, and the file's name."""
    if isinstance(path, FileWithin):
        return path.store, path.name
    return open_object(os.fspath(path), storage_options)
