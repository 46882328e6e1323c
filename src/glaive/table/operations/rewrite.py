"""Rewrite: the same rows in other fragments, as compaction leaves them.

Specification: "Rewrite" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from glaive.errors import CorruptFileError
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.index_section import check_uuid
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.concurrent_changes import conflict_on, overlap, unknown
from glaive.table.fragment_ids import (
    check_fragment_id,
    copy_of,
    edit_fragments,
    mark_file_versions,
)
from glaive.table.index_coverage import encode_indices, remap, rewritten_under
from glaive.table.moved_rows import followed, on_top
from glaive.table.protocol import (
    CommitOptions,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    needs_dataset,
)
from glaive.table.registry import operation

__all__ = ["Rewrite", "RewriteGroup"]

_COMPATIBLE = frozenset({"append", "project", "reserve_fragments", "update_config", "update_bases"})


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Fragments and what takes their place.

    Parameters
    ----------
    old
        Fragments as they were read.
    new
        Fragments with the same live rows in the same order. Their ids were reserved before;
        those of 0 are given by the commit. With stable row ids they carry row ids and versions.
    """

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite(TableOperation):
    """Replace groups of fragments.

    Parameters
    ----------
    groups
        What is replaced by what.
    rewritten_indices
        Indices rebuilt for the new row addresses, as on the wire.
    reuse_index
        Entry that maps old row addresses to new ones, if indices are left as they are. It is
        not part of the message.
    coverage
        Fragments that indices rebuilt cover, by uuid, where their entries before did not
        say. Not part of the message either.
    """

    wire_name: ClassVar[str] = "rewrite"

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[table_pb2.Transaction.Rewrite.RewrittenIndex, ...] = ()
    reuse_index: table_pb2.IndexMetadata | None = None
    coverage: Mapping[bytes, frozenset[int]] | None = None

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Rewrite) -> Self:
        """Read the wire message."""
        groups = [(group.old_fragments, group.new_fragments) for group in message.groups]
        if message.old_fragments:
            groups.append((message.old_fragments, message.new_fragments))
        for rewritten_index in message.rewritten_indices:
            check_uuid(rewritten_index.old_id, "uuid of a rewritten index", "the transaction")
            check_uuid(rewritten_index.new_id, "uuid of a rewritten index", "the transaction")
        return cls(
            groups=tuple(
                RewriteGroup(
                    tuple(map(Fragment.from_wire, old)), tuple(map(Fragment.from_wire, new))
                )
                for old, new in groups
            ),
            rewritten_indices=tuple(message.rewritten_indices),
        )

    def to_wire(self) -> Any:
        """Make the wire message."""
        kind = table_pb2.Transaction.Rewrite
        return kind(
            groups=[
                kind.RewriteGroup(
                    old_fragments=[one.to_wire() for one in group.old],
                    new_fragments=[one.to_wire() for one in group.new],
                )
                for group in self.groups
            ],
            rewritten_indices=self.rewritten_indices,
        )

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts on the same fragments, and on indices built from them."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        mine = frozenset(one.id for group in self.groups for one in group.old)
        if name in ("delete", "update", "rewrite", "data_replacement"):
            return overlap(mine, theirs, f"{name} changed")
        if name == "create_index":
            return rewritten_under(theirs.to_wire().new_indices, mine)
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        if name in ("overwrite", "restore"):
            return conflict_on(theirs, "replaced the fragments that were rewritten")
        return unknown(theirs)

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """The map of moved rows behind the moves that others left since it was made."""
        if self.reuse_index is None:
            return self
        joined = on_top(self.reuse_index, base.indices)
        if joined is not None:
            return self if joined is self.reuse_index else replace(self, reuse_index=joined)
        if any(their.wire_name == "rewrite" for their in theirs):
            return Conflict("rewrite left a map of moved rows outside of the manifest")
        return self

    def apply(
        self,
        base: Manifest | None,
        version: int,
        options: CommitOptions,
        older: Manifest | None = None,
    ) -> Draft:
        """The fragments of ``base``, the new ones in place of the old."""
        base = needs_dataset(base, "fragments are to be rewritten")
        wire = copy_of(base)
        removed: list[int] = []
        added: list[table_pb2.DataFragment] = []
        moved: list[tuple[frozenset[int], frozenset[int]]] = []
        stable = base.uses(Feature.STABLE_ROW_IDS)
        for group in self.groups:
            mark_file_versions(wire, group.new, base.data_format)
            made = [_placed(wire, one, stable=stable) for one in group.new]
            old = [one.id for one in group.old]
            removed += old
            added += made
            moved.append((frozenset(old), frozenset(one.id for one in made)))
        if len(set(removed)) < len(removed):
            raise CorruptFileError(
                "rewritten fragments",
                expected="each in one group",
                found=f"{sorted(removed)[:10]}",
                where="the transaction",
            )
        kept = edit_fragments(base, wire, removed=removed, added=added)
        entries = remap(
            followed(base.indices),
            moved,
            self.rewritten_indices,
            keeps_all=stable,
            mapped=self.reuse_index is not None,
            coverage=self.coverage,
        )
        if self.reuse_index is not None:
            entries = [entry for entry in entries if entry.name != self.reuse_index.name]
            entries.append(self.reuse_index)
        return Draft(wire, encode_indices(entries), kept)


def _placed(
    wire: table_pb2.ManifestOutline, fragment: Fragment, *, stable: bool
) -> table_pb2.DataFragment:
    one = fragment.to_wire()
    following = wire.max_fragment_id + 1 if wire.HasField("max_fragment_id") else 0
    if not fragment.id:
        one.id = following
    check_fragment_id(one.id)
    wire.max_fragment_id = max(one.id, following - 1)
    if stable and one.WhichOneof("row_id_sequence") is None:
        raise CorruptFileError(
            "rewritten fragment",
            expected="the row ids of its rows, which outlive a rewrite",
            found="none",
            where=f"the transaction, fragment {one.id}",
        )
    return one
