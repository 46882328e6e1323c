"""Segments that were built from an earlier version than the one to which they are committed.

A commit looks at the changes since the version for which it is made. Segments are built before, by
workers that open the dataset by themselves, and committed by one who may have opened a later
version: what was changed in between is looked at here, by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.errors import CommitConflictError, ObjectNotFoundError
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.index_coverage import covered_fragments, parts_of
from glaive.table.load import load_again, read_transaction
from glaive.table.operations.create_index import CreateIndex
from glaive.table.protocol import Conflict

__all__ = ["brought_up_to"]

Entry = table_pb2.IndexMetadata


def brought_up_to(store: ObjectStore, manifest: Manifest, entries: Sequence[Entry]) -> list[Entry]:
    """Segments as they are for a version: without fragments whose values were replaced.

    Raises
    ------
    CommitConflictError
        Fragments of a segment were rewritten since it was built, or its column was removed, or
        what was changed is not known, as where it was built from a detached version.

    Notes
    -----
    No request for segments of the version, or that it has; else one for each version in between,
    and one more where it changed fields and a segment is of a field that has others in it.
    """
    of_version = {entry.uuid.uuid: entry for entry in manifest.indices}
    built = [
        manifest.version
        if not entry.dataset_version or _covers_no_more(entry, of_version.get(entry.uuid.uuid))
        else entry.dataset_version
        for entry in entries
    ]
    outside = next((one for one in built if one & DETACHED and one != manifest.version), None)
    if outside is not None:
        reason = f"they were built from version {outside}, which is detached"
        raise _outdated(store, manifest.version, Conflict(reason, retryable=False))
    brought = list(entries)
    for number in range(min(built, default=manifest.version) + 1, manifest.version + 1):
        older = [at for at, version in enumerate(built) if version < number]
        one = CreateIndex(new=tuple(brought[at] for at in older))
        for at, entry in zip(older, _after(store, manifest, number, one).new, strict=True):
            brought[at] = entry
    return brought


def _covers_no_more(entry: Entry, other: Entry | None) -> bool:
    """Whether a segment covers no fragment that it does not cover in the version."""
    if other is None or other.fields != entry.fields:
        return False
    mine, known = covered_fragments(entry), covered_fragments(other)
    return known is None or (mine is not None and mine <= known)


def _after(store: ObjectStore, newest: Manifest, number: int, segments: CreateIndex) -> CreateIndex:
    """The segments after a version."""
    try:
        made = newest
        if number != newest.version:
            made = load_again(store, number, newest.scheme)
        transaction = read_transaction(store, made)
    except ObjectNotFoundError:
        transaction = None
    if transaction is None:
        raise _outdated(store, number, Conflict("what it changed is unknown", retryable=False))
    theirs = transaction.operation
    if theirs.wire_name == "create_index":  # segments of one index may come one after the other
        return segments
    fields = {field for entry in segments.new for field in entry.fields}
    if theirs.wire_name in ("merge", "project") and len(parts_of(made.schema, fields)) > len(
        fields
    ):
        try:
            before = load_again(store, number - 1, newest.scheme)
        except ObjectNotFoundError:
            unknown = Conflict("what it removed is unknown", retryable=False)
            raise _outdated(store, number, unknown) from None
        segments = CreateIndex.of(before.schema, segments.new)
    conflict = segments.conflict(theirs)
    if conflict is not None:
        raise _outdated(store, number, conflict, theirs.wire_name)
    rebased = segments.rebase([theirs], made, {})
    if isinstance(rebased, Conflict):
        raise _outdated(store, number, rebased, theirs.wire_name)
    return rebased


def _outdated(
    store: ObjectStore, number: int, conflict: Conflict, operation: str | None = None
) -> CommitConflictError:
    return CommitConflictError(
        f"segments that were built before version {number} of {store.uri} cannot be committed "
        f"after it: {conflict.reason}. Build them again from the newest version.",
        retryable=conflict.retryable,
        version=number,
        operation=operation,
        fragments=conflict.fragments,
    )
