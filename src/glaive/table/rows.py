"""Read row counts that are missing in manifests of old releases from the data files.

Releases up to 0.7 stored them in the files only. Releases from 0.8.0 on, until manifests recorded
their writer, stored the live instead of the physical rows of a fragment with a deletion file.

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
    """Let the manifest read missing row counts from the data files when they are needed.

    Then one request per fragment with an unknown row count; listing versions does not need them.
    """
    manifest.read_rows = partial(_complete, store)


def _complete(store: ObjectStore, manifest: Manifest) -> table_pb2.ManifestOutline:
    """The message with the row counts of all fragments that have a data file."""
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    for position in manifest.stated.unknown_rows.tolist():
        raw = wire.fragments[position]
        fragment = parse(table_pb2.DataFragment(), raw, "fragment", manifest.where)
        if fragment.files:
            fragment.physical_rows = 0
            check_fragment(fragment, manifest.where)
            file = DataFile.from_wire(fragment.files[0], manifest.where)
            file_store, path = locate_data_file(store, manifest, file)
            reader = open_reader(file_store, path, size=file.size)
            fragment.physical_rows = reader.num_rows
            reader.reader.close()
            wire.fragments[position] = fragment.SerializeToString()
    return wire
