"""Replace the rows that match a filter: new rows in, old ones out, in one version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from glaive.dataset.rows.selected_rows import DeletedRows, DeleteTask
from glaive.errors import SchemaError
from glaive.expr.filters import bind_filter
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.transaction import Transaction
from glaive.table.commit import commit_transaction
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from glaive.dataset.tasks import TaskRunner
    from glaive.dataset.version import OpenedVersion
    from glaive.dataset.writing.plan import WritePlan

__all__ = ["commit_replacement", "only_matching"]


def only_matching(
    rows: Iterable[pa.RecordBatch], predicate: str, schema: LanceSchema
) -> Iterator[pa.RecordBatch]:
    """Pass rows on, and refuse those that do not match.

    Raises
    ------
    SchemaError
        A row would be outside of what is replaced, so that the next write would not replace it.
    """
    bound = bind_filter(predicate, schema)
    for batch in rows:
        mask = bound.mask(batch)
        matching = mask.true_count
        if matching != batch.num_rows:
            raise SchemaError(
                f"replace_where: {batch.num_rows - matching:,} of {batch.num_rows:,} rows of a "
                f"batch do not match {predicate!r}. Filter them out, or widen the filter"
            )
        yield batch


def commit_replacement(
    opened: OpenedVersion,
    plan: WritePlan,
    predicate: str,
    fragments: Iterable[Fragment],
    *,
    once: str,
    runner: TaskRunner,
) -> None:
    """Commit fragments in place of the rows that match in the version planned for.

    Rows that other writers appended since stay.

    Parameters
    ----------
    opened
        The version planned for.
    once
        As for :func:`glaive.dataset.writing.commit.commit_plan`.
    runner
        Runs the tasks that look for the rows; each reads the columns of the filter, and writes one
        small file for each fragment that keeps some of its rows.

    Raises
    ------
    CommitConflictError
        Another writer changed rows that are replaced; nothing was committed.
    """
    tasks = [DeleteTask(part, predicate) for part in runner.parts(opened)]
    deleted = DeletedRows.joined(runner.run(opened, tasks))
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=FragmentList.of(fragments),
        affected=deleted.affected,
    )
    transaction = Transaction(
        read_version=opened.manifest.version,
        operation=operation,
        properties=dict(plan.options.transaction_properties),
    )
    commit_transaction(plan.store, transaction, base=opened.manifest, once=once)
