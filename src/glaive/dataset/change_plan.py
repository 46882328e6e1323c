"""Plan a change feed: compare the fragments of two versions.

A fragment with equal metadata in both versions is unchanged. Tasks read the data files of the other
fragments and find their changed rows. A compaction, which keeps the number of rows, keeps all rows:
only its transaction shows this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from operator import ne
from typing import Any, Final

import numpy as np

from glaive.dataclass import dataclass
from glaive.errors import (
    ObjectNotFoundError,
    OptionError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from glaive.format.bitmaps import bitmap_of
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.options import integer
from glaive.table.load import load_again, read_transaction
from glaive.table.operations.overwrite import Published
from glaive.table.versions import list_versions
from glaive.types import Int64s

# --- Tasks of a change feed, which can be sent to other processes -----------------------

TASK_ROWS = 1 << 20
"""Maximum physical rows of a fragment per task; more in versions of 10^12 rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenRows:
    """Rows of a fragment with columns that were rewritten in place.

    Parameters
    ----------
    by_version
        Whether they are the rows whose version of last update changed.
    offsets
        Otherwise the physical rows as a roaring bitmap; ``None`` for all.
    """

    by_version: bool = False
    offsets: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSide:
    """The rows before or after a commit; its tasks share this.

    Parameters
    ----------
    commit_version, commit_timestamp
        The version that changed the rows, and its time.
    after
        Whether the rows are inserted or have new values; otherwise they are deleted or have old
        values.
    read_version
        The version that has the rows.
    compared_version
        The version on the other side of the commit; ``None`` if it lacks rows of the
        fragment.
    others
        Field ids that mean other columns in ``read_version`` than in the feed; ``None`` if
        unknown.
    """

    commit_version: int
    commit_timestamp: datetime
    after: bool
    read_version: int
    compared_version: int | None
    others: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """The changed rows in a part of one fragment, as they were before or after a commit.

    Parameters
    ----------
    side
        The commit, and the versions.
    fragment_id
        The fragment, in the version to read.
    shared
        Whether the other version has the fragment as well, so that only some rows changed.
    rewritten
        The rows of a shared fragment with values that were rewritten in place, if any.
    start, stop
        The physical rows to check.
    rows
        Approximate number of changed rows.
    file_bytes
        Approximate bytes of the data files for these rows.
    """

    side: ChangedSide
    fragment_id: int
    shared: bool = False
    rewritten: RewrittenRows | None = None
    start: int = 0
    stop: int
    rows: int
    file_bytes: int = 0

    def part(self, start: int, stop: int) -> ChangeTask:
        """Return the task for the physical rows from ``start`` to ``stop``."""
        share = (stop - start) / max(1, self.stop - self.start)
        return replace(
            self,
            start=start,
            stop=stop,
            rows=round(self.rows * share),
            file_bytes=round(self.file_bytes * share),
        )

    def cut(self, step: int) -> Iterator[ChangeTask]:
        """Split the task into parts of at most ``step`` physical rows."""
        if 0 < self.stop - self.start <= step:
            yield self
            return
        for start in range(self.start, self.stop, step):
            yield self.part(start, min(start + step, self.stop))

    @property
    def complete(self) -> bool:
        """Whether all live rows from ``start`` to ``stop`` may have changed."""
        return not self.shared


# --- Pairs of adjacent versions, between which rows changed ------------------------------


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """Facts about a commit that remain when its manifests are released; see :class:`Commit`."""

    version: int
    operation: str | None
    replaced_everything: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """A version and the version before it: ``None`` for the first version."""

    before: Manifest | None
    after: Manifest
    transaction: Transaction | None

    @property
    def version(self) -> int:
        """The version that the commit made."""
        return self.after.version

    @property
    def operation(self) -> str | None:
        """Name of the operation; ``None`` if the record is missing."""
        return None if self.transaction is None else self.transaction.operation.wire_name

    @property
    def replaced_everything(self) -> bool:
        """Whether all rows are new in this version: an overwrite, except a published branch."""
        return self.operation == "overwrite" and Published.of(self.transaction) is None

    @property
    def summary(self) -> CommitSummary:
        """The facts to keep."""
        return CommitSummary(self.version, self.operation, self.replaced_everything)


