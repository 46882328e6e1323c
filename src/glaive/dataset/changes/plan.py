"""Plan a change feed: compare the fragments of two versions.

Fragments whose metadata is the same in both versions did not change; no data file is read. What
became of the rows of the others is found by the tasks. Compactions, index builds, and changes of
settings or of the schema change no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import ne
from typing import Final

import numpy as np

from glaive.dataclass import dataclass
from glaive.dataset.changes.commits import Commit
from glaive.dataset.changes.task import TASK_ROWS, ChangeTask, RewrittenRows
from glaive.errors import UnsupportedFeatureError
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.table.bitmaps import bitmap_of

__all__ = ["plan_commit", "plan_net", "plan_snapshot"]

_WITHOUT_ROWS: Final = frozenset(
    {
        "create_index",
        "project",
        "reserve_fragments",
        "rewrite",
        "update_bases",
        "update_config",
        "update_mem_wal_state",
    }
)
"""Operations after which a dataset has the same rows."""


def plan_commit(commit: Commit) -> list[ChangeTask]:
    """The tasks that read what one commit changed; reads no file."""
    operation = commit.operation
    if operation in _WITHOUT_ROWS:
        return []
    if commit.before is None or commit.replaced_everything:
        return _replaced(commit.before, commit.after)
    return _Comparison(commit.before, commit.after, commit).tasks()


def plan_net(
    before: Manifest | None, after: Manifest, between: Sequence[Commit]
) -> list[ChangeTask]:
    """The tasks that read the difference of two versions, whatever happened in between.

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
    return _Comparison(before, after, None).tasks()


def plan_snapshot(manifest: Manifest) -> list[ChangeTask]:
    """The tasks that read all rows of a version, as inserted."""
    return _replaced(None, manifest)


def _replaced(before: Manifest | None, after: Manifest) -> list[ChangeTask]:
    """All rows of one version deleted, all of the other inserted."""
    tasks: list[ChangeTask] = []
    if before is not None:
        old = _Side(before, after, is_after=False, compared=None)
        tasks += old.whole_fragments(range(before.num_fragments))
    new = _Side(after, after, is_after=True, compared=None)
    return [*tasks, *new.whole_fragments(range(after.num_fragments))]


