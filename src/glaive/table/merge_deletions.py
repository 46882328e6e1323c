"""Two writers delete different rows of one fragment: both sets of rows go.

Specification: "Conflicts" in ``docs/format/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from glaive.format.fragment import DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.transaction import Operation
from glaive.table.concurrent_changes import changed_fragments, changes_columns, removed_fragments
from glaive.table.protocol import Conflict, Offsets

__all__ = ["rebase_deletions", "shared_deletions", "unite_deletions"]


def shared_deletions(
    mine: frozenset[int],
    removed: frozenset[int],
    affected: Mapping[int, Offsets],
    theirs: Operation,
) -> frozenset[int]:
    """Fragments of which both delete rows, if it is known of all of them which.

    None where another writer's change cannot be merged with this one: it removed a fragment,
    or this one does, or changed columns.
    """
    if theirs.wire_name not in ("delete", "update") or changes_columns(theirs):
        return frozenset()
    both = mine & changed_fragments(theirs)
    known = both <= affected.keys()
    if not known or both & removed_fragments(theirs) or both & removed:
        return frozenset()
    return both


def unite_deletions(
    updated: Sequence[Fragment],
    affected: Mapping[int, Offsets],
    base: Manifest,
    deleted: Mapping[int, Offsets],
) -> tuple[tuple[Fragment, ...], tuple[int, ...], dict[int, Offsets]] | Conflict:
    """Add the rows deleted in ``base`` to those of fragments that are about to be changed.

    Parameters
    ----------
    updated
        The fragments about to be changed.
    affected
        Rows about to be deleted, by fragment.
    deleted
        Rows deleted in ``base``, of the fragments that others changed.

    Returns
    -------
    tuple
        The fragments with other deletion files, ids of those of which no row is left, and
        the rows those files have to hold; or why the rows cannot go together.
    """
    changed: list[Fragment] = []
    gone: list[int] = []
    united: dict[int, Offsets] = {}
    at = dict(zip(base.fragment_ids.tolist(), range(base.num_fragments), strict=True))
    for mine in updated:
        if mine.id not in deleted:
            changed.append(mine)
            continue
        position = at.get(mine.id)
        same = position is not None and base.fragment(position).files == mine.files
        if not same or mine.deletion_file is None:
            reason = f"the data files of fragment {mine.id} are others now"
            return Conflict(reason, fragments=frozenset({mine.id}))
        both = np.intersect1d(affected[mine.id], deleted[mine.id], assume_unique=True)
        if len(both):
            reason = f"{len(both)} rows of fragment {mine.id} were deleted or updated by both"
            return Conflict(reason, fragments=frozenset({mine.id}))
        rows = np.union1d(affected[mine.id], deleted[mine.id]).astype(np.uint32, copy=False)
        if len(rows) == mine.physical_rows:
            gone.append(mine.id)
            continue
        united[mine.id] = rows
        # The name differs from that of the file made before by the version alone.
        file = DeletionFile(
            bitmap=True,
            read_version=base.version,
            number=mine.deletion_file.number,
            rows=len(rows),
        )
        changed.append(replace(mine, deletion_file=file))
    return tuple(changed), tuple(gone), united


class _Deleting(Protocol):
    """An operation that deletes rows."""

    @property
    def updated(self) -> tuple[Fragment, ...]: ...
    @property
    def removed(self) -> tuple[int, ...]: ...
    @property
    def affected(self) -> Mapping[int, Offsets]: ...
    @property
    def united(self) -> Mapping[int, Offsets]: ...


D = TypeVar("D", bound=_Deleting)


def rebase_deletions(operation: D, base: Manifest, deleted: Mapping[int, Offsets]) -> D | Conflict:
    """The operation with the rows of both deleted from fragments both deleted rows of.

    ``deleted`` are rows deleted in ``base``, of the fragments that others changed.
    """
    if not deleted:
        return operation
    made = unite_deletions(operation.updated, operation.affected, base, deleted)
    if isinstance(made, Conflict):
        return made
    updated, gone, united = made
    changed: Any = replace(
        cast("Any", operation),
        updated=updated,
        removed=(*operation.removed, *gone),
        united={**operation.united, **united},
    )
    return cast("D", changed)