def check_range(start: object, end: object, newest: int) -> tuple[int, int]:
    """Return the first and last version of a feed, inclusive; ``end`` defaults to the newest.

    Raises
    ------
    OptionError
        A version is invalid, or the range is empty.
    """
    first: int = integer(1).check("start_version", start)
    last: int = newest if end is None else integer(1).check("end_version", end)
    for name, number in (("start_version", first), ("end_version", last)):
        if number > newest:
            raise OptionError(f"{name}: the newest version is {newest}, found {number}")
    if first > last:
        raise OptionError(f"start_version {first} comes after end_version {last}")
    return first, last


def commits(store: ObjectStore, newest: Manifest, start: int, end: int) -> Iterator[Commit]:
    """Yield the commits from version ``start`` to ``end``, in order. One request per version.

    Raises
    ------
    VersionNotFoundError
        A version, or the version before ``start``, was cleaned up. The message names the oldest
        version you can use.
    """
    before = load_for_changes(store, newest, start - 1) if start > 1 else None
    for version in range(start, end + 1):
        after = load_for_changes(store, newest, version)
        yield Commit(before, after, read_transaction(store, after))
        before = after


def load_for_changes(store: ObjectStore, newest: Manifest, version: int) -> Manifest:
    """Load a version for a change feed; :func:`commits` lists the errors."""
    if version == newest.version:
        return newest
    try:
        return load_again(store, version, newest.scheme)
    except ObjectNotFoundError:
        raise _missing(store, version) from None


def _missing(store: ObjectStore, version: int) -> VersionNotFoundError:
    left = [location.version for location in list_versions(store)]
    unbroken = left[-1]
    for candidate in reversed(left[:-1]):
        if candidate != unbroken - 1:
            break
        unbroken = candidate
    return VersionNotFoundError(
        f"version {version} of {store.uri} does not exist any more, and changes are found by "
        f"comparing each version with the one before it. The oldest version left is {left[0]}; "
        f"changes can be read from version {unbroken + 1 if unbroken > 1 else 1} on. Read the "
        "rows of a version instead, or keep versions for longer before they are cleaned up"
    )


_MAX_TASKS: Final = 1 << 18
"""Approximate maximum of tasks per version: a few bytes may claim 2^32 rows."""

_MAX_BYTES: Final = 2.0**62
"""Maximum bytes of files, as manifests may claim anything."""


def plan_commit(commit: Commit, others: frozenset[int] = frozenset()) -> list[ChangeTask]:
    """Return tasks that read the changes of a commit; ``others`` as in plan_net."""
    if commit.before is None or commit.replaced_everything:
        return _replaced(commit.before, commit.after)
    if commit.operation == "rewrite" and _has_equal_counts(commit.before, commit.after):
        return []  # the fragments show the changes of other operations
    return _Comparison(commit.before, commit.after, commit, others).tasks()


def plan_net(
    before: Manifest | None,
    after: Manifest,
    between: Sequence[CommitSummary],
    others: frozenset[int] = frozenset(),
) -> list[ChangeTask]:
    """Return tasks that read the difference of two versions, whatever the commits in between.

    Parameters
    ----------
    before, after
        The versions; ``None`` before the first version.
    between
        The commits between them.
    others
        Field ids that mean different columns in the two versions.

    Raises
    ------
    UnsupportedFeatureError
        A compaction moved rows without stable ids, so glaive cannot identify them.
    """
    if before is None or any(commit.replaced_everything for commit in between):
        return _replaced(before, after)
    if not after.uses(Feature.STABLE_ROW_IDS):
        moved = [commit.version for commit in between if commit.operation == "rewrite"]
        if moved:
            raise UnsupportedFeatureError(
                f"net changes across version {moved[0]}, a compaction, need stable row ids: "
                "without them moved rows look like new ones. Read the changes of "
                "each version (net=False), or up to the compaction; datasets created with "
                "enable_stable_row_ids=True have no such limit"
            )
    return _Comparison(before, after, None, others).tasks()


def plan_snapshot(manifest: Manifest) -> list[ChangeTask]:
    """Return tasks that read all rows of a version, as inserted."""
    return _replaced(None, manifest)


