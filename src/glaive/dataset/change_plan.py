"""Plan a change feed: compare the fragments of two versions.

Fragments whose metadata is the same in both versions did not change; no data file is read. What
became of the rows of the others is found by the tasks. Compactions, after which there are as many
rows, change none: only their transactions say so.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from operator import ne
from typing import Any, Final, Self, overload

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
from glaive.table.load import load_again, read_transaction
from glaive.table.operations.overwrite import Published
from glaive.table.versions import list_versions
from glaive.types import Int64s

# --- Tasks of a change feed: values that can be sent to other processes -----------------

TASK_ROWS = 1 << 20
"""Physical rows of a fragment that one task looks at, at most; more in versions of a trillion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenRows:
    """Rows of a fragment of which some columns were rewritten in place.

    Parameters
    ----------
    by_version
        They are the rows that were last updated in another version than before.
    offsets
        Otherwise the physical rows as a roaring bitmap; ``None`` for all.
    """

    by_version: bool = False
    offsets: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """The changed rows in a part of one fragment, as they were before or after a commit.

    Parameters
    ----------
    commit_version, commit_timestamp
        The version that changed them, and its time.
    after
        Whether rows are inserted or have their new values; otherwise they are deleted or have
        their old values.
    read_version
        The version that has the rows.
    compared_version
        The version on the other side of the commit, if its rows matter: ``None`` if no row of the
        fragment can be there as well.
    fragment_id
        The fragment, in ``read_version``.
    shared
        Whether the other version has the fragment, too: only some rows of it changed.
    rewritten
        Which rows of a shared fragment have values that were rewritten in place, if any.
    start, stop
        The physical rows to look at.
    rows
        Number of changed rows, about.
    file_bytes
        Bytes of the data files for these rows, about.
    others
        Field ids that mean other columns in ``read_version`` than in the version whose schema the
        feed has; ``None`` if that is not known.
    """

    commit_version: int
    commit_timestamp: datetime
    after: bool
    read_version: int
    compared_version: int | None
    fragment_id: int
    shared: bool = False
    rewritten: RewrittenRows | None = None
    start: int = 0
    stop: int
    rows: int
    file_bytes: int = 0
    others: frozenset[int] | None = frozenset()

    def part(self, start: int, stop: int) -> ChangeTask:
        """The same task for the physical rows from ``start`` to ``stop``."""
        share = (stop - start) / max(1, self.stop - self.start)
        return replace(
            self,
            start=start,
            stop=stop,
            rows=round(self.rows * share),
            file_bytes=round(self.file_bytes * share),
        )

    @property
    def complete(self) -> bool:
        """Whether all live rows from ``start`` to ``stop`` may have changed."""
        return not self.shared


# --- Lists of tasks of a change feed: a million need a tenth of the memory of their values
# Nearly all tasks of a commit differ only in their fragment and its rows. So a list has what they
# share once, and numbers of each; a :class:`ChangeTask` is made when one is asked for.


