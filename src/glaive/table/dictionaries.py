"""Dictionaries of datasets in format 0.1: one per column, shared by all fragments.

Data files contain the dictionary values, from where they are read. Manifests start with them, too,
for readers that only look there.

Specification: "Dictionaries" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array
from glaive.errors import SchemaError
from glaive.file.open import open_reader
from glaive.file.protocol import run_fetch
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, Fragment
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.root import locate_data_file


def load_dictionaries(store: ObjectStore, manifest: Manifest) -> dict[int, pa.Array]:
    """Dictionary values of a dataset in format 0.1, by field id; empty for other formats."""
    if manifest.data_format != LEGACY:
        return {}
    return _items(store, manifest, manifest.schema, manifest.fragments())


def _items(
    store: ObjectStore, manifest: Manifest, schema: LanceSchema, fragments: Iterable[Fragment]
) -> dict[int, pa.Array]:
    """Dictionary values in the files, by field id.

    Raises
    ------
    SchemaError
        Two files have different dictionaries for a column.
    """
    fields = {field.id: field for field in schema.walk() if field.logical_type.startswith("dict:")}
    dictionaries: dict[int, pa.Array] = {}
    if not fields:
        return dictionaries
    from glaive.file.legacy.reader import LegacyFile

    for fragment in fragments:
        for entry in fragment.files:
            columns = entry.columns()
            field_ids = fields.keys() & columns.keys()
            if not field_ids:
                continue
            file_store, path = locate_data_file(store, manifest, entry)
            file = open_reader(file_store, path, size=entry.size)
            if not isinstance(file, LegacyFile):
                continue
            for field_id in sorted(field_ids):
                items = run_fetch(
                    file.reader, file.dictionary_items(columns[field_id], fields[field_id])
                )
                if not dictionaries.setdefault(field_id, items).equals(items):
                    raise SchemaError(
                        f"column {fields[field_id].name!r} ({fields[field_id].arrow_type}): format "
                        f"0.1 has one dictionary per dataset, and {path} has another. Write rows "
                        "that share one dictionary, cast the column to the type of its values, or "
                        "use data_storage_version 2.0 or newer."
                    )
            file.close()
    return dictionaries


def embed_dictionaries(
    store: ObjectStore, wire: table_pb2.ManifestOutline, kept: int, base: Manifest | None
) -> list[bytes]:
    """The leading bytes of a manifest; sets the offsets of the dictionaries in its fields.

    Parameters
    ----------
    kept
        Number of leading fragments that are those of ``base``: only one of them is read.

    Raises
    ------
    SchemaError
        New files have other dictionaries than the dataset.
    """
    dictionary_fields = [field for field in wire.fields if field.logical_type.startswith("dict:")]
    if not dictionary_fields:
        return []
    draft = Manifest(wire, where=base.where if base is not None else store.uri)
    for field in dictionary_fields:
        field.dictionary.offset = field.dictionary.length = 0
    if draft.data_format != LEGACY:
        return []
    from glaive.encodings.legacy import encode_var_binary

    fragments = [draft.fragment(at) for at in range(draft.num_fragments)]
    items = _items(store, draft, draft.schema, fragments[:1] + fragments[max(1, kept) :])
    buffers: list[bytes] = []
    position = 0
    for field in dictionary_fields:
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
        buffers += [buffer.to_pybytes() for buffer in added]
        position += sum(buffer.size for buffer in added)
    return buffers