def _has_equal_counts(before: Manifest, after: Manifest) -> bool:
    """Return whether two versions have equally many rows; old manifests may lack the numbers."""
    counts = before.count_rows(), after.count_rows()
    return None in counts or counts[0] == counts[1]


def _replaced(before: Manifest | None, after: Manifest) -> list[ChangeTask]:
    """Return tasks that delete all rows of one version and insert all rows of the other."""
    sides = [_Side(after, after, is_after=True, compared=None)]
    if before is not None:
        sides.insert(0, _Side(before, after, is_after=False, compared=None))
    return [
        task
        for side in sides
        for task in side.whole_fragments(np.arange(side.manifest.num_fragments))
    ]


_Part = tuple[int, int, RewrittenRows | None]
"""A fragment of both versions: its position, maximum of changed rows, and rewritten rows."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two versions, and the tasks for its fragments."""

    manifest: Manifest
    commit: Manifest
    is_after: bool
    compared: int | None

    def whole_fragments(self, positions: Int64s) -> Iterator[ChangeTask]:
        """Yield tasks for fragments that only this version has."""
        deleted = self.manifest.deleted_rows[positions]
        live = self.manifest.physical_rows[positions] - np.maximum(deleted, 0)
        return self._tasks(positions, live)

    def some_rows(self, parts: Sequence[_Part]) -> Iterator[ChangeTask]:
        """Yield tasks for changed rows of fragments that both versions have."""
        if not parts:
            return iter(())
        positions, rows, rewritten = zip(*parts, strict=True)
        return self._tasks(np.array(positions), np.array(rows), rewritten)

    def _tasks(
        self,
        positions: Int64s,
        rows: Int64s,
        rewritten: Sequence[RewrittenRows | None] | None = None,
    ) -> Iterator[ChangeTask]:
        physical = self.manifest.physical_rows[positions]
        share = rows / np.maximum(physical, 1)
        size = np.minimum(self.manifest.columns.data_bytes[positions] * share, _MAX_BYTES)
        wanted = int((-(-physical // TASK_ROWS)).sum())
        step = TASK_ROWS * max(1, -(-wanted // _MAX_TASKS))
        ids, sizes = self.manifest.fragment_ids[positions], size.astype(np.int64)
        side = ChangedSide(
            commit_version=self.commit.version,
            commit_timestamp=self.commit.timestamp,
            after=self.is_after,
            read_version=self.manifest.version,
            compared_version=self.compared,
        )
        places = zip(*(one.tolist() for one in (ids, physical, rows, sizes)), strict=True)
        for at, (number, stop, count, file_bytes) in enumerate(places):
            yield from ChangeTask(
                side=side,
                fragment_id=number,
                shared=rewritten is not None,
                rewritten=None if rewritten is None else rewritten[at],
                stop=stop,
                rows=count,
                file_bytes=file_bytes,
            ).cut(step)


class _Comparison:
    """A comparison of two versions, fragment by fragment."""

    def __init__(
        self, before: Manifest, after: Manifest, commit: Commit | None, others: frozenset[int]
    ) -> None:
        self._before, self._after = before, after
        self._commit = commit
        old, new = before.fragment_ids, after.fragment_ids
        _, old_shared, new_shared = np.intersect1d(old, new, return_indices=True)
        self._removed = np.setdiff1d(np.arange(len(old)), old_shared, assume_unique=True)
        self._added = np.setdiff1d(np.arange(len(new)), new_shared, assume_unique=True)
        old_wire = map(before.wire.fragments.__getitem__, old_shared.tolist())
        new_wire = map(after.wire.fragments.__getitem__, new_shared.tolist())
        changed = np.fromiter(map(ne, old_wire, new_wire), np.bool_, len(old_shared))
        self._shared = old_shared[changed], new_shared[changed]
        both = set(before.schema.field_ids()) & set(after.schema.field_ids())
        self._fields = both - others

    def tasks(self) -> list[ChangeTask]:
        """Return tasks of the rows before, then tasks of the rows after."""
        lost, gained = self._changes()
        # Rows can have moved or been updated only if both sides have some.
        both = bool((len(lost) or len(self._removed)) and (len(gained) or len(self._added)))
        old = self._side(is_after=False, compare=both)
        new = self._side(is_after=True, compare=both)
        tasks: list[ChangeTask] = []
        for side, parts, whole in ((old, lost, self._removed), (new, gained, self._added)):
            tasks += side.some_rows(parts)
            tasks += side.whole_fragments(whole)
        return tasks

    def _side(self, *, is_after: bool, compare: bool) -> _Side:
        here, there = (self._after, self._before) if is_after else (self._before, self._after)
        # Rows of a shared fragment are always compared.
        matters = compare or bool(len(self._shared[0]))
        return _Side(here, self._after, is_after, there.version if matters else None)

    def _changes(self) -> tuple[list[_Part], list[_Part]]:
        """Return the changed parts of the shared fragments, on both sides."""
        lost: list[_Part] = []
        gained: list[_Part] = []
        others: list[tuple[int, int]] = []
        # Only these operations certainly keep earlier deletions.
        only_more = self._commit is not None and self._commit.operation in ("delete", "update")
        for at_before, at_after in zip(*(at.tolist() for at in self._shared), strict=True):
            old = self._before.fragment_wire(at_before)
            new = self._after.fragment_wire(at_after)
            if not _is_same(old, new):
                others.append((at_before, at_after))
                continue
            if old.files != new.files and self._field_files(old) != self._field_files(new):
                rewritten = self._rewritten(old, new)
                lost.append((at_before, old.physical_rows, rewritten))
                gained.append((at_after, new.physical_rows, rewritten))
                continue
            had, has = old.HasField("deletion_file"), new.HasField("deletion_file")
            if had != has or _deletions(old) != _deletions(new):
                earlier = old.deletion_file.num_deleted_rows
                later = new.deletion_file.num_deleted_rows
                if has:
                    rows = max(later - earlier, 0) if only_more else later
                    lost.append((at_before, rows, None))
                if had and not only_more:
                    gained.append((at_after, earlier, None))
        if others:
            before, after = np.array(others, np.int64).T
            self._removed = np.union1d(self._removed, before)
            self._added = np.union1d(self._added, after)
        return lost, gained

    def _field_files(self, fragment: table_pb2.DataFragment) -> dict[int, tuple[str, int | None]]:
        """Return the file of each field that both schemas have."""
        return {
            field: (file.path, file.base_id if file.HasField("base_id") else None)
            for file in fragment.files
            for field in file.fields
            if field in self._fields
        }

    def _rewritten(self, old: table_pb2.DataFragment, new: table_pb2.DataFragment) -> RewrittenRows:
        """Find the rows with rewritten values."""
        if _updates(old) != _updates(new):
            return RewrittenRows(by_version=True)
        return RewrittenRows(offsets=self._recorded_offsets(new.id))

    def _recorded_offsets(self, fragment_id: int) -> bytes | None:
        """Return the rows that the transaction records as rewritten, or None."""
        message = self._update
        if message is None:
            return None
        if fragment_id in message.updated_fragment_offset_bitmaps:
            return bytes(message.updated_fragment_offset_bitmaps[fragment_id])
        if fragment_id in message.updated_fragment_offsets:
            return bitmap_of(message.updated_fragment_offsets[fragment_id].offsets)
        return None

    @cached_property
    def _update(self) -> Any:
        """The message of the operation, if it can rewrite columns."""
        transaction = None if self._commit is None else self._commit.transaction
        if transaction is None or transaction.operation.wire_name != "update":
            return None
        return transaction.operation.to_wire()


def _is_same(old: table_pb2.DataFragment, new: table_pb2.DataFragment) -> bool:
    """Return whether fragments of one id are the same; a restored detached version may differ."""
    rows = old.physical_rows == new.physical_rows
    return rows and old.inline_row_ids == new.inline_row_ids


def _deletions(fragment: table_pb2.DataFragment) -> tuple[int, ...]:
    """Return the identity of a deletion file; later writers may add its number of rows."""
    file = fragment.deletion_file
    base = file.base_id if file.HasField("base_id") else -1
    return file.file_type, file.read_version, file.id, base


def _updates(fragment: table_pb2.DataFragment) -> tuple[bytes, bool]:
    """Return a fragment's record of the versions that last updated its rows."""
    in_column = fragment.HasField("column_last_updated_at_versions")
    return fragment.inline_last_updated_at_versions, in_column
