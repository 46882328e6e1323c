"""A file with new columns of a fragment that an earlier run has finished."""

from __future__ import annotations

from dataclasses import replace

from glaive.dataset.fragments.described import opened_file
from glaive.errors import FormatError, ObjectNotFoundError
from glaive.format.fields import Field, LanceSchema
from glaive.format.fragment import LEGACY, DataFile, Fragment
from glaive.format.paths import data_file_path, new_data_file_name
from glaive.scan.snapshot import Snapshot
from glaive.table.copying import copy_data_file
from glaive.table.unverified import can_be_committed

__all__ = ["still_there"]


def still_there(
    snapshot: Snapshot, fragment: Fragment, columns: LanceSchema, file: DataFile
) -> DataFile | None:
    """The file, if the dataset still has it; one that a clean-up may delete soon as a copy.

    A checkpoint may be damaged, or somebody else's: a file that does not hold these columns of all
    rows of the fragment, as its description says, is none.

    One request, and those that open a file; at least three more for the copy, which has its blobs,
    too.
    """
    store, path = snapshot.store, data_file_path(file.path)
    try:
        meta = store.head(path)
        if meta.size != file.size or not _holds(snapshot, fragment, columns, file):
            return None
        if can_be_committed(meta):
            return file
        copy = replace(file, path=new_data_file_name())
        copy_data_file(store, path, data_file_path(copy.path))
    except ObjectNotFoundError:
        return None
    return copy


def _holds(snapshot: Snapshot, fragment: Fragment, columns: LanceSchema, file: DataFile) -> bool:
    if file.base_id is not None:
        return False
    try:
        reader = opened_file(snapshot, file.path, None)
        # Values of blobs are described by fields that have no id.
        found = [_fact(field) for field in reader.schema.walk() if field.id >= 0]
        if reader.version == LEGACY:  # its entries list all fields and no columns
            described = set(file.fields) == set(reader.schema.field_ids())
        else:
            described = file.columns() == reader.column_numbers()
    except FormatError:
        return False
    named = [field.name for field in reader.schema.fields] == columns.names
    held = named and set(found) <= set(map(_fact, columns.walk()))
    whole = reader.version == file.version and reader.num_rows == fragment.physical_rows
    return bool(described and held and whole)


def _fact(field: Field) -> tuple[int, str, str]:
    return field.id, field.name, field.logical_type
