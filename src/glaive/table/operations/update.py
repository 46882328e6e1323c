"""Update: rows that moved to new fragments, or columns replaced in place.

Rows that are updated one by one are deleted where they were and rewritten, with rows that
are only inserted behind them. A column that is replaced for whole fragments gets new files.

Specification: "Update" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

from glaive.format.flags import Feature
from glaive.format.fragment import DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.rowids import count_row_ids
from glaive.format.transaction import Operation
from glaive.table.bitmaps import offsets_of
from glaive.table.concurrent_changes import (
    changes_columns,
    conflict_on,
    makes_non_nullable,
    overlap,
    unknown,
)
from glaive.table.fragment_ids import (
    copy_of,
    edit_fragments,
    final_fragments,
    mark_changed,
    mark_file_versions,
    new_fragments,
)
from glaive.table.index_coverage import encode_indices, follow_moved, prune
from glaive.table.key_filter import may_share_keys
from glaive.table.merge_deletions import rebase_deletions, shared_deletions
from glaive.table.protocol import (
    CommitOptions,
    Conflict,
    Draft,
    HiddenLineage,
    Offsets,
    TableOperation,
    needs_dataset,
)
from glaive.table.registry import operation
from glaive.table.rowids import created_at

__all__ = ["Update"]

_COMPATIBLE = frozenset({"create_index", "reserve_fragments", "update_bases", "update_config"})
_MESSAGE = table_pb2.Transaction.Update


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Update(TableOperation):
    """Change rows.

    Parameters
    ----------
    removed
        Ids of the fragments all of whose rows moved.
    updated
        Fragments with new deletion files, or with new files for replaced columns.
    new
        Fragments with rows that moved, then rows that are inserted. With stable row ids they
        carry the ids of those that moved.
    fields_modified
        Ids of the fields whose values were replaced in place.
    fields_touched
        Ids of all fields that have new values.
    columns
        Whether columns were replaced in place, else rows moved.
    inserted_rows
        Which keys were inserted, on the wire; tells whether two writers inserted the same.
    changed_offsets
        Rows with new values by fragment, when columns were replaced; roaring bitmaps.
    compacted_sstables
        Kept as they are.
    affected, united
        As those of a delete.
    lineage
        What :meth:`hidden` asks for; not part of the message.
    """

    wire_name: ClassVar[str] = "update"

    removed: tuple[int, ...] = ()
    updated: tuple[Fragment, ...] = ()
    new: tuple[Fragment, ...] = ()
    fields_modified: tuple[int, ...] = ()
    fields_touched: tuple[int, ...] = ()
    columns: bool = False
    inserted_rows: table_pb2.Transaction.Update.KeyExistenceFilter | None = None
    changed_offsets: Mapping[int, bytes] = field(default_factory=dict, hash=False)
    compacted_sstables: tuple[table_pb2.Transaction.Update.CompactedSsTable, ...] = ()
    affected: Mapping[int, Offsets] = field(default_factory=dict, hash=False, compare=False)
    united: Mapping[int, Offsets] = field(default_factory=dict, hash=False, compare=False)
    lineage: Mapping[int, HiddenLineage] = field(default_factory=dict, hash=False, compare=False)

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Update) -> Self:
        """Read the wire message."""
        from pyroaring import BitMap

        changed = {
            one: BitMap(offsets.offsets).serialize()
            for one, offsets in message.updated_fragment_offsets.items()
        }
        changed.update(message.updated_fragment_offset_bitmaps)
        return cls(
            removed=tuple(message.removed_fragment_ids),
            updated=tuple(map(Fragment.from_wire, message.updated_fragments)),
            new=tuple(map(Fragment.from_wire, message.new_fragments)),
            fields_modified=tuple(message.fields_modified),
            fields_touched=tuple(message.fields_for_preserving_frag_bitmap),
            columns=message.update_mode == _MESSAGE.REWRITE_COLUMNS,
            inserted_rows=message.inserted_rows if message.HasField("inserted_rows") else None,
            changed_offsets=changed,
            compacted_sstables=tuple(message.compacted_sstables),
        )

    def to_wire(self) -> Any:
        """Make the wire message."""
        return _MESSAGE(
            removed_fragment_ids=self.removed,
            updated_fragments=[one.to_wire() for one in self.updated],
            new_fragments=[one.to_wire() for one in self.new],
            fields_modified=self.fields_modified,
            fields_for_preserving_frag_bitmap=self.fields_touched,
            update_mode=_MESSAGE.REWRITE_COLUMNS if self.columns else _MESSAGE.REWRITE_ROWS,
            inserted_rows=self.inserted_rows,
            updated_fragment_offset_bitmaps=self.changed_offsets,
            compacted_sstables=self.compacted_sstables,
        )

    @property
    def deletions(self) -> Sequence[tuple[int, DeletionFile, Offsets]]:
        """Fragments whose deletion files are to be written before the version, and the rows."""
        return [
            (one.id, one.deletion_file, self.united[one.id])
            for one in self.updated
            if one.deletion_file is not None and one.id in self.united
        ]

    @property
    def _in_place(self) -> bool:
        return self.columns or bool(self.fields_modified)

    def hidden(self, base: Manifest) -> frozenset[int]:
        """Fragments rows come from, if they keep row ids or versions in their files."""
        if not (self.new and base.uses(Feature.SPILLED_ROW_LINEAGE)):
            return frozenset()
        found = set()
        for one in self._mine() & set(base.fragment_ids.tolist()):
            wire = base.fragment_wire(base.position_of(one))
            if wire.HasField("column_row_ids") or wire.HasField("column_created_at_versions"):
                found.add(one)
        return frozenset(found)

    def with_hidden(self, found: Mapping[int, HiddenLineage]) -> Self:
        """The operation with what :meth:`hidden` asked for."""
        return replace(self, lineage=found)

    def _mine(self) -> frozenset[int]:
        return frozenset([*(one.id for one in self.updated), *self.removed])

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts on the same fragments, but for deletions of other rows, and on keys."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in ("append", "update"):
            same = self._same_keys(theirs)
            if same is not None:
                return same
        if name == "append":
            return None
        if name in ("delete", "update", "rewrite", "data_replacement"):
            if self.shared(theirs):
                return None
            return overlap(self._mine(), theirs, f"{name} changed")
        if name == "project":
            return self._projected(theirs)
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        if name in ("overwrite", "restore"):
            return conflict_on(theirs, "replaced the rows that were to be updated")
        return unknown(theirs)

    def _same_keys(self, theirs: Operation) -> Conflict | None:
        mine = self.inserted_rows
        if mine is None:
            return None
        if theirs.wire_name == "append":
            return Conflict("append may have brought keys that were to be inserted")
        message = theirs.to_wire()
        if not message.HasField("inserted_rows"):
            return Conflict("update may have brought keys that were to be inserted")
        if may_share_keys(mine, message.inserted_rows):
            return Conflict("update inserted keys that were to be inserted as well")
        return None

    def _projected(self, theirs: Operation) -> Conflict | None:
        if makes_non_nullable(theirs):
            return Conflict("project may have made a column refuse nulls")
        gone = set(self.fields_modified) - {one.id for one in theirs.to_wire().schema}
        if gone:
            return Conflict(f"project dropped field {min(gone)}, which has new values")
        return None

    def shared(self, theirs: Operation) -> frozenset[int]:
        """Fragments of which both delete rows, if this can be told apart."""
        if self._in_place or changes_columns(theirs):
            return frozenset()
        return shared_deletions(self._mine(), frozenset(self.removed), self.affected, theirs)

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Delete the rows of both from the fragments both deleted rows of."""
        return rebase_deletions(self, base, deleted)

    def apply(
        self,
        base: Manifest | None,
        version: int,
        options: CommitOptions,
        older: Manifest | None = None,
    ) -> Draft:
        """The fragments of ``base``, the changed ones in their places, then the new ones."""
        base = needs_dataset(base, "rows are to be updated")
        wire = copy_of(base)
        mark_file_versions(wire, (*self.new, *self.updated), base.data_format)
        replaced = final_fragments(base, self.updated)
        entries = base.indices
        if self._in_place:
            for one in replaced.values():
                if one.id in self.changed_offsets:
                    where = f"changed rows of fragment {one.id}"
                    mark_changed(one, version, offsets_of(self.changed_offsets[one.id], where))
            entries = prune(entries, replaced.keys(), self.fields_modified)
        stable = base.uses(Feature.STABLE_ROW_IDS)
        added = new_fragments(
            wire,
            self.new,
            version,
            created=partial(created_at, base, self.lineage) if stable else None,
        )
        if stable and not self._in_place:
            # The first ids of a new fragment are those of rows that moved; the rest is new.
            moved = [
                made.id
                for one, made in zip(self.new, added, strict=True)
                if one.row_ids is not None
                and count_row_ids(one.row_ids, where=base.where) == one.physical_rows
            ]
            entries = follow_moved(entries, self._mine(), moved, self.fields_touched)
        kept = edit_fragments(base, wire, replaced=replaced, removed=self.removed, added=added)
        same = entries == base.indices
        return Draft(wire, base.index_section if same else encode_indices(entries), kept)
