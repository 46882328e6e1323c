"""Replace the rows that match a filter: new rows in, old ones out, in one version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from glaive.dataset.rows.selected_rows import delete_rows, rows_where
from glaive.dataset.version import OpenedVersion
from glaive.errors import SchemaError
from glaive.expr.filters import bind_filter
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.format.transaction import Transaction
from glaive.table.commit import commit_transaction
from glaive.table.load import open_version
from glaive.table.operations.update import Update

if TYPE_CHECKING:
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
    plan: WritePlan, predicate: str, fragments: Iterable[Fragment], *, once: str
) -> None:
    """Commit fragments in place of the rows that match in the version planned for.

    Rows that other writers appended since stay. ``once`` is as for
    :func:`glaive.dataset.writing.commit.commit_plan`.

    Raises
    ------
    CommitConflictError
        Another writer changed rows that are replaced; nothing was committed.

    Notes
    -----
    Reads the columns of the filter in this process; writes one small file for each fragment that
    keeps some of its rows.
    """
    manifest = open_version(plan.store, plan.read_version)
    dataset = OpenedVersion.of(plan.store, manifest, uri=plan.store.uri)
    deleted = delete_rows(dataset, rows_where(dataset, predicate))
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=tuple(fragments),
        affected=deleted.affected,
    )
    transaction = Transaction(
        read_version=manifest.version,
        operation=operation,
        properties=dict(plan.options.transaction_properties),
    )
    commit_transaction(plan.store, transaction, base=manifest, once=once)
