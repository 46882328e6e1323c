"""Rewrite: the same rows in new fragments, after a compaction.

Specification: "Rewrite" in ``docs/format``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError
from glaive.format.fragment import (
    Fragment,
    FragmentList,
    encode_lists,
    file_versions,
    ids_of,
    messages_of,
)
from glaive.format.manifest import Feature, Manifest, check_uuid
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.fragment_ids import (
    check_deletions_stay,
    check_fragment_id,
    copy_of,
    edit_fragments,
    give_id,
    mark_file_versions,
)
from glaive.table.index_coverage import (
    after_remapping,
    append_remapping,
    can_remap,
    encode_indices,
    remap,
    rewrite_conflict,
    without_new,
)
from glaive.table.protocol import (
    BuildContext,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    incompatible,
    needs_dataset,
    operation,
    overlap,
)


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Fragments, and fragments that replace them.

    Parameters
    ----------
    old
        Fragments as they were read.
    new
        Fragments with the same live rows in the same order. Their ids are reserved, or 0 for the
        commit to assign. With stable row ids they include row ids and versions.
    """

    old: Sequence[Fragment]
    new: Sequence[Fragment]


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite(TableOperation):
    """Replace groups of fragments.

    Parameters
    ----------
    groups
        Old fragments and their replacements.
    rewritten_indices
        Indices rebuilt for the new row addresses, in wire format.
    reuse_index
        Entry with the remapping table of row addresses, if indices were kept. Not part of the
        message.
    coverage
        Fragments that rebuilt indices cover, by uuid, if their old entries lack them. Not part of
        the message.
    """

    wire_name: ClassVar[str] = "rewrite"
    compatible = frozenset(
        {"append", "project", "reserve_fragments", "update_config", "update_bases"}
    )

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

    def encode(self) -> list[bytes]:
        """Encode the wire message in parts."""
        groups = table_pb2.FragmentLists()  # the groups are field 3, which stays packed
        groups.third.extend(encode_lists({1: group.old, 2: group.new}) for group in self.groups)
        rest = table_pb2.Transaction.Rewrite(rewritten_indices=self.rewritten_indices)
        return [groups.SerializeToString(), rest.SerializeToString()]

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts on the same fragments, and on new indices built from them."""
        mine = frozenset(number for group in self.groups for number in ids_of(group.old))
        if name in ("delete", "update", "rewrite", "data_replacement"):
            return overlap(mine, theirs, f"{name} changed")
        if name == "create_index":
            built = theirs.to_wire().new_indices
            old = [frozenset(ids_of(group.old)) for group in self.groups]
            follows = can_remap(built, old, self.reuse_index)
            return None if follows else rewrite_conflict(built, mine)
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        return incompatible(theirs, replaced="the fragments that this rewrites")

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Append the remapping table to the table of ``base``."""
        if self.reuse_index is None:
            return self
        joined = append_remapping(self.reuse_index, base.indices)
        if joined is not None:
            return self if joined is self.reuse_index else replace(self, reuse_index=joined)
        if any(their.wire_name == "rewrite" for their in theirs):
            return Conflict("rewrite stored a remapping table that this one cannot be added to")
        return self

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the fragments of ``base``, with new fragments instead of old fragments."""
        base = needs_dataset(base, "rewrite fragments")
        wire = copy_of(base)
        removed: list[int] = []
        added: list[bytes] = []
        added_ids: list[int] = []
        relocated: list[tuple[frozenset[int], frozenset[int]]] = []
        stable = base.uses(Feature.STABLE_ROW_IDS)
        replaced = (packed for group in self.groups for packed in FragmentList.of(group.old).packed)
        check_deletions_stay(base, FragmentList(replaced))
        for group in self.groups:
            mark_file_versions(wire, file_versions(group.new), base.data_format)
            new = [_numbered(wire, message, stable=stable) for message in messages_of(group.new)]
            old = ids_of(group.old)
            removed += old
            added += (message.SerializeToString() for message in new)
            added_ids += ids_of(group.new)
            relocated.append((frozenset(old), frozenset(message.id for message in new)))
        if len(set(removed)) < len(removed):
            twice = min(number for number, count in Counter(removed).items() if count > 1)
            raise OptionError(
                f"the transaction rewrites fragment {twice} twice, and its rows would be doubled. "
                "Give each old fragment once, in one group."
            )
        kept = edit_fragments(base, wire, removed=removed, added=FragmentList(added))
        entries = remap(
            without_new(after_remapping(base.indices), added_ids),
            relocated,
            self.rewritten_indices,
            keeps_all=stable,
            mapped=self.reuse_index is not None,
            coverage=self.coverage,
        )
        if self.reuse_index is not None:
            entries = [entry for entry in entries if entry.name != self.reuse_index.name]
            entries.append(self.reuse_index)
        return Draft(wire, encode_indices(entries), kept)


def _numbered(
    wire: table_pb2.ManifestOutline, message: table_pb2.DataFragment, *, stable: bool
) -> table_pb2.DataFragment:
    next_id = wire.max_fragment_id + 1 if wire.HasField("max_fragment_id") else 0
    if not message.id:
        give_id(message, next_id)
    check_fragment_id(message.id)
    wire.max_fragment_id = max(message.id, next_id - 1)
    if stable and message.WhichOneof("row_id_sequence") is None:
        raise CorruptFileError(
            "rewritten fragment",
            expected="the stable row ids of its rows",
            found="none",
            where=f"the transaction, fragment {message.id}",
        )
    return message
