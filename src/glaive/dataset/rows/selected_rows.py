"""Rows that a filter selects, as offsets per fragment; and ``dataset.delete``.

A deletion rewrites no data file. Its tasks find the rows and write deletion files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow.compute as pc

from glaive.dataclass import dataclass
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.progress_line import note_rows
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.tasks import LOCAL, FragmentRange, Job
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.expr.names import check_column_texts
from glaive.format.deletions import MAX_DELETED_ROWS
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.manifest import Manifest
from glaive.scan.options import ScanOptions
from glaive.scan.query import make_query
from glaive.scan.views import Views
from glaive.table.deletions import add_deletions
from glaive.table.operations.delete import Delete
from glaive.table.protocol import Offsets

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = [
    "DeleteRowsTask",
    "DeleteTask",
    "DeletedRows",
    "MatchingFragments",
    "commit_deleted",
    "delete_in_tasks",
    "delete_rows",
    "delete_rows_tasks",
    "delete_where",
    "rows_where",
    "truncate",
]


_FEW_FRAGMENTS: Final = 64
"""Fragments whose deletion files are written by one process."""

_MOST_TASKS: Final = 4096
"""Tasks that write deletion files, about: where there are more fragments, each writes more."""


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Fragments with new deletion files and the rows deleted in them; ids of emptied fragments.

    ``count`` is the number of deleted rows, of the emptied fragments as well.
    """

    updated: Sequence[Fragment]
    removed: tuple[int, ...]
    affected: RowsByFragment
    count: int

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """The rows of several tasks, which are of different fragments."""
        updated: list[Sequence[Fragment]] = []
        removed: list[int] = []
        affected, count = RowsByFragment(), 0
        for part in parts:
            updated.append(part.updated)
            removed += part.removed
            count += part.count
            affected.add_all(part.affected)
        return cls(FragmentList.joined(updated), tuple(removed), affected, count)


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Delete the rows of some fragments for which a filter holds; can be pickled."""

    fragments: FragmentRange
    predicate: str | pc.Expression

    def execute(self, dataset: OpenDataset) -> DeletedRows:
        """Write deletion files, uncommitted."""
        opened = self.fragments.opened(dataset)
        ids = self.fragments.ids(opened)
        whole = _emptied(opened, self.predicate, ids)
        if not whole:
            return delete_rows(opened, rows_where(opened, self.predicate, fragments=ids))
        every = opened.manifest.fragment_ids.tolist() if ids is None else ids
        rest = tuple(one for one in every if one not in whole)
        found = rows_where(opened, self.predicate, fragments=rest) if rest else {}
        deleted = delete_rows(opened, found)
        removed, count = (*deleted.removed, *whole), deleted.count + sum(whole.values())
        return replace(deleted, removed=removed, count=count)


@dataclass(frozen=True, slots=True)
class MatchingFragments:
    """Find the fragments in which a filter holds for a row; can be pickled."""

    fragments: FragmentRange
    predicate: str | pc.Expression

    def execute(self, dataset: OpenDataset) -> tuple[int, ...]:
        """Ids of the fragments."""
        opened = self.fragments.opened(dataset)
        return tuple(rows_where(opened, self.predicate, fragments=self.fragments.ids(opened)))


def _emptied(
    dataset: OpenedVersion, predicate: str | pc.Expression, ids: Sequence[int] | None
) -> dict[int, int]:
    """Fragments with more rows than a deletion file may have, all of which match; their rows.

    These are removed without one, so that nobody has to hold where the rows are.
    """
    manifest, views = dataset.manifest, Views(dataset.snapshot)
    whole: dict[int, int] = {}
    for position in np.flatnonzero(manifest.physical_rows > MAX_DELETED_ROWS).tolist():
        number = int(manifest.fragment_ids[position])
        if ids is not None and number not in ids:
            continue
        options = ScanOptions.of(filter=predicate, fragments=[number])
        rows = int(dataset.snapshot.live_counts[position])
        if make_query(views, options, counting=True).count() == rows > MAX_DELETED_ROWS:
            whole[number] = rows
    return whole


def rows_where(
    dataset: OpenedVersion, predicate: Any, *, fragments: tuple[int, ...] | None = None
) -> dict[int, Offsets]:
    """Physical offsets of the matching live rows, ascending, by fragment id.

    ``fragments`` are ids of those to look at; default: all.

    Raises
    ------
    UnsupportedFeatureError
        More rows of a fragment match than a deletion file may have.
    """
    options = ScanOptions.of(filter=predicate, fragments=fragments)
    parts: dict[int, list[Offsets]] = {}
    counts: Counter[int] = Counter()
    query = make_query(Views(dataset.snapshot), options, counting=True)
    for fragment_id, rows in query.row_ranges():
        note_rows(len(rows))
        counts[fragment_id] += len(rows)
        # Few bytes of a file may stand for any number of rows that match.
        if counts[fragment_id] > MAX_DELETED_ROWS:
            raise UnsupportedFeatureError(
                f"more than {MAX_DELETED_ROWS} rows of fragment {fragment_id} match (in "
                f"{dataset.manifest.where}), as many as can be deleted from one. Write the dataset "
                "with smaller fragments, or delete all of the fragment's rows."
            )
        parts.setdefault(fragment_id, []).append(rows.astype(np.uint32))
    return {
        fragment_id: rows[0] if len(rows) == 1 else np.concatenate(rows)
        for fragment_id, rows in parts.items()
    }


@dataclass(frozen=True, slots=True)
class DeleteRowsTask:
    """Delete given rows of some fragments; can be pickled."""

    read_version: int
    rows: RowsByFragment

    def execute(self, dataset: OpenDataset) -> DeletedRows:
        """Write deletion files, uncommitted."""
        return delete_rows(FragmentRange(self.read_version).opened(dataset), self.rows)


def delete_in_tasks(dataset: OpenedVersion, rows: RowsByFragment, job: Job) -> DeletedRows:
    """Write deletion files for these rows: here, or in tasks if there are many fragments."""
    if len(rows) <= _FEW_FRAGMENTS:
        return delete_rows(dataset, rows)
    tasks = delete_rows_tasks(dataset.manifest.version, rows)
    return DeletedRows.joined(job.runner.run(dataset, tasks))


def delete_rows_tasks(version: int, rows: RowsByFragment) -> list[DeleteRowsTask]:
    """Tasks that each delete the rows of some fragments."""
    fragments = max(_FEW_FRAGMENTS, math.ceil(len(rows) / _MOST_TASKS))
    return [DeleteRowsTask(version, part) for part in rows.divided(fragments)]


def delete_rows(dataset: OpenedVersion, rows: Mapping[int, Offsets]) -> DeletedRows:
    """Write deletion files for these rows, uncommitted; already deleted rows do not count.

    One request per fragment, two if it has a deletion file.
    """
    manifest = dataset.manifest
    updated, removed, affected, count = [], [], RowsByFragment(), 0
    for fragment_id, offsets in rows.items():
        fragment = manifest.fragment(manifest.position_of(fragment_id))
        changed, added = add_deletions(dataset.store, manifest, fragment, offsets)
        if not len(added):
            continue
        count += len(added)
        if changed is None:
            removed.append(fragment_id)
        else:
            affected.add_offsets(fragment_id, added)
            updated.append(changed)
    return DeletedRows(FragmentList.of(updated), tuple(removed), affected, count)


def delete_where(
    dataset: OpenedVersion, predicate: str | pc.Expression, job: Job = LOCAL
) -> tuple[Manifest, int]:
    """Commit the deletion of the matching rows; returns the version and their number.

    Makes a version even if no row matches, as pylance does.
    """
    if not isinstance(predicate, str | pc.Expression):
        raise OptionError(f"predicate must be a string or expression, found {predicate!r:.60}")
    check_column_texts(dataset.manifest.schema, predicate)
    bound = Views(dataset.snapshot).filter(predicate)
    text = predicate if isinstance(predicate, str) else bound.text
    if not bound.terms:
        return truncate(dataset, text, job)
    runner = job.runner
    tasks = [DeleteTask(fragments, predicate) for fragments in runner.parts(dataset)]
    return commit_deleted(dataset, runner.run(dataset, tasks), text, job)


def commit_deleted(
    dataset: OpenedVersion, parts: Iterable[DeletedRows], predicate: str, job: Job = LOCAL
) -> tuple[Manifest, int]:
    """Commit the results of tasks; returns the version and the number of rows."""
    deleted = DeletedRows.joined(parts)
    operation = Delete(
        updated=deleted.updated,
        removed=deleted.removed,
        predicate=predicate,
        affected=deleted.affected,
    )
    properties = job.recording(num_deleted_rows=deleted.count)
    manifest = commit_operation(dataset, operation, properties=properties, once=job.once)
    return manifest, deleted.count


def truncate(
    dataset: OpenedVersion, predicate: str = "true", job: Job = LOCAL
) -> tuple[Manifest, int]:
    """Commit the deletion of all rows, without reading any."""
    ids = tuple(dataset.manifest.fragment_ids.tolist())
    count = dataset.snapshot.num_rows
    operation = Delete(removed=ids, predicate=predicate)
    properties = job.recording(num_deleted_rows=count)
    return commit_operation(dataset, operation, properties=properties, once=job.once), count
