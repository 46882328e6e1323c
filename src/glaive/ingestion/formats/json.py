"""JSON lines: an object in each line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.validation import MAX_NESTING, without_json_strings
from glaive.errors import FormatError, SchemaError
from glaive.ingestion.formats.options import byte_pieces, known_options, option, vectors_checked
from glaive.ingestion.sources import (
    Block,
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    first_block,
    parse_block,
    parse_blocks,
    read_blocks,
)
from glaive.io.mapped import refuse_holes
from glaive.memory import as_array, as_buffer
from glaive.types import Int64s, UInt8s

# --- Nulls of JSON that Arrow's parser stumbles over ------------------------------------
# It ends the process where the first record is null, and makes too few items of lists of nulls.

_FIRST: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+null")
_RECORD: Final = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|\})[ \t\r\n]*+null")
"""At the start, or behind an object: within objects there is a comma or a colon before it."""

_EMPTY: Final = b"{}  "


def without_first_null(data: pa.Buffer) -> pa.Buffer:
    """The same records, of which a first one that is null has become an object without members.

    Both are a row of nulls, as records that are null elsewhere.
    """
    found = _FIRST.match(memoryview(data))
    if found is None:
        return data
    text, end = data.to_pybytes(), found.end()
    return pa.py_buffer(text[: end - len(_EMPTY)] + _EMPTY + text[end:])


def refuse_null_records(lines: bytes) -> None:
    """Refuse lines of a file that Arrow cuts into blocks, any of which may come first.

    Raises
    ------
    pyarrow.ArrowInvalid
        A record is null.
    """
    if _RECORD.search(lines) and _RECORD.search(without_json_strings(lines)):
        raise pa.ArrowInvalid("a record is null, not an object. Remove it, or write {}")


def all_nulls(table: pa.Table) -> pa.Table:
    """What the parser made, with as many items of lists of nulls as these lists have."""
    if not _may_lack_nulls(table.schema):
        return table
    return pa.Table.from_batches(map(with_all_nulls, table.to_batches()), table.schema)


def with_all_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same of a batch."""
    if not _may_lack_nulls(batch.schema):
        return batch
    columns: Any = [_with_all_nulls(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _may_lack_nulls(schema: pa.Schema) -> bool:
    return any(": null>" in f"{kind}" for kind in schema.types)


def _with_all_nulls(values: Any) -> Any:
    kind = values.type
    if pa.types.is_struct(kind):
        own, children = 1, [values.field(at) for at in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        own, children = 2, [values.values]
        if pa.types.is_null(kind.value_type):
            children = [pa.nulls(values.offsets[-1].as_py())]
    else:
        return values
    made = [_with_all_nulls(child) for child in children]
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:own], children=made)


# --- How many values a table of JSON lines would have, before Arrow makes it ------------
# Each object has a value, or a null, for each name that any other has: objects with a name of
# their own take memory by the square of their number. 95 KB of them took 1 GB.

MAX_CELLS: Final = 1 << 26
"""Values, nulls included, of the records that are parsed at a time: a gigabyte, or less."""

_CELLS_PER_BYTE: Final = 4
"""Of a line that is longer than others: members of lists are counted with all names, too."""

_WINDOW: Final = 1 << 20
"""Bytes that are looked at together: the numbers of their marks take some 40 times as much."""

_QUOTE, _COLON, _BACKSLASH, _SPACE = b'":\\ '
_OPEN: Final = ord("{")


def refuse_many_cells(text: pa.Buffer, columns: int | None = None) -> None:
    """Refuse lines of JSON of which Arrow would make too many values together.

    Parameters
    ----------
    columns
        Those of the table, with the members of others; None: as the names of the lines.

    Raises
    ------
    pyarrow.ArrowInvalid
        There are more values than :data:`MAX_CELLS`, and than the bytes of a long line explain.
    """
    data = as_array(text)
    objects = max(int(np.count_nonzero(data == _OPEN)), 1)
    most = max(MAX_CELLS, _CELLS_PER_BYTE * len(data)) // objects
    if columns is None:
        columns = int(np.count_nonzero(data == _COLON))
        if columns > most:
            columns = count_names(text, most)
    if columns > most:
        raise pa.ArrowInvalid(
            f"{objects:,} objects with {columns:,} names or more are too many values of a table. "
            "Make lists of names and values of members that other objects do not have"
        )


def count_names(text: pa.Buffer, most: int) -> int:
    """Distinct names of members, or a few more; counted until there are more than ``most``."""
    data = as_array(text)
    seen: set[bytes] = set()
    for start in range(0, len(data), _WINDOW):
        seen.update(_names(data[start : start + _WINDOW]))
        if len(seen) > most:
            break
    return len(seen)


def columns_of(kind: Any) -> int:
    """Columns of a type or a schema: itself, and its members at any depth."""
    fields = kind if isinstance(kind, pa.Schema) else map(kind.field, range(kind.num_fields))
    return 1 + sum(columns_of(field.type) for field in fields)


def _names(data: UInt8s) -> list[bytes]:
    """What stands in quotation marks before a colon, each once."""
    marks = _quotes(data)
    last = len(data) - 1
    behind = np.minimum(marks + 1, last)
    for _ in range(2):
        behind = np.minimum(behind + (data[behind] <= _SPACE), last)
    # What follows after more white space may be a colon.
    ends = np.flatnonzero((data[behind] == _COLON) | (data[behind] <= _SPACE))
    ends = ends[ends > 0]
    offsets = np.empty(2 * len(ends) + 1, np.int32)
    offsets[:-1:2], offsets[1::2] = marks[ends - 1] + 1, marks[ends]
    offsets[-1] = offsets[-2] if len(ends) else 0
    buffers: Any = [None, as_buffer(offsets), as_buffer(data)]
    parts: Any = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    names: Any = parts.take(pa.array(np.arange(0, len(parts), 2)))
    found: list[bytes] = pc.unique(names).to_pylist()
    return found


def _quotes(data: UInt8s) -> Int64s:
    """Places of quotation marks but those within texts, before which backslashes are odd."""
    marks = np.flatnonzero(data == _QUOTE)
    behind_one = np.flatnonzero(data[np.maximum(marks - 1, 0)] == _BACKSLASH)
    if not len(behind_one):
        return marks
    others = np.flatnonzero(data != _BACKSLASH)
    before = np.searchsorted(others, marks[behind_one]) - 1
    from_start = np.where(before < 0, -1, others[np.maximum(before, 0)])
    odd = (marks[behind_one] - 1 - from_start) % 2 == 1
    return np.delete(marks, behind_one[odd])


# --- How deeply JSON is nested, before Arrow infers types from it; files that it parses as a
# whole
#
# That recurses: 200 KB of brackets ended the process. With types that are given it does not.

_SUFFIXES: Final[dict[str, Literal["brotli", "detect", "gzip", "zstd"]]] = {
    ".brotli": "brotli",
    ".gzip": "gzip",
    ".zstd": "zstd",
}
"""Codecs that Arrow's datasets know by these suffixes, too, besides those of its streams."""

_BLOCK_BYTES: Final = 16 << 20
_PARSED_BYTES: Final = 1 << 20
"""That Arrow's datasets parse at a time. The first of these have the names of all columns."""

_LONGEST_LINE: Final = 1 << 30
"""Of a file that may be compressed, where a few bytes can stand for any number."""

"""Bytes that are counted at a time: their numbers take some 40 times as much."""

_BRACE: Final = 0x20
"""The bit that is the difference between brackets and braces."""


def refuse_deep(text: bytes | memoryview) -> None:
    """Refuse lines of JSON that are nested too deeply.

    Raises
    ------
    pyarrow.ArrowInvalid
        A line, or lines that are no JSON together, have more than
        :data:`~glaive.arrow.validation.MAX_NESTING` levels, the record included.
    """
    marks = np.frombuffer(without_json_strings(text), np.uint8)
    depth = lowest = 0
    for start in range(0, len(marks), _WINDOW):
        window = marks[start : start + _WINDOW] | _BRACE
        window = window[(window == ord("{")) | (window == ord("}"))]
        steps = np.where(window == ord("{"), 1, -1)
        # A line of closing ones alone must not make room for the next.
        depths = np.concatenate([[lowest, depth], depth + np.cumsum(steps)])
        lowest_yet = np.minimum.accumulate(depths)
        if int((depths - lowest_yet).max()) > MAX_NESTING:
            raise pa.ArrowInvalid(f"JSON is nested deeper than {MAX_NESTING} levels. Flatten it")
        depth, lowest = int(depths[-1]), int(lowest_yet[-1])


def open_lines(path: str) -> pa.NativeFile:
    """A file as Arrow's datasets read it: of a compressed one, what it holds."""
    return pa.input_stream(path, compression=_SUFFIXES.get(Path(path).suffix, "detect"))


def check_files(paths: Iterable[str], columns: int = 0) -> None:
    """Check files, before a dataset of Arrow parses them; of compressed ones, what they hold.

    Parameters
    ----------
    columns
        How many are known to be in the result.

    Raises
    ------
    pyarrow.ArrowInvalid
        A file is nested too deeply, has a line of more than 1 GiB or a record that is null, stands
        for too many values, or cannot be decompressed.
    CorruptFileError
        It has large holes, which are no text.
    """
    for path in paths:
        try:
            columns = _check_file(path, columns)
        except (OSError, pa.ArrowException) as error:
            if path in str(error):
                raise
            raise pa.ArrowInvalid(f"{path}: {error}") from None


def _check_file(path: str, columns: int) -> int:
    """Check a file, given the columns of those before it; returns how many there are then."""
    first = True
    with open_lines(path) as source:
        if isinstance(source, pa.OSFile):
            refuse_holes(source.fileno(), source.size(), path)
        rest = b""
        while True:
            # More at a time of a long line, which would be copied again with each part.
            data = source.read(max(_BLOCK_BYTES, min(len(rest), 16 * _BLOCK_BYTES)))
            lines, _, rest = (rest + data).rpartition(b"\n") if data else (rest, b"", b"")
            refuse_deep(lines)
            refuse_null_records(lines)
            for start in range(0, len(lines), _PARSED_BYTES):
                part = pa.py_buffer(lines).slice(start, min(_PARSED_BYTES, len(lines) - start))
                if first:
                    refuse_many_cells(part)
                    # Not the colons, of which long texts have any number.
                    columns, first = max(columns, count_names(part, _PARSED_BYTES)), False
                refuse_many_cells(part, columns)
            if not data:
                return columns
            if len(rest) > _LONGEST_LINE:
                raise pa.ArrowInvalid(f"a line has more than {_LONGEST_LINE:,} bytes")


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
