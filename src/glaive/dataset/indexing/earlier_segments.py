"""Segments that were built from an earlier version than the one to which they are committed.

A commit looks at the changes since the version for which it is made. Segments are built before, by
workers that open the dataset by themselves, and committed by one who may have opened a later
version: what was changed in between is looked at here, by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glaive.errors import CommitConflictError, ObjectNotFoundError
from glaive.format.pb import table_pb2
from glaive.table.load import load_numbered, read_transaction
from glaive.table.operations.create_index import CreateIndex
from glaive.table.protocol import Conflict

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["brought_up_to"]

Entry = table_pb2.IndexMetadata


def brought_up_to(dataset: OpenedVersion, entries: Sequence[Entry]) -> list[Entry]:
    """Segments as they are for an opened version: without fragments whose values were replaced.

    Raises
    ------
    CommitConflictError
        Fragments of a segment were rewritten since it was built, or its column was removed, or
        what was changed is not known.

    Notes
    -----
    No request for segments of the opened version; else one for each version in between.
    """
    manifest = dataset.manifest
    built = [entry.dataset_version or manifest.version for entry in entries]
    brought = list(entries)
    for number in range(min(built, default=manifest.version) + 1, manifest.version + 1):
        older = [at for at, version in enumerate(built) if version < number]
        one = CreateIndex(new=tuple(brought[at] for at in older))
        for at, entry in zip(older, _after(dataset, number, one).new, strict=True):
            brought[at] = entry
    return brought


def _after(dataset: OpenedVersion, number: int, segments: CreateIndex) -> CreateIndex:
    """The segments after a version."""
    store, manifest = dataset.store, dataset.manifest
    try:
        made = manifest
        if number != manifest.version:
            made = load_numbered(store, number, manifest.scheme)
        transaction = read_transaction(store, made)
    except ObjectNotFoundError:
        transaction = None
    if transaction is None:
        raise _outdated(dataset, number, Conflict("what it changed is unknown", retryable=False))
    theirs = transaction.operation
    if theirs.wire_name == "create_index":  # segments of one index may come one after the other
        return segments
    conflict = segments.conflict(theirs)
    if conflict is not None:
        raise _outdated(dataset, number, conflict, theirs.wire_name)
    rebased = segments.rebase([theirs], made, {})
    if isinstance(rebased, Conflict):
        raise _outdated(dataset, number, rebased, theirs.wire_name)
    return rebased


def _outdated(
    dataset: OpenedVersion, number: int, conflict: Conflict, operation: str | None = None
) -> CommitConflictError:
    return CommitConflictError(
        f"segments that were built before version {number} of {dataset.uri} cannot be committed "
        f"after it: {conflict.reason}. Build them again from the newest version.",
        retryable=conflict.retryable,
        version=number,
        operation=operation,
        fragments=conflict.fragments,
    )
