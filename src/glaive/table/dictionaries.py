"""Dictionaries of 0.1 datasets: one per column, shared by all fragments, kept in manifests.

Data files hold the items as well; from there they are read. A manifest begins with them, so
that readers that only look there find them.

Specification: "Dictionaries" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array
from glaive.encodings.legacy.var_binary import encode_var_binary
from glaive.errors import SchemaError
from glaive.file.drive import drive
from glaive.file.legacy.reader import LegacyFile
from glaive.file.open import open_reader
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, Fragment
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_data_file

__all__ = ["embed_dictionaries", "load_dictionaries"]


def load_dictionaries(store: ObjectStore, manifest: Manifest) -> dict[int, pa.Array]:
    """Items of the dictionary columns of a 0.1 dataset by field id; empty for others."""
    if manifest.data_format != LEGACY:
        return {}
    return _items(store, manifest, manifest.schema, manifest.fragments())


def _items(
    store: ObjectStore, manifest: Manifest, schema: LanceSchema, fragments: Iterable[Fragment]
) -> dict[int, pa.Array]:
    """Items as files have them, which must agree.

    Raises
    ------
    SchemaError
        Two files have different items for one column.
    """
    coded = {one.id: one for one in schema.walk() if one.logical_type.startswith("dict:")}
    found: dict[int, pa.Array] = {}
    if not coded:
        return found
    for fragment in fragments:
        for entry in fragment.files:
            columns = entry.columns()
            wanted = coded.keys() & columns.keys()
            if not wanted:
                continue
            place, path = locate_data_file(store, manifest, entry)
            file = open_reader(place, path, size=entry.size)
            if not isinstance(file, LegacyFile):
                continue
            for one in sorted(wanted):
                items = drive(file.reader, file.dictionary_items(columns[one], coded[one]))
                if not found.setdefault(one, items).equals(items):
                    raise SchemaError(
                        f"column {coded[one].name!r} ({coded[one].arrow_type}): format 0.1 keeps "
                        f"one dictionary per dataset, and {path} has another. Write rows that "
                        "share one dictionary, cast the column to the type of its values, or use "
                        "data_storage_version 2.0 or newer."
                    )
            file.close()
    return found


def embed_dictionaries(
    store: ObjectStore, wire: table_pb2.ManifestOutline, kept: int, base: Manifest | None
) -> list[bytes]:
    """What a manifest begins with; sets the place of each dictionary in its fields.

    Parameters
    ----------
    kept
        Fragments that are those of ``base``: they agree, so one of them is looked at.

    Raises
    ------
    SchemaError
        New files have other items than the dataset.
    """
    coded = [field for field in wire.fields if field.logical_type.startswith("dict:")]
    if not coded:
        return []
    draft = Manifest(wire, where=base.where if base is not None else store.uri)
    for field in coded:
        field.dictionary.offset = field.dictionary.length = 0
    if draft.data_format != LEGACY:
        return []
    fragments = [draft.fragment(at) for at in range(draft.num_fragments)]
    items = _items(store, draft, draft.schema, fragments[:1] + fragments[max(1, kept) :])
    pieces: list[bytes] = []
    position = 0
    for field in coded:
        if field.id not in items:
            continue
        block: Any = block_from_array(items[field.id])
        if isinstance(block, Variable):
            text, offsets = encode_var_binary(block, position)
            added, at = [text, offsets], position + text.size
        elif isinstance(block, FixedWidth):
            added, at = [block.values], position
        else:
            raise SchemaError(f"column {field.name!r}: a dictionary of nested values")
        field.dictionary.offset, field.dictionary.length = at, block.count
        pieces += [piece.to_pybytes() for piece in added]
        position += sum(piece.size for piece in added)
    return pieces
