"""Transactions of few bytes: operations whose sets and lists stand for many rows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pyroaring import BitMap
from tests.proof.few_bytes.draws import Draws

from glaive.format.pb import table_pb2

__all__ = ["transaction_of"]

MOST = 500
"""Fragments that a transaction repeats."""


def transaction_of(draw: Draws, wire: table_pb2.Manifest, version: int) -> Any:
    """Any transaction that may have made a version of these fragments."""
    message = table_pb2.Transaction(read_version=version - 1, uuid=str(UUID(int=version)))
    fragments = wire.fragments[:MOST]
    ways = ["append", "overwrite", "delete", "update", "rewrite", "merge", "config", "replacement"]
    way = draw.of(ways)
    if way == "append":
        message.append.fragments.extend(fragments)
    elif way == "overwrite":
        message.overwrite.fragments.extend(fragments)
        message.overwrite.schema.extend(wire.fields)
    elif way == "delete":
        message.delete.updated_fragments.extend(fragments)
        message.delete.deleted_fragment_ids.extend(range(10_000, 10_000 + draw.of([1, 4000])))
        message.delete.predicate = "k = 1"
    elif way == "update":
        _update(draw, message.update, fragments)
    elif way == "rewrite":
        group = message.rewrite.groups.add()
        group.old_fragments.extend(fragments)
        group.new_fragments.extend(fragments)
    elif way == "merge":
        message.merge.fragments.extend(fragments)
        message.merge.schema.extend(wire.fields)
    elif way == "config":
        updates = message.update_config.config_updates.update_entries
        for at in range(draw.of([1, 3000])):
            updates.add(key=f"k{at}", value="")
    else:
        for one in fragments:
            entry = message.data_replacement.replacements.add(fragment_id=one.id)
            entry.new_file.CopyFrom(one.files[0])
    entries = draw.of([0, 0, 3000])
    message.transaction_properties.update({f"p{at}": "" for at in range(entries)})
    return message


def _update(draw: Draws, update: Any, fragments: Any) -> None:
    update.updated_fragments.extend(fragments)
    update.fields_modified.append(0)
    update.update_mode = 1
    rows = fragments[0].physical_rows
    count = draw.of([1, rows // 2, rows])
    changed = BitMap()
    changed.add_range(0, count)
    changed.run_optimize()
    for one in fragments:
        update.updated_fragment_offset_bitmaps[one.id] = changed.serialize()
    keys = update.inserted_rows
    keys.field_ids.append(0)
    if draw.chance(0.5):
        keys.bloom.bitmap = bytes(64)
        keys.bloom.num_bits = draw.of([512, 2**32 - 1])
        keys.bloom.number_of_items = draw.many(4, 60)
        keys.bloom.probability = 0.00057
    else:
        keys.exact.key_hashes.extend([7] * draw.of([1, 3000]))
