"""Row counts that manifests of old releases do not tell, taken from the data files.

Releases up to 0.7 kept them in the files only. Those from 0.8.0 on, until manifests named their
writer, stated the live rows of a fragment instead of all, where it has a deletion file.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

from functools import partial

from glaive.file.open import open_reader
from glaive.format.fragment import DataFile, check_fragment
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_data_file

__all__ = ["complete_rows"]


def complete_rows(store: ObjectStore, manifest: Manifest) -> None:
    """Have the manifest ask the data files for rows that it does not tell.

    No request now. One per fragment whose rows are not known when rows or fragments are first
    asked for; lists of versions do not ask.
    """
    manifest.read_rows = partial(_complete, store)


def _complete(store: ObjectStore, manifest: Manifest) -> table_pb2.ManifestOutline:
    """The message with the rows of all fragments that have a data file."""
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    for position in manifest.stated.unknown_rows.tolist():
        raw = wire.fragments[position]
        fragment = parse(table_pb2.DataFragment(), raw, "fragment", manifest.where)
        if fragment.files:
            fragment.physical_rows = 0
            check_fragment(fragment, manifest.where)
            file = DataFile.from_wire(fragment.files[0], manifest.where)
            place, path = locate_data_file(store, manifest, file)
            reader = open_reader(place, path, size=file.size)
            fragment.physical_rows = reader.num_rows
            reader.reader.close()
            wire.fragments[position] = fragment.SerializeToString()
    return wire
