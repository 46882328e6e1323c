"""JSON lines: an object in each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.arrow.nesting import MAX_NESTING
from glaive.errors import FormatError, SchemaError
from glaive.ingestion.formats.json_cells import MAX_CELLS, columns_of, refuse_many_cells
from glaive.ingestion.formats.json_nesting import refuse_deep
from glaive.ingestion.formats.json_nulls import all_nulls, without_first_null
from glaive.ingestion.formats.lists import vectors_checked
from glaive.ingestion.formats.options import known_options, option
from glaive.ingestion.formats.protocol import Piece, Rows, SourceFormat
from glaive.ingestion.formats.ranges import byte_pieces
from glaive.ingestion.records import Block, first_block, parse_block, parse_blocks, read_blocks
from glaive.ingestion.rejects import Rejects
from glaive.ingestion.sources import SourceFile
from glaive.memory import as_buffer

__all__ = ["Json"]

_SAMPLE_BYTES = 4 << 20
_MOST_BAD = 1_000
"""Records of a sample that are none; those behind them are not looked at."""

_AT_ONCE = 64
"""Parts of a sample whose columns are joined at once: where types differ, each record is a part."""

_MOST_PARTS = 4
"""Of :data:`MAX_CELLS` each, in which the records of a sample are parsed for types."""


class Json(SourceFormat):
    """JSON lines.

    Options: ``ignore_unknown`` (False: a member that no column has is an error), ``infer_all``
    (False: types come from the first 4 MiB of each file, not from all of it).
    """

    name = "json"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")
    typed = False
    named = False

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ("ignore_unknown", "infer_all"))
        self._ignore = option(options, "ignore_unknown", False)
        self._infer_all = option(options, "infer_all", False)

    def schema(self, file: SourceFile) -> pa.Schema:
        """Members and types of the first 4 MiB, or of the whole file."""
        blocks = read_blocks(file) if self._infer_all else [first_block(file, _SAMPLE_BYTES)]
        schemas: list[pa.Schema] = []
        reason = " is empty"
        for block in blocks:
            rejects = _FewRejects(keep=True)
            schemas += _schema_of(file, block, rejects)
            reason = rejects.first or reason
        if not schemas:
            raise FormatError(
                f"{file.uri}{reason}: it has no record to infer types from, of at most "
                f"{MAX_NESTING} levels and {MAX_CELLS:,} values"
            )
        schema = _unified(file, schemas)
        return pa.schema(
            [
                pa.field(field.name, pa.string() if pa.types.is_null(field.type) else field.type)
                for field in schema
            ]
        )

    def check(self, schema: pa.Schema) -> None:
        """Refuse types that JSON cannot be converted to."""
        for field in schema:
            try:
                _parse(pa.py_buffer(b"{}\n"), pa.schema([_parsed(field)]), "ignore")
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
                raise SchemaError(
                    f"column {field.name}: JSON cannot be read as {field.type}. Convert the files "
                    "to Parquet, or read the column with another type"
                ) from error

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Ranges of bytes; compressed files stay whole."""
        return byte_pieces(file, target_bytes, whole=False)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Tables of about 16 MiB of text."""
        parsed = pa.schema([_parsed(field) for field in schema])
        unexpected = "ignore" if self._ignore else "error"
        columns = columns_of(parsed)

        def parse(data: pa.Buffer) -> pa.Table:
            _refuse_other_encodings(data)
            refuse_many_cells(data, columns)
            return vectors_checked(_parse(data, parsed, unexpected), schema)

        yield from parse_blocks(
            piece.file, parse, rejects, piece.start, piece.stop, aligned=not piece.start
        )


class _EnoughError(Exception):
    """So many records of a sample are none that the others do not count."""


class _FewRejects(Rejects):
    """Records that are none, up to a number: each costs a call of the parser."""

    first = ""
    """The line of the first one, and what is wrong with it."""

    def add(self, file: SourceFile, line: int | None, reason: str, record: bytes | None) -> None:
        """Count a record."""
        self.first = self.first or f", line {line}: {reason}"
        super().add(file, line, reason, None)
        if len(self) >= _MOST_BAD:
            raise _EnoughError


def _schema_of(file: SourceFile, block: Block, rejects: _FewRejects) -> list[pa.Schema]:
    """Members and types of a block, if it has any; lines that are no JSON are named when read.

    Where many are none, the records before these count.

    Raises
    ------
    FormatError
        Types of records do not go together, which is said before the others are looked at.
    """
    schemas: list[pa.Schema] = []
    rows = 0
    with suppress(_EnoughError):
        for part in parse_block(file, block, _infer, rejects):
            schemas.append(part.schema)
            rows += part.num_rows
            if len(schemas) == _AT_ONCE:
                schemas = [_unified(file, schemas)]
    if not schemas:
        return []
    schema = _unified(file, schemas)
    columns, samples = columns_of(schema), max(1, block.data.size // _SAMPLE_BYTES)
    if rows * columns > _MOST_PARTS * MAX_CELLS * samples:
        raise FormatError(
            f"{file.uri}: {rows:,} records with {columns:,} names are too many values of a table. "
            "Make lists of names and values of members that other records do not have, or pass "
            "schema= to name those to be read"
        )
    return [schema]


def _unified(file: SourceFile, schemas: list[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise FormatError(
            f"{file.uri}: types cannot be inferred: {error}. Pass schema= to name them"
        ) from error


def _infer(data: pa.Buffer) -> pa.Table:
    refuse_deep(memoryview(data))
    refuse_many_cells(data)
    return _parse(data, None, "infer")


def _refuse_other_encodings(data: pa.Buffer) -> None:
    """Refuse bytes that are not UTF-8, which Arrow's parser hands on.

    Raises
    ------
    pyarrow.ArrowInvalid
        There are some.
    """
    ends: Any = as_buffer(np.array([0, data.size], np.int64))
    text: Any = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, data])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid("invalid UTF8 data. Convert the file to UTF-8") from None


def _parse(data: pa.Buffer, schema: pa.Schema | None, unexpected: str) -> pa.Table:
    json: Any = import_module("pyarrow.json")
    data = without_first_null(data)
    table: pa.Table = json.read_json(
        pa.BufferReader(data),
        read_options=json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior=unexpected
        ),
    )
    return table if schema is None else all_nulls(table)  # only types are inferred


def _parsed(field: Any) -> Any:
    """The field that the parser makes, to be cast to the column's."""
    return field.with_type(_parsed_type(field.type)).with_nullable(True)


def _parsed_type(data_type: Any) -> Any:
    if pa.types.is_float16(data_type):
        return pa.float32()
    if pa.types.is_dictionary(data_type):
        return _parsed_type(data_type.value_type)
    if pa.types.is_fixed_size_list(data_type) or pa.types.is_list_view(data_type):
        return pa.list_(_parsed_type(data_type.value_type))
    if pa.types.is_list(data_type):
        return pa.list_(_parsed_type(data_type.value_type))
    if pa.types.is_large_list(data_type):
        return pa.large_list(_parsed_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([_parsed(data_type.field(i)) for i in range(data_type.num_fields)])
    return data_type
