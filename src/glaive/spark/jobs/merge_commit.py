"""Run the tasks of a merge on their frame, and commit what they wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.arrow.python_values import python_rows
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.merging.inserted_keys import InsertedKeys
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import delete_in_tasks
from glaive.errors import SchemaError
from glaive.format.fragment_list import FragmentList
from glaive.scan.addresses import find_rows
from glaive.scan.take import take_physical
from glaive.spark.assignable import refuse_unassignable, stored_types
from glaive.spark.jobs.merge_rows import MergedRows, MergeRows, RowClause
from glaive.spark.types import spark_arrow_schema
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest
    from glaive.spark.jobs.small_merge import SmallMerge

__all__ = ["commit_merge", "written_rows"]


def written_rows(
    opened: OpenedVersion, rows: DataFrame, task: MergeRows | SmallMerge, job: Job
) -> list[Any]:
    """Run the task of a merge on each partition of a frame; nothing is committed.

    Parameters
    ----------
    rows
        As the task needs them, with the values in the columns that its clauses say.

    Returns
    -------
    list
        What the task returned for each partition, in no order.

    Raises
    ------
    SchemaError
        A value can never fit its column.
    """
    runner: Any = job.runner  # that of a session
    _check_types(opened, rows, task.clauses)
    parts: list[Any] = runner.run_on_rows(opened, rows, task)
    return parts


def commit_merge(
    opened: OpenedVersion,
    parts: Sequence[MergedRows],
    clauses: Sequence[RowClause],
    job: Job,
) -> tuple[Manifest, None]:
    """Commit what tasks wrote.

    Parameters
    ----------
    clauses
        By number.

    Raises
    ------
    SchemaError
        A row is changed twice.
    """
    rows = RowsByFragment()
    only_deletes = all(clause.action == "delete" for clause in clauses)
    for part in parts:
        repeated = part.repeated
        old = RowsByFragment()
        old.add_all(part.old)  # that of the result stays packed
        if repeated is None:
            repeated = rows.first_common(old)
        if repeated is not None and not only_deletes:
            raise SchemaError(
                f"several rows of the source change the row {_describe_row(opened, repeated)}. "
                'Remove them from the source, or use onDuplicateSource("last", by=column); '
                "nothing was changed"
            )
        rows.add_all(old)
    deleted = delete_in_tasks(opened, rows, job)
    del rows  # a few hundred bytes a fragment
    updated = sum(part.counts["update"] for part in parts)
    counts = {
        "num_inserted_rows": sum(part.counts["insert"] for part in parts),
        "num_updated_rows": updated,
        "num_deleted_rows": deleted.count - updated,
    }
    keys = _inserted_keys(parts)
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=FragmentList.joined([*(p.updated for p in parts), *(p.inserted for p in parts)]),
        fields_touched=tuple(sorted(field.id for field in opened.manifest.schema.walk())),
        affected=deleted.affected,
        inserted_rows=None if keys is None else keys.message(),
        unfiltered_keys=keys is not None and keys.lack_filter,
    )
    properties = job.recording(**counts)
    return commit_operation(opened, operation, properties=properties, once=job.once), None


def _inserted_keys(parts: Sequence[MergedRows]) -> InsertedKeys | None:
    """All inserted keys; ``None`` if there is no primary key."""
    found = [part.keys for part in parts if part.keys is not None]
    for keys in found[1:]:
        found[0].add_all(keys)
    return found[0] if found else None


def _check_types(opened: OpenedVersion, frame: DataFrame, clauses: Sequence[RowClause]) -> None:
    """Refuse values that can never be stored in their column."""
    stored = stored_types(opened.manifest.schema)
    sent = spark_arrow_schema(frame.schema)
    for clause in clauses:
        named = pa.schema([stored.field(name) for name in clause.columns])
        refuse_unassignable(clause.fields(sent), named, where=opened.uri)


def _describe_row(opened: OpenedVersion, address: int) -> str:
    """The row at an address in words: its first columns."""
    names = opened.manifest.schema.names[:3]
    found = find_rows(opened.snapshot, "addresses", [address])
    view = opened.views.take(tuple(names))
    (row,) = python_rows(take_physical(view, found.fragment, found.row))
    values = ", ".join(f"{name} = {value!r:.60}" for name, value in row.items())
    return f"with {values}"
