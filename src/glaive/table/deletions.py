"""Deleted rows of fragments: load them, and write new deletion files.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending
from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, DataFileMissingError, ObjectNotFoundError
from glaive.format.deletions import (
    MIN_BITMAP_ROWS,
    DeletedRuns,
    decode_deletions,
    decode_runs,
    encode_deletions,
)
from glaive.format.fragment import DeletionFile, Fragment, ids_of
from glaive.format.manifest import Manifest
from glaive.format.paths import deletion_file_path
from glaive.format.transaction import Operation
from glaive.io.checksums import Expected, check, checksum_function, compares_metadata
from glaive.io.store import ObjectStore
from glaive.process import FILES, emit, random_bytes
from glaive.table.configuration import checksum_of_metadata
from glaive.table.protocol import (
    Conflict,
    Offsets,
    TableOperation,
    changed_fragments,
    changes_columns,
    removed_fragments,
)
from glaive.table.root import locate_in_base
from glaive.types import Where

T = TypeVar("T")


def load_deletions(
    store: ObjectStore, manifest: Manifest, fragment: Fragment
) -> NDArray[np.uint32]:
    """Load deleted offsets of a fragment, ascending. At most one request.

    Raises
    ------
    DataFileMissingError
        The deletion file is missing.
    CorruptFileError, UnsupportedFeatureError
        See :func:`glaive.format.deletions.decode_deletions`; or the checksum differs.
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, np.uint32)
    return _load(store, manifest, fragment, file, decode_deletions)


def load_deleted_runs(
    store: ObjectStore, manifest: Manifest, fragment: Fragment, *, verify: bool = False
) -> DeletedRuns:
    """Load deleted offsets of a fragment as runs, however many there are. At most one request.

    With ``verify``, always compare the file with its checksum. :func:`load_deletions` lists the
    errors.
    """
    file = fragment.deletion_file
    if file is None:
        return DeletedRuns.of(np.empty(0, np.uint32))
    return _load(store, manifest, fragment, file, decode_runs, verify=verify)


def _load(
    store: ObjectStore,
    manifest: Manifest,
    fragment: Fragment,
    file: DeletionFile,
    decode: Callable[..., T],
    *,
    verify: bool = False,
) -> T:
    path = deletion_file_path(fragment.id, file.read_version, file.number, bitmap=file.bitmap)
    base_store, path = locate_in_base(store, manifest, path, file.base_id)
    where = base_store.full(path)
    try:
        data = base_store.get(path)
    except ObjectNotFoundError:
        raise DataFileMissingError(
            f"the deletion file {where} is missing; version {manifest.version} needs it for "
            f"fragment {fragment.id}. Restore the file, or read another version."
        ) from None
    if file.checksum is not None and (verify or compares_metadata(base_store)):
        check(Expected(file.checksum, "checksum of a deletion file", Where(where)), data)
    rows = fragment.physical_rows
    return decode(data, bitmap=file.bitmap, rows=rows, count=file.rows, where=where)


