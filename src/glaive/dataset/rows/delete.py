"""``dataset.delete``: delete the rows that match a predicate; rewrites no data file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.rows.selected_rows import delete_rows, rows_where
from glaive.errors import OptionError
from glaive.expr.filters import bind_filter
from glaive.format.manifest import Manifest
from glaive.scan.system_columns import SYSTEM_COLUMNS
from glaive.table.operations.delete import Delete

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["delete_where", "truncate"]


def delete_where(dataset: OpenedVersion, predicate: str | pc.Expression) -> tuple[Manifest, int]:
    """Commit the deletion of the matching rows; returns the version and their number.

    Makes a version even if no row matches, as pylance does.
    """
    if not isinstance(predicate, str | pc.Expression):
        raise OptionError(f"predicate: expected a filter, found {predicate!r:.60}")
    schema = dataset.manifest.schema
    bound = bind_filter(predicate, schema, system=SYSTEM_COLUMNS)
    text = predicate if isinstance(predicate, str) else bound.text
    if not bound.terms:
        return truncate(dataset, text)
    deleted = delete_rows(dataset, rows_where(dataset, predicate))
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
