"""The source of a merge: rows in memory that match the schema of the dataset."""

from __future__ import annotations

import pyarrow as pa

from glaive.dataset.merging.clauses import MergeClauses
from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.source import read_source
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.format.fields import LanceSchema

__all__ = ["check_source", "read_rows"]


def read_rows(data: object, schema: pa.Schema | None) -> pa.Table:
    """The source of a merge, in memory."""
    source_schema, rows = read_source(data, schema)
    tables = [part if isinstance(part, pa.Table) else pa.table(part) for part in rows]
    return pa.concat_tables(tables) if tables else source_schema.empty_table()


def check_source(
    schema: LanceSchema, source: pa.Schema, clauses: MergeClauses, *, where: str
) -> LanceSchema:
    """The columns of the dataset that the source has.

    Raises
    ------
    OptionError
        There is no clause.
    ColumnNotFoundError, SchemaError
        The source lacks a key, or does not match the schema.
    """
    if clauses.does_nothing:
        raise OptionError(
            "the merge has no clauses: add some, such as when_matched_update_all() and "
            "when_not_matched_insert_all()"
        )
    for name in clauses.on:
        if name not in source.names:
            raise ColumnNotFoundError.among(name, source.names, where="the source of the merge")
    unknown = [name for name in source.names if name not in schema.names]
    if unknown:
        raise SchemaError(
            f"the source has columns that {where} does not have: {', '.join(unknown)}. "
            f"Columns of the dataset: {', '.join(schema.names)}"
        )
    present = LanceSchema(
        tuple(field for field in schema.fields if field.name in source.names), schema.metadata
    )
    if clauses.insert:
        missing = [
            field.name
            for field in schema.fields
            if field.name not in source.names and not field.nullable
        ]
        if missing:
            raise SchemaError(
                f"the source lacks non-nullable columns: {', '.join(missing)}; rows without them "
                "cannot be inserted"
            )
    return match_schema(source, present, where=where)