def add_deletions(
    store: ObjectStore,
    manifest: Manifest,
    fragment: Fragment,
    offsets: NDArray[np.integer],
    before: NDArray[np.uint32] | None = None,
) -> tuple[Fragment | None, NDArray[np.uint32], NDArray[np.uint32]]:
    """Delete rows of a fragment: write a file with all its deleted rows.

    Parameters
    ----------
    manifest
        The version that was read; part of the file's name.
    offsets
        Physical rows, in any order; repeats and already deleted rows are allowed.
    before
        The deleted rows, ascending; read from the deletion file if omitted.

    Returns
    -------
    tuple
        The fragment with its new deletion file: ``None`` if all rows are deleted, unchanged if all
        stay live. The newly deleted rows, ascending, and all deleted rows.

    Raises
    ------
    CorruptFileError
        An offset is out of range.
    """
    if before is None:
        before = load_deletions(store, manifest, fragment)
    wanted = ascending(offsets)
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < fragment.physical_rows:
        raise CorruptFileError(
            "rows to delete",
            expected=f"offsets below {fragment.physical_rows}",
            found=f"{wanted[0]} to {wanted[-1]}",
            where=f"fragment {fragment.id} of {manifest.where}",
        )
    added = wanted.astype(np.uint32)
    if len(before):
        at = before.searchsorted(added)
        added = added[before.take(at, mode="clip") != added]
    if not len(added):
        return fragment, added, before
    all_deleted = np.sort(np.concatenate([before, added]), kind="stable")  # merges both quickly
    if len(all_deleted) == fragment.physical_rows:
        return None, added, all_deleted
    bitmap = len(all_deleted) >= MIN_BITMAP_ROWS
    content = encode_deletions(all_deleted, bitmap=bitmap)
    function = checksum_of_metadata(store, manifest.wire)
    file = DeletionFile(
        bitmap=bitmap,
        read_version=manifest.version,
        number=int.from_bytes(random_bytes(8), "little"),
        rows=len(all_deleted),
        checksum=None if function is None else function(content),
    )
    put_deletions(store, fragment.id, file, content)
    return replace(fragment, deletion_file=file), added, all_deleted


def put_deletions(store: ObjectStore, fragment_id: int, file: DeletionFile, content: bytes) -> None:
    """Write a deletion file. One request."""
    path = deletion_file_path(fragment_id, file.read_version, file.number, bitmap=file.bitmap)
    store.put_new(path, [content])
    emit(FILES, mode="create", type="deletion", path=path)


# --- Operations that delete rows, and merges of concurrent deletions in one fragment ----
# Specification: "Conflicts" in ``docs/format/conflicts.md``.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletingOperation(TableOperation):
    """An operation that deletes rows.

    Parameters
    ----------
    updated
        Fragments with deleted and live rows, with their new deletion files.
    removed
        Ids of the fragments whose rows are all deleted.
    affected
        Rows that this operation newly deletes, by fragment. They allow to merge it with other
        deletions in the same fragments. Not part of the message.
    merged
        Contents of the deletion files that a rebase has changed, by fragment. They must be
        written before the commit. Not part of the message.
    """

    updated: Sequence[Fragment] = ()
    removed: tuple[int, ...] = ()
    affected: Mapping[int, Offsets] = field(default_factory=dict, hash=False, compare=False)
    merged: Mapping[int, bytes] = field(default_factory=dict, hash=False, compare=False)

    @property
    def deletions(self) -> Sequence[tuple[int, DeletionFile, bytes]]:
        """Fragments and deletion files to write before the version, with their contents."""
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
        """Return fragments where both operations delete rows, if the deletions can be merged.

        Return an empty set if the rows are unknown, a fragment was removed, or columns changed.
        """
        if theirs.wire_name not in ("delete", "update") or self.in_place or changes_columns(theirs):
            return frozenset()
        both = self.changed_ids & changed_fragments(theirs)
        removed = removed_fragments(theirs).union(self.removed)
        return frozenset() if both - self.affected.keys() or both & removed else both

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Merge the deletions with deletions of others in the same fragments."""
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
    """Add the rows deleted in ``base`` to the rows that an operation deletes.

    Parameters
    ----------
    updated
        The fragments that the operation changes.
    affected
        Rows that the operation deletes, by fragment.
    deleted
        Rows deleted in ``base``, for the fragments that others changed.

    Returns
    -------
    tuple
        The fragments with changed deletion files, ids of fragments whose rows are all deleted, and
        the contents of the files. Or the conflict.
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
        # Only the version in its name differs from the file of the previous attempt.
        file = DeletionFile(
            bitmap=True,
            read_version=base.version,
            number=mine.deletion_file.number,
            rows=len(rows),
            checksum=None if function is None else function(content),
        )
        changed.append(replace(mine, deletion_file=file))
    return tuple(changed), tuple(removed), merged
