"""The source of a merge: rows that match the schema of the dataset, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from glaive.arrow.chunked import empty_table, join_batches
from glaive.arrow.coalesce import BATCH_BYTES, coalesced
from glaive.arrow.views import cut_views
from glaive.dataset.merging.clauses import MergeClauses
from glaive.dataset.merging.spilled_rows import SpilledRows
from glaive.dataset.writing.conform import conform, match_schema
from glaive.dataset.writing.source import Rows, read_source
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.expr.names import check_column_texts
from glaive.format.fields import LanceSchema

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["MergeSource", "check_source", "read_rows"]

HELD_SHARE: Final = 2
"""The part of the memory limit for rows of the source; as much is for their keys."""


class MergeSource:
    """The rows of a source, which can be read several times. A context manager: closes itself.

    Parameters
    ----------
    rows
        The rows, with columns of the dataset's types, in any order.
    limit
        Bytes of memory that the merge may hold: ``memory_limit``.
    spilled
        The file of which ``rows`` are views, if they are on disk.
    """

    __slots__ = ("_spilled", "limit", "rows")

    def __init__(self, rows: pa.Table, limit: int, spilled: SpilledRows | None = None) -> None:
        self.rows, self.limit, self._spilled = rows, limit, spilled

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rows = empty_table(self.rows.schema)
        if self._spilled is not None:
            self._spilled.close()

    @property
    def on_disk(self) -> bool:
        """Whether the rows exceeded the limit."""
        return self._spilled is not None

    def let_go(self) -> None:
        """Take rows that are on disk out of memory, until they are read again."""
        if self._spilled is not None:
            self._spilled.let_go()


def read_rows(
    data: object,
    schema: pa.Schema | None,
    dataset: OpenedVersion,
    clauses: MergeClauses,
    limit: int,
) -> MergeSource:
    """Read the source of a merge; beyond the limit it goes to a temporary file.

    Rows that the caller holds in one table are used where they are.

    Raises
    ------
    OptionError, ColumnNotFoundError, SchemaError
        As for :func:`check_source`; or ``data`` is no source of rows.
    StoreError
        The rows could not be written to a temporary file.
    """
    given, rows = read_source(data, schema)
    wanted = check_source(dataset.manifest.schema, given, clauses, where=dataset.uri).to_arrow()
    first = list(_up_to(rows, 2))
    same = all(given.field(field.name).type.equals(field.type) for field in wanted)
    if len(first) < 2 and same:
        return MergeSource(_in_place(first, wanted), limit)
    size = max(1, min(BATCH_BYTES, limit // 16))
    batches = coalesced(_conformed(chain(first, rows), wanted, size), size)
    return _held(batches, wanted, limit)


def _in_place(parts: list[Rows], wanted: pa.Schema) -> pa.Table:
    """Rows that are in memory already; small ones as one chunk, which is faster."""
    if not parts:
        return empty_table(wanted)
    table = pa.Table.from_arrays([parts[0].column(name) for name in wanted.names], schema=wanted)
    if table.nbytes <= BATCH_BYTES:
        return pa.Table.from_batches(join_batches(table), wanted)
    return table


def _up_to(rows: Iterator[Rows], count: int) -> Iterator[Rows]:
    for _, part in zip(range(count), rows, strict=False):
        yield part


def _conformed(parts: Iterable[Rows], wanted: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    """The rows with columns as in the dataset; large parts are cut, as a cast may copy them."""
    for part in chain.from_iterable(map(cut_views, parts)):
        step = max(1, most * part.num_rows // max(1, part.nbytes))
        for start in range(0, part.num_rows, step):
            fitted = conform(part.slice(start, step), wanted)
            yield from fitted.to_batches() if isinstance(fitted, pa.Table) else [fitted]


def _held(batches: Iterator[pa.RecordBatch], schema: pa.Schema, limit: int) -> MergeSource:
    """The rows in memory, or on disk if they are too many."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > limit // HELD_SHARE:
            break
    else:
        return MergeSource(pa.Table.from_batches(held, schema), limit)
    spilled = SpilledRows(schema)
    try:
        while held:
            spilled.write(held.pop(0))
        pa.default_memory_pool().release_unused()
        for batch in batches:
            spilled.write(batch)
        return MergeSource(spilled.finish(), limit, spilled)
    except BaseException:
        spilled.close()
        raise


def check_source(
    schema: LanceSchema, source: pa.Schema, clauses: MergeClauses, *, where: str
) -> LanceSchema:
    """The columns of the dataset that the source has.

    Raises
    ------
    OptionError
        There is no clause.
    FilterError
        A text of a condition is the name of a column.
    ColumnNotFoundError, SchemaError
        The source lacks a key, or does not match the schema.
    """
    if clauses.does_nothing:
        raise OptionError(
            "The merge insert job is not configured to change the data in any way: the merge has "
            "no clauses: add some, such as when_matched_update_all() and "
            "when_not_matched_insert_all()"
        )
    check_column_texts(schema, clauses.by_source_condition, clauses.update_condition)
    for name in clauses.on:
        if name not in source.names:
            raise ColumnNotFoundError.among(name, source.names, where="the source of the merge")
    unknown = [name for name in source.names if name not in schema.by_name]
    if unknown:
        raise SchemaError(
            "Append with different schema: fields did not match: the source has columns that "
            f"{where} does not have: {', '.join(unknown)}. "
            f"Columns of the dataset: {', '.join(schema.names)}"
        )
    given = set(source.names)
    present = LanceSchema(
        tuple(field for field in schema.fields if field.name in given), schema.metadata
    )
    if clauses.insert:
        missing = [
            field.name for field in schema.fields if field.name not in given and not field.nullable
        ]
        if missing:
            raise SchemaError(
                f"the source lacks non-nullable columns: {', '.join(missing)}; rows without them "
                "cannot be inserted"
            )
    return match_schema(source, present, where=where)