@dataclass(frozen=True, slots=True, eq=False)
class TaskGroup:
    """Tasks that differ only in their fragment and its rows.

    Parameters
    ----------
    template
        One of them; its fragment and rows mean nothing.
    places
        ``fragment_id``, ``start``, ``stop``, ``rows`` and ``file_bytes`` of each; shape
        ``(tasks, 5)``.
    offsets
        Of each, ``offsets`` of its rewritten rows; ``None`` if these are those of ``template``.
    """

    template: ChangeTask
    places: Int64s
    offsets: Sequence[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[ChangeTask]:
        return map(self.task, range(len(self)))

    def __getitem__(self, at: slice) -> TaskGroup:
        offsets = None if self.offsets is None else self.offsets[at]
        return TaskGroup(self.template, self.places[at], offsets)

    def task(self, at: int) -> ChangeTask:
        """The task with this number."""
        rewritten = self.template.rewritten
        if self.offsets is not None:
            rewritten = RewrittenRows(offsets=self.offsets[at])
        number, start, stop, rows, file_bytes = self.places[at].tolist()
        return replace(
            self.template,
            fragment_id=number,
            start=start,
            stop=stop,
            rows=rows,
            file_bytes=file_bytes,
            rewritten=rewritten,
        )

    def cut(self, steps: Int64s) -> TaskGroup:
        """The same rows in tasks for so many physical rows each, by the task, at most."""
        length = self.places[:, 2] - self.places[:, 1]
        counts = -(-length // steps)
        if len(counts) and counts.min() == counts.max() == 1:
            return self
        whole = np.repeat(np.arange(len(self)), counts)
        parts, step, length = self.places[whole], steps[whole], length[whole]
        parts[:, 1] += (np.arange(len(whole)) - (np.cumsum(counts) - counts)[whole]) * step
        parts[:, 2] = np.minimum(parts[:, 1] + step, parts[:, 2])
        share = (parts[:, 2] - parts[:, 1]) / length
        parts[:, 3:] = np.rint(parts[:, 3:] * share[:, None])
        given = self.offsets
        offsets = None if given is None else [given[number] for number in whole.tolist()]
        return TaskGroup(self.template, parts, offsets)


class ChangeTasks(Sequence[ChangeTask]):
    """Tasks in order, a sequence of values; can be pickled.

    Parameters
    ----------
    groups
        Neighbouring tasks that differ only in their fragment and its rows.
    """

    def __init__(self, groups: Iterable[TaskGroup] = ()) -> None:
        self.groups = tuple(group for group in groups if len(group))
        """The tasks, without empty groups."""
        self._ends = list(accumulate(map(len, self.groups)))

    @classmethod
    def of(cls, tasks: Iterable[ChangeTask]) -> Self:
        """A list of few tasks, each a group of its own."""
        return cls(
            TaskGroup(
                task,
                np.array(
                    [[task.fragment_id, task.start, task.stop, task.rows, task.file_bytes]],
                    np.int64,
                ),
            )
            for task in tasks
        )

    @classmethod
    def joined(cls, parts: Iterable[ChangeTasks]) -> Self:
        """The tasks of several lists."""
        return cls(group for part in parts for group in part.groups)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[ChangeTask]:
        for group in self.groups:
            yield from group

    @overload
    def __getitem__(self, at: int) -> ChangeTask: ...
    @overload
    def __getitem__(self, at: slice) -> ChangeTasks: ...
    def __getitem__(self, at: int | slice) -> ChangeTask | ChangeTasks:
        if isinstance(at, slice):
            first, last, step = at.indices(len(self))
            if step != 1:
                return ChangeTasks.of(self[number] for number in range(first, last, step))
            return ChangeTasks(self._between(first, last))
        number = at + len(self) if at < 0 else at
        if not 0 <= number < len(self):
            raise IndexError(at)
        holder = self._group_of(number)
        group = self.groups[holder]
        return group.task(number - self._ends[holder] + len(group))

    def _between(self, first: int, last: int) -> Iterator[TaskGroup]:
        for at in range(self._group_of(first), len(self.groups)):
            group, end = self.groups[at], self._ends[at]
            start = end - len(group)
            if start >= last:
                return
            yield group[max(0, first - start) : min(end, last) - start]

    def _group_of(self, number: int) -> int:
        """Which group has this task: a stream of many versions has many."""
        return bisect_right(self._ends, number)

    def __repr__(self) -> str:
        return f"ChangeTasks(<{len(self)} tasks>)"

    @property
    def rows(self) -> int:
        """Changed rows of all tasks, about."""
        return sum(int(group.places[:, 3].sum()) for group in self.groups)

    @property
    def file_bytes(self) -> int:
        """Bytes of the data files for these rows, about."""
        return int(self.sizes.sum())

    @property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Bytes of the data files for the rows of each task, about."""
        parts = [group.places[:, 4].astype(np.float64) for group in self.groups]
        return np.concatenate(parts) if parts else np.zeros(0)

    def knowing_fields(self, others: Callable[[int], frozenset[int] | None] | None) -> ChangeTasks:
        """Tasks that know which fields mean other columns.

        Parameters
        ----------
        others
            Gives their ids in a version; ``None``, or if it gives ``None``: they are not known.
        """
        return ChangeTasks(
            TaskGroup(
                replace(
                    group.template,
                    others=None if others is None else others(group.template.read_version),
                ),
                group.places,
                group.offsets,
            )
            for group in self.groups
        )


# --- The versions between which rows changed, in pairs of neighbours --------------------


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """What is remembered of a commit whose manifests are let go of; see :class:`Commit`."""

    version: int
    operation: str | None
    replaced_everything: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """A version and the one before it: ``None`` for the first version."""

    before: Manifest | None
    after: Manifest
    transaction: Transaction | None

    @property
    def version(self) -> int:
        """The version that the commit made."""
        return self.after.version

    @property
    def operation(self) -> str | None:
        """Name of the operation; ``None`` if it is not recorded."""
        return None if self.transaction is None else self.transaction.operation.wire_name

    @property
    def replaced_everything(self) -> bool:
        """Whether no row is one of the version before: an overwrite that published no branch."""
        return self.operation == "overwrite" and Published.of(self.transaction) is None

    @property
    def summary(self) -> CommitSummary:
        """These facts alone."""
        return CommitSummary(self.version, self.operation, self.replaced_everything)


def check_range(start: object, end: object, newest: int) -> tuple[int, int]:
    """The first and last version of a feed, both included; ``end`` defaults to the newest.

    Raises
    ------
    OptionError
        They are no version numbers, or none lies between them.
    """
    first = _version("start_version", start)
    last = newest if end is None else _version("end_version", end)
    for name, number in (("start_version", first), ("end_version", last)):
        if number > newest:
            raise OptionError(f"{name}: the newest version is {newest}, found {number}")
    if first > last:
        raise OptionError(f"start_version {first} comes after end_version {last}")
    return first, last


def _version(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name}: expected a version number ≥ 1, found {value!r}")
    return value


def commits(store: ObjectStore, newest: Manifest, start: int, end: int) -> Iterator[Commit]:
    """The commits from version ``start`` to ``end``, in order. One request per version.

    Raises
    ------
    VersionNotFoundError
        One of the versions, or the one before ``start``, was cleaned up; the message names the
        oldest that can be used.
    """
    before = load_for_changes(store, newest, start - 1) if start > 1 else None
    for version in range(start, end + 1):
        after = load_for_changes(store, newest, version)
        yield Commit(before, after, read_transaction(store, after))
        before = after


def load_for_changes(store: ObjectStore, newest: Manifest, version: int) -> Manifest:
    """A version that a change feed needs; errors as for :func:`commits`."""
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


_MAX_TASKS: Final = 1 << 21
"""Tasks of a group, about: fragments of some bytes may say to have 2^32 rows."""

_MAX_BYTES: Final = 2.0**62
"""Of files, as manifests may say anything."""


def plan_commit(commit: Commit, others: frozenset[int] = frozenset()) -> ChangeTasks:
    """The tasks that read what one commit changed; reads no file. ``others``: :func:`plan_net`."""
    if commit.before is None or commit.replaced_everything:
        return _replaced(commit.before, commit.after)
    if commit.operation == "rewrite" and _has_as_many(commit.before, commit.after):
        return ChangeTasks()  # what others say of themselves, the fragments tell
    return _Comparison(commit.before, commit.after, commit, others).tasks()


def plan_net(
    before: Manifest | None,
    after: Manifest,
    between: Sequence[CommitSummary],
    others: frozenset[int] = frozenset(),
) -> ChangeTasks:
    """The tasks that read the difference of two versions, whatever happened in between.

    Parameters
    ----------
    before, after
        The versions; ``None`` before the first one.
    between
        The commits between them.
    others
        Field ids that mean other columns in one of the versions than in the other.

    Raises
    ------
    UnsupportedFeatureError
        Rows without stable ids were moved by a compaction: nothing tells which they were.
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


def plan_snapshot(manifest: Manifest) -> ChangeTasks:
    """The tasks that read all rows of a version, as inserted."""
    return _replaced(None, manifest)


def _has_as_many(before: Manifest, after: Manifest) -> bool:
    """Whether two versions have equally many rows; manifests of old writers do not say."""
    counts = before.count_rows(), after.count_rows()
    return None in counts or counts[0] == counts[1]


def _replaced(before: Manifest | None, after: Manifest) -> ChangeTasks:
    """All rows of one version deleted, all of the other inserted."""
    groups = []
    if before is not None:
        old = _Side(before, after, is_after=False, compared=None)
        groups.append(old.whole_fragments(np.arange(before.num_fragments)))
    new = _Side(after, after, is_after=True, compared=None)
    groups.append(new.whole_fragments(np.arange(after.num_fragments)))
    return ChangeTasks(groups)


@dataclass(slots=True)
class _Parts:
    """Fragments that both versions have: their positions, and what of them changed.

    Parameters
    ----------
    positions, rows
        Of each fragment, and how many of its rows changed at most.
    kinds
        Of each, how it is known which columns were rewritten in place: 0: none were, 1: by the
        versions of the rows, 2: by ``offsets``.
    offsets
        Of each of kind 2.
    """

    positions: array[int] = field(default_factory=lambda: array("q"))
    rows: array[int] = field(default_factory=lambda: array("q"))
    kinds: array[int] = field(default_factory=lambda: array("b"))
    offsets: list[bytes | None] = field(default_factory=list)

    def add(self, position: int, rows: int, rewritten: RewrittenRows | None = None) -> None:
        """Add a fragment."""
        self.positions.append(position)
        self.rows.append(rows)
        if rewritten is None or rewritten.by_version:
            self.kinds.append(0 if rewritten is None else 1)
        else:
            self.kinds.append(2)
            self.offsets.append(rewritten.offsets)

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two versions, and the tasks for its fragments."""

    manifest: Manifest
    commit: Manifest
    is_after: bool
    compared: int | None

    def whole_fragments(self, positions: Int64s) -> TaskGroup:
        """Fragments that only this version has."""
        deleted = self.manifest.deleted_rows[positions]
        live = self.manifest.physical_rows[positions] - np.maximum(deleted, 0)
        return self._cut(self._template(), positions, live)

    def some_rows(self, parts: _Parts) -> Iterator[TaskGroup]:
        """Changed rows of fragments that both versions have; neighbours alike are a group."""
        if not len(parts):
            return
        positions = np.frombuffer(parts.positions, np.int64)
        rows = np.frombuffer(parts.rows, np.int64)
        kinds = np.frombuffer(parts.kinds, np.int8)
        starts = np.flatnonzero(np.diff(kinds, prepend=-1)).tolist()
        stated = 0
        for start, stop in zip(starts, [*starts[1:], len(parts)], strict=True):
            kind = int(kinds[start])
            template = replace(
                self._template(),
                shared=True,
                rewritten=RewrittenRows(by_version=kind == 1) if kind else None,
            )
            offsets = None
            if kind == 2:
                offsets = parts.offsets[stated : stated + stop - start]
                stated += stop - start
            yield self._cut(template, positions[start:stop], rows[start:stop], offsets)

    def _template(self) -> ChangeTask:
        return ChangeTask(
            commit_version=self.commit.version,
            commit_timestamp=self.commit.timestamp,
            after=self.is_after,
            read_version=self.manifest.version,
            compared_version=self.compared,
            fragment_id=0,
            stop=0,
            rows=0,
        )

    def _cut(
        self,
        template: ChangeTask,
        positions: Int64s,
        rows: Int64s,
        offsets: Sequence[bytes | None] | None = None,
    ) -> TaskGroup:
        physical = self.manifest.physical_rows[positions]
        share = rows / np.maximum(physical, 1)
        size = np.minimum(self.manifest.columns.data_bytes[positions] * share, _MAX_BYTES)
        places = np.empty((len(positions), 5), np.int64)
        places[:, 0] = self.manifest.fragment_ids[positions]
        places[:, 1], places[:, 2], places[:, 3], places[:, 4] = 0, physical, rows, size
        wanted = int((-(-physical // TASK_ROWS)).sum())
        step = TASK_ROWS * max(1, -(-wanted // _MAX_TASKS))
        return TaskGroup(template, places, offsets).cut(np.full(len(places), step))


class _Comparison:
    """Two versions, fragment by fragment."""

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

    def tasks(self) -> ChangeTasks:
        """Those of the rows before, then those of the rows after."""
        lost, gained = self._changes()
        # Rows can only have moved or been updated if there are some on both sides.
        both = bool((len(lost) or len(self._removed)) and (len(gained) or len(self._added)))
        old = self._side(is_after=False, compare=both)
        new = self._side(is_after=True, compare=both)
        groups: list[TaskGroup] = []
        for side, parts, whole in ((old, lost, self._removed), (new, gained, self._added)):
            groups += side.some_rows(parts)
            groups.append(side.whole_fragments(whole))
        return ChangeTasks(groups)

    def _side(self, *, is_after: bool, compare: bool) -> _Side:
        here, there = (self._after, self._before) if is_after else (self._before, self._after)
        # Rows of a shared fragment are compared in any case.
        matters = compare or bool(len(self._shared[0]))
        return _Side(here, self._after, is_after, there.version if matters else None)

    def _changes(self) -> tuple[_Parts, _Parts]:
        """Changed parts of the shared fragments, on both sides."""
        lost, gained = _Parts(), _Parts()
        others: list[tuple[int, int]] = []
        # Only these operations are sure to keep what was deleted before.
        only_more = self._commit is not None and self._commit.operation in ("delete", "update")
        for at_before, at_after in zip(*(at.tolist() for at in self._shared), strict=True):
            old = self._before.fragment_wire(at_before)
            new = self._after.fragment_wire(at_after)
            if not _is_same(old, new):
                others.append((at_before, at_after))
                continue
            if old.files != new.files and self._homes(old) != self._homes(new):
                rewritten = self._rewritten(old, new)
                lost.add(at_before, old.physical_rows, rewritten)
                gained.add(at_after, new.physical_rows, rewritten)
                continue
            had, has = old.HasField("deletion_file"), new.HasField("deletion_file")
            if had != has or _deletions(old) != _deletions(new):
                earlier = old.deletion_file.num_deleted_rows
                later = new.deletion_file.num_deleted_rows
                if has:
                    lost.add(at_before, max(later - earlier, 0) if only_more else later)
                if had and not only_more:
                    gained.add(at_after, earlier)
        if others:
            before, after = np.array(others, np.int64).T
            self._removed = np.union1d(self._removed, before)
            self._added = np.union1d(self._added, after)
        return lost, gained

    def _homes(self, fragment: table_pb2.DataFragment) -> dict[int, tuple[str, int | None]]:
        """The file of each field that both schemas have."""
        return {
            field: (file.path, file.base_id if file.HasField("base_id") else None)
            for file in fragment.files
            for field in file.fields
            if field in self._fields
        }

    def _rewritten(self, old: table_pb2.DataFragment, new: table_pb2.DataFragment) -> RewrittenRows:
        """Which rows have rewritten values."""
        if _updates(old) != _updates(new):
            return RewrittenRows(by_version=True)
        return RewrittenRows(offsets=self._stated_offsets(new.id))

    def _stated_offsets(self, fragment_id: int) -> bytes | None:
        """What the transaction says of the rows whose columns were rewritten."""
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
        """The message of the operation, if it is one that rewrites columns."""
        transaction = None if self._commit is None else self._commit.transaction
        if transaction is None or transaction.operation.wire_name != "update":
            return None
        return transaction.operation.to_wire()


def _is_same(old: table_pb2.DataFragment, new: table_pb2.DataFragment) -> bool:
    """Whether fragments of one id are one: a detached version that is restored has others."""
    rows = old.physical_rows == new.physical_rows
    return rows and old.inline_row_ids == new.inline_row_ids


def _deletions(fragment: table_pb2.DataFragment) -> tuple[int, ...]:
    """What names a deletion file: later writers may add how many rows are in it."""
    file = fragment.deletion_file
    base = file.base_id if file.HasField("base_id") else -1
    return file.file_type, file.read_version, file.id, base


def _updates(fragment: table_pb2.DataFragment) -> tuple[bytes, bool]:
    """What a fragment says of the versions in which its rows were last updated."""
    in_column = fragment.HasField("column_last_updated_at_versions")
    return fragment.inline_last_updated_at_versions, in_column
