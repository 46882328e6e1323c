"""Indices of columns whose values a merge has put into other files.

A merge has the files of all fragments, and does not say which columns are others than before.

Specification: "Building the manifest" in ``docs/format/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from glaive.errors import ObjectNotFoundError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.fragment_ids import moved_fields
from glaive.table.index_coverage import prune, related_fields, with_covered
from glaive.table.load import load_numbered
from glaive.table.operations.create_index import CreateIndex
from glaive.table.protocol import TableOperation
from glaive.table.relocated_rows import followed

__all__ = ["after_merge", "without_moved"]

Entry = table_pb2.IndexMetadata


def after_merge(
    store: ObjectStore, operation: TableOperation, known: Manifest | None, merged: Manifest
) -> TableOperation:
    """An operation as it is after a merge; new indices were built from the files of before.

    ``known`` is the version before, if the caller has it. If not, it takes a request, and where it
    was cleaned up, new indices cover nothing.
    """
    if not isinstance(operation, CreateIndex) or not operation.new:
        return operation
    number = merged.version - 1
    try:
        is_before = known is not None and known.version == number
        before = known if is_before else load_numbered(store, number, merged.scheme)
    except ObjectNotFoundError:
        before = None
    if before is None:
        new = [with_covered(entry, ()) for entry in operation.new]
    else:
        after = map(merged.fragment_wire, range(merged.num_fragments))
        new = without_moved(before, after, list(operation.new))
    return operation if new == list(operation.new) else replace(operation, new=tuple(new))


def without_moved(
    before: Manifest, after: Iterable[table_pb2.DataFragment], entries: list[Entry]
) -> list[Entry]:
    """Entries that do not cover the fragments that have the values in other files than before."""
    known = frozenset(before.schema.field_ids())
    positions = {number: at for at, number in enumerate(before.fragment_ids.tolist())}
    changed: dict[frozenset[int], list[int]] = {}
    for fragment in after:
        if fragment.id in positions:
            old = before.fragment_wire(positions[fragment.id])
            moved = known & moved_fields(old, fragment)
            if moved:
                changed.setdefault(moved, []).append(fragment.id)
    if changed:
        entries = followed(entries)
    for moved, fragments in changed.items():
        entries = prune(entries, fragments, related_fields(before.schema, moved))
    return entries
