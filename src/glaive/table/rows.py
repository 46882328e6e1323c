"""Row counts that a manifest leaves out: releases up to 0.7 kept them in the files only."""

from __future__ import annotations

import numpy as np

from glaive.file.open import open_reader
from glaive.format.fragment import DataFile
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_data_file

__all__ = ["complete_rows"]


def complete_rows(store: ObjectStore, manifest: Manifest) -> Manifest:
    """The manifest with rows of all fragments; itself when it has them.

    One request per fragment whose rows are not known.
    """
    if manifest.columns.rows_known:
        return manifest
    unknown = [
        (position, fragment)
        for position in np.flatnonzero(manifest.physical_rows == 0).tolist()
        if (fragment := manifest.fragment_wire(position)).files
    ]
    if not unknown:
        return manifest
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    for at, fragment in unknown:
        file = DataFile.from_wire(fragment.files[0], manifest.where)
        place, path = locate_data_file(store, manifest, file)
        reader = open_reader(place, path, size=file.size)
        fragment.physical_rows = reader.num_rows
        reader.reader.close()
        wire.fragments[at] = fragment.SerializeToString()
    return Manifest(
        wire,
        where=manifest.where,
        scheme=manifest.scheme,
        transaction=manifest.transaction,
        index_section=manifest.index_section,
    )
