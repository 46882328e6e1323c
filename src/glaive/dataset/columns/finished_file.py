"""A file with new columns of a fragment that an earlier run has finished."""

from __future__ import annotations

from dataclasses import replace

from glaive.errors import ObjectNotFoundError
from glaive.format.fragment import DataFile
from glaive.format.paths import data_file_path, new_data_file_name
from glaive.io.store import ObjectStore
from glaive.table.copying import copy_data_file
from glaive.table.unverified import can_be_committed

__all__ = ["still_there"]


def still_there(store: ObjectStore, file: DataFile) -> DataFile | None:
    """The file, if the dataset still has it; one that a clean-up may delete soon as a copy.

    One request; at least three more for the copy, which has its blobs, too.
    """
    path = data_file_path(file.path)
    try:
        meta = store.head(path)
        if meta.size != file.size:
            return None
        if can_be_committed(meta):
            return file
        copy = replace(file, path=new_data_file_name())
        copy_data_file(store, path, data_file_path(copy.path))
    except ObjectNotFoundError:
        return None
    return copy
