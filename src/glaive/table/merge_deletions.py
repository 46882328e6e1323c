"""Operations that delete rows, and merging concurrent deletions in the same fragment.

Specification: "Conflicts" in ``docs/format/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Self

import numpy as np

from glaive.arrow.buffers import ascending
from glaive.dataclass import dataclass
from glaive.format.deletions import encode_deletions
from glaive.format.fragment import DeletionFile, Fragment
from glaive.format.fragment_list import ids_of
from glaive.format.manifest import Manifest
from glaive.format.transaction import Operation
from glaive.io.checksums import checksum_function
from glaive.table.concurrent_changes import changed_fragments, changes_columns, removed_fragments
from glaive.table.protocol import Conflict, Offsets, TableOperation

__all__ = ["DeletingOperation", "merge_deletions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletingOperation(TableOperation):
    """An operation that deletes rows.

    Parameters
    ----------
    updated
        Fragments in which some rows are deleted, with their new deletion files.
    removed
        Ids of the fragments in which no row remains.
    affected
        Rows that this operation deletes by fragment, without those deleted before. They allow
        merging it with other deletions in the same fragments; not part of the message.
    merged
        Contents of the deletion files that a rebase has changed, by fragment: they must be
        written before the commit. Not part of the message.
    """

    updated: Sequence[Fragment] = ()
    removed: tuple[int, ...] = ()
    affected: Mapping[int, Offsets] = field(default_factory=dict, hash=False, compare=False)
    merged: Mapping[int, bytes] = field(default_factory=dict, hash=False, compare=False)

    @property
    def deletions(self) -> Sequence[tuple[int, DeletionFile, bytes]]:
        """Fragments whose deletion files must be written before the version, and the contents."""
        if not self.merged:
            return ()
        return [
            (fragment.id, fragment.deletion_file, self.merged[fragment.id])
            for fragment in self.updated
            if fragment.deletion_file is not None and fragment.id in self.merged
        ]

    @property
    def changed_ids(self) -> frozenset[int]:
        """Ids of the updated and removed fragments."""
        return frozenset([*ids_of(self.updated), *self.removed])

    @property
    def in_place(self) -> bool:
        """Whether columns were replaced in place."""
        return False

    def shared(self, theirs: Operation) -> frozenset[int]:
        """Fragments in which both delete rows, if these deletions can be merged.

        That is impossible if the rows are unknown, a fragment was removed, or columns changed.
        """
        if theirs.wire_name not in ("delete", "update") or self.in_place or changes_columns(theirs):
            return frozenset()
        both = self.changed_ids & changed_fragments(theirs)
        removed = removed_fragments(theirs).union(self.removed)
        return frozenset() if both - self.affected.keys() or both & removed else both

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Merge the deletions with those of others in the same fragments."""
        if not deleted:
            return self
        result = merge_deletions(self.updated, self.affected, base, deleted)
        if isinstance(result, Conflict):
            return result
        updated, removed, merged = result
        return replace(
            self,
            updated=updated,
            removed=(*self.removed, *removed),
            merged={**self.merged, **merged},
        )


def merge_deletions(
    updated: Sequence[Fragment],
    affected: Mapping[int, Offsets],
    base: Manifest,
    deleted: Mapping[int, Offsets],
) -> tuple[tuple[Fragment, ...], tuple[int, ...], dict[int, bytes]] | Conflict:
    """Add the rows deleted in ``base`` to those that an operation deletes.

    Parameters
    ----------
    updated
        The fragments that the operation changes.
    affected
        Rows that it deletes, by fragment.
    deleted
        Rows deleted in ``base``, of the fragments that others changed.

    Returns
    -------
    tuple
        The fragments with changed deletion files, ids of those in which no row remains, and
        the contents of the files; or the conflict.
    """
    changed: list[Fragment] = []
    removed: list[int] = []
    merged: dict[int, bytes] = {}
    at = dict(zip(base.fragment_ids.tolist(), range(base.num_fragments), strict=True))
    for mine in updated:
        if mine.id not in deleted:
            changed.append(mine)
            continue
        position = at.get(mine.id)
        same = position is not None and base.fragment(position).files == mine.files
        if not same or mine.deletion_file is None:
            reason = f"the data files of fragment {mine.id} were replaced"
            return Conflict(reason, fragments=frozenset({mine.id}))
        both = np.intersect1d(affected[mine.id], deleted[mine.id], assume_unique=True)
        if len(both):
            reason = f"{len(both)} rows of fragment {mine.id} were deleted or updated by both"
            return Conflict(reason, fragments=frozenset({mine.id}))
        rows = ascending(np.concatenate([affected[mine.id], deleted[mine.id]]))
        if len(rows) == mine.physical_rows:
            removed.append(mine.id)
            continue
        content = merged[mine.id] = encode_deletions(rows, bitmap=True)
        function = None if mine.deletion_file.checksum is None else checksum_function()
        # Only the version in its name differs from that of the previous attempt.
        file = DeletionFile(
            bitmap=True,
            read_version=base.version,
            number=mine.deletion_file.number,
            rows=len(rows),
            checksum=None if function is None else function(content),
        )
        changed.append(replace(mine, deletion_file=file))
    return tuple(changed), tuple(removed), merged
