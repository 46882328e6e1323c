"""Rows that a filter selects, as offsets per fragment; and ``dataset.delete``.

A deletion rewrites no data file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.errors import OptionError
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.scan.options import ScanOptions
from glaive.scan.query import make_query
from glaive.scan.views import Views
from glaive.table.deletions import add_deletions
from glaive.table.operations.delete import Delete
from glaive.table.protocol import Offsets

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = [
    "DeletedRows",
    "delete_rows",
    "delete_where",
    "rows_where",
    "truncate",
]


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Fragments with new deletion files and the rows deleted in them; ids of emptied fragments.

    ``count`` is the number of deleted rows, of the emptied fragments as well.
    """

    updated: tuple[Fragment, ...]
    removed: tuple[int, ...]
    affected: RowsByFragment
    count: int


def rows_where(
    dataset: OpenedVersion, predicate: Any, views: Views | None = None
) -> dict[int, Offsets]:
    """Physical offsets of the matching live rows, ascending, by fragment id.

    ``views`` of the dataset keep what was bound before.
    """
    options = ScanOptions.of(filter=predicate)
    parts: dict[int, list[NDArray[np.int64]]] = {}
    query = make_query(views or Views(dataset.snapshot), options, counting=True)
    for fragment_id, rows in query.row_ranges():
        parts.setdefault(fragment_id, []).append(rows)
    return {
        fragment_id: (rows[0] if len(rows) == 1 else np.concatenate(rows)).astype(np.uint32)
        for fragment_id, rows in parts.items()
    }


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
    return DeletedRows(tuple(updated), tuple(removed), affected, count)


def delete_where(dataset: OpenedVersion, predicate: str | pc.Expression) -> tuple[Manifest, int]:
    """Commit the deletion of the matching rows; returns the version and their number.

    Makes a version even if no row matches, as pylance does.
    """
    if not isinstance(predicate, str | pc.Expression):
        raise OptionError(f"predicate: expected a filter, found {predicate!r:.60}")
    views = Views(dataset.snapshot)
    bound = views.filter(predicate)
    text = predicate if isinstance(predicate, str) else bound.text
    if not bound.terms:
        return truncate(dataset, text)
    deleted = delete_rows(dataset, rows_where(dataset, predicate, views))
    operation = Delete(
        updated=deleted.updated,
        removed=deleted.removed,
        predicate=text,
        affected=deleted.affected,
    )
    return commit_operation(dataset, operation), deleted.count


def truncate(dataset: OpenedVersion, predicate: str = "true") -> tuple[Manifest, int]:
    """Commit the deletion of all rows, without reading any."""
    ids = tuple(dataset.manifest.fragment_ids.tolist())
    count = dataset.snapshot.num_rows
    return commit_operation(dataset, Delete(removed=ids, predicate=predicate)), count