@dataclass(frozen=True, slots=True)
class _Part:
    """A fragment that both versions have: its position, and how many rows changed at most."""

    position: int
    rows: int
    rewritten: RewrittenRows | None = None


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two versions, and the tasks for its fragments."""

    manifest: Manifest
    commit: Manifest
    is_after: bool
    compared: int | None

    def whole_fragments(self, positions: Sequence[int]) -> Iterator[ChangeTask]:
        """Fragments that only this version has."""
        deleted = self.manifest.deleted_rows
        for position in positions:
            rows = int(self.manifest.physical_rows[position])
            live = rows - max(0, int(deleted[position]))
            yield from self._cut(position, rows, live)

    def some_rows(self, part: _Part) -> Iterator[ChangeTask]:
        """Changed rows of a fragment that both versions have."""
        physical = int(self.manifest.physical_rows[part.position])
        for task in self._cut(part.position, physical, part.rows):
            yield replace(task, shared=True, rewritten=part.rewritten)

    def _cut(self, position: int, physical: int, rows: int) -> Iterator[ChangeTask]:
        files = self.manifest.fragment_wire(position).files
        whole = ChangeTask(
            commit_version=self.commit.version,
            commit_timestamp=self.commit.timestamp,
            after=self.is_after,
            read_version=self.manifest.version,
            compared_version=self.compared,
            fragment_id=int(self.manifest.fragment_ids[position]),
            stop=physical,
            rows=rows,
            file_bytes=sum(file.file_size_bytes for file in files) * rows // max(1, physical),
        )
        for start in range(0, physical, TASK_ROWS):
            yield whole.part(start, min(start + TASK_ROWS, physical))


class _Comparison:
    """Two versions, fragment by fragment."""

    def __init__(self, before: Manifest, after: Manifest, commit: Commit | None) -> None:
        self._before, self._after = before, after
        self._commit = commit
        old, new = before.fragment_ids, after.fragment_ids
        _, old_shared, new_shared = np.intersect1d(old, new, return_indices=True)
        self._removed = np.setdiff1d(np.arange(len(old)), old_shared)
        self._added = np.setdiff1d(np.arange(len(new)), new_shared)
        old_wire = list(map(before.wire.fragments.__getitem__, old_shared.tolist()))
        new_wire = list(map(after.wire.fragments.__getitem__, new_shared.tolist()))
        changed = np.fromiter(map(ne, old_wire, new_wire), np.bool_, len(old_wire))
        self._shared = list(
            zip(old_shared[changed].tolist(), new_shared[changed].tolist(), strict=True)
        )
        self._fields = set(before.schema.field_ids()) & set(after.schema.field_ids())

    def tasks(self) -> list[ChangeTask]:
        """Those of the rows before, then those of the rows after."""
        lost, gained = self._changes()
        # Rows can only have moved or been updated if there are some on both sides.
        both = bool((lost or len(self._removed)) and (gained or len(self._added)))
        old = self._side(is_after=False, compare=both)
        new = self._side(is_after=True, compare=both)
        tasks: list[ChangeTask] = []
        for side, parts, whole in ((old, lost, self._removed), (new, gained, self._added)):
            for part in parts:
                tasks += side.some_rows(part)
            tasks += side.whole_fragments(whole.tolist())
        return tasks

    def _side(self, *, is_after: bool, compare: bool) -> _Side:
        here, there = (self._after, self._before) if is_after else (self._before, self._after)
        # Rows of a shared fragment are compared in any case.
        matters = compare or bool(self._shared)
        return _Side(here, self._after, is_after, there.version if matters else None)

    def _changes(self) -> tuple[list[_Part], list[_Part]]:
        """Changed parts of the shared fragments, on both sides."""
        lost, gained = [], []
        # Only these operations are sure to keep what was deleted before.
        only_more = self._commit is not None and self._commit.operation in ("delete", "update")
        for at_before, at_after in self._shared:
            old, new = self._before.fragment(at_before), self._after.fragment(at_after)
            if self._homes(old) != self._homes(new):
                rewritten = self._rewritten(old, new)
                lost.append(_Part(at_before, old.physical_rows, rewritten))
                gained.append(_Part(at_after, new.physical_rows, rewritten))
            elif old.deletion_file != new.deletion_file:
                earlier, later = old.num_deletions or 0, new.num_deletions or 0
                if new.deletion_file is not None:
                    lost.append(_Part(at_before, max(later - earlier, 0) if only_more else later))
                if old.deletion_file is not None and not only_more:
                    gained.append(_Part(at_after, earlier))
        return lost, gained

    def _homes(self, fragment: Fragment) -> dict[int, tuple[str, int | None]]:
        """The file of each field that both schemas have."""
        return {
            field: (file.path, file.base_id)
            for file in fragment.files
            for field in file.fields
            if field in self._fields
        }

    def _rewritten(self, old: Fragment, new: Fragment) -> RewrittenRows:
        """Which rows have rewritten values."""
        if (old.updated_at, old.updated_at_in_column) != (new.updated_at, new.updated_at_in_column):
            return RewrittenRows(by_version=True)
        return RewrittenRows(offsets=self._stated_offsets(new.id))

    def _stated_offsets(self, fragment_id: int) -> bytes | None:
        """What the transaction says of the rows whose columns were rewritten."""
        transaction = None if self._commit is None else self._commit.transaction
        if transaction is None or transaction.operation.wire_name != "update":
            return None
        message = transaction.operation.to_wire()
        if fragment_id in message.updated_fragment_offset_bitmaps:
            return bytes(message.updated_fragment_offset_bitmaps[fragment_id])
        if fragment_id in message.updated_fragment_offsets:
            return bitmap_of(message.updated_fragment_offsets[fragment_id].offsets)
        return None
