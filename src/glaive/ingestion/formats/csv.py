"""CSV and other delimited text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.errors import FormatError, OptionError, SchemaError
from glaive.ingestion.formats.options import known_options, option
from glaive.ingestion.formats.protocol import Piece, Rows, SourceFormat
from glaive.ingestion.formats.ranges import byte_pieces
from glaive.ingestion.records import first_block, parse_blocks, record_starts
from glaive.ingestion.rejects import Rejects
from glaive.ingestion.sources import SourceFile

__all__ = ["Csv"]

_OPTIONS = ("sep", "header", "quote", "escape", "null", "encoding", "multiline", "timestamp_format")
_SAMPLE_BYTES = 4 << 20
_SLICES = 64
_AGREEING = 0.8
"""Share of the slices of a sample that agree on a type."""
_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?")
_ROW = re.compile(r"Row #\d+: ")
_ENCODING = (
    "The encoding of the files is named by reader_options, such as {'encoding': 'cp1252'}; files "
    "in UTF-16 are to be converted to UTF-8"
)


class Csv(SourceFormat):
    """CSV: fields behind each other in lines.

    Options: ``sep`` (``,``; a tab for ``.tsv``), ``header`` (True: the first line has the names;
    else ``f0``, ``f1`` …), ``quote`` (``"``), ``escape`` (none), ``null`` (a text that means null,
    beside the empty one), ``encoding`` (UTF-8), ``multiline`` (False: values have no line ends,
    and large files are read in pieces), ``timestamp_format`` (ISO 8601).
    """

    name = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    typed = False

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, _OPTIONS)
        self._sep = option(options, "sep", "")
        self._header = option(options, "header", True)
        self._quote = option(options, "quote", '"')
        self._escape = option(options, "escape", "")
        self._null = option(options, "null", "")
        self._encoding = option(options, "encoding", "utf-8")
        self._multiline = option(options, "multiline", False)
        self._timestamp_format = option(options, "timestamp_format", "")
        for name, character in (("sep", self._sep), ("escape", self._escape)):
            if len(character) > 1:
                raise OptionError(f"{name}: expected one character, found {character!r}")
        if len(self._quote) > 1 or (self._multiline and self._quote != '"'):
            raise OptionError(f"quote: expected one character, found {self._quote!r}")
        try:
            line_end = "\n".encode(self._encoding)
        except LookupError:
            line_end = b""
        if line_end != b"\n":
            raise OptionError(
                f"encoding: {self._encoding!r} is unknown or has line ends of several bytes; "
                "convert the files to UTF-8"
            )

    def schema(self, file: SourceFile) -> pa.Schema:
        """Names of the first line, and types of the first 4 MiB.

        These are cut into slices. A type that most slices agree on is that of the column, so that
        a bad value is an error when it is read, and does not turn its column into text.
        """
        names, sample, _ = self._sample(file)
        starts = record_starts(sample, quoted=self._multiline)
        edges = starts[np.linspace(0, len(starts) - 1, _SLICES + 1).astype(np.int64)]
        inferred = []
        for start, stop in pairwise(np.unique(edges).tolist()):
            part = sample.slice(start, stop - start)
            # Records that cannot be decoded are bad ones when they are read, and tell no types.
            with suppress(UnicodeDecodeError):
                inferred.append(self._parse(part, names, None, file).schema)
        return pa.schema(
            [
                pa.field(name, _common_type([one.field(i).type for one in inferred]))
                for i, name in enumerate(names)
            ]
        )

    def check(self, schema: pa.Schema) -> None:
        """Refuse types that text cannot be converted to."""
        csv: Any = import_module("pyarrow.csv")

        for field in {field.type: field for field in schema}.values():
            try:
                options = csv.ConvertOptions(column_types={"x": _parsed(field.type)})
                csv.read_csv(pa.BufferReader(b"x\n\n"), convert_options=options)
            except pa.ArrowNotImplementedError as error:
                raise SchemaError(
                    f"column {field.name}: CSV cannot be read as {field.type}. Read it as text, "
                    "or convert the files to Parquet or JSON"
                ) from error

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Ranges of bytes; compressed files and those with line ends in values stay whole."""
        return byte_pieces(file, target_bytes, whole=self._multiline)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Tables of about 16 MiB of text."""
        file = piece.file
        names, _, header_size = self._sample(file)
        types = {field.name: _parsed(field.type) for field in schema if field.name in names}

        def parse(data: pa.Buffer) -> pa.Table:
            try:
                return self._parse(data, names, types, file)
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(_reason(error, names)) from None
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid(f"{error}. {_ENCODING}") from None

        yield from parse_blocks(
            file,
            parse,
            rejects,
            piece.start or header_size,
            piece.stop,
            aligned=not piece.start,
            quoted=self._multiline,
        )

    def _sample(self, file: SourceFile) -> tuple[list[str], pa.Buffer, int]:
        """Names of the columns, the first records, and bytes of the line with the names."""
        csv: Any = import_module("pyarrow.csv")

        sample = first_block(file, _SAMPLE_BYTES, quoted=self._multiline).data
        if not sample.size:
            raise FormatError(f"{file.uri} is empty: it has no line with the names of columns")
        end = int(record_starts(sample, quoted=self._multiline)[1])
        read_options = csv.ReadOptions(
            autogenerate_column_names=not self._header, encoding=self._encoding, use_threads=False
        )
        try:
            first = csv.read_csv(
                pa.BufferReader(sample.slice(0, end)),
                read_options=read_options,
                parse_options=self._parse_options(file),
            )
            names = first.column_names
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            hint = f". {_ENCODING}" if isinstance(error, UnicodeDecodeError) else ""
            raise FormatError(f"{file.uri}, line 1: {error}{hint}") from error
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise FormatError(f"{file.uri}, line 1: several columns are called {repeated[0]!r}")
        header_size = end if self._header else 0
        return names, sample.slice(header_size), header_size

    def _parse_options(self, file: SourceFile, *, skip_invalid: bool = False) -> Any:
        csv: Any = import_module("pyarrow.csv")

        return csv.ParseOptions(
            delimiter=self._sep or ("\t" if file.suffix == ".tsv" else ","),
            quote_char=self._quote or False,
            escape_char=self._escape or False,
            newlines_in_values=self._multiline,
            invalid_row_handler=(lambda _row: "skip") if skip_invalid else None,
        )

    def _parse(
        self, data: pa.Buffer, names: list[str], types: dict[str, Any] | None, file: SourceFile
    ) -> pa.Table:
        """Parse records; without types, they are inferred."""
        csv: Any = import_module("pyarrow.csv")

        nulls = ["", self._null] if types is not None else ["", self._null, "NA", "NULL", "null"]
        if not data.size:
            return pa.table({name: pa.nulls(0, (types or {}).get(name)) for name in types or names})
        table: pa.Table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                column_names=names,
                use_threads=False,
                block_size=data.size + 1,
                encoding=self._encoding,
            ),
            parse_options=self._parse_options(file, skip_invalid=types is None),
            convert_options=csv.ConvertOptions(
                column_types=types,
                include_columns=None if types is None else list(types),
                null_values=list(dict.fromkeys(nulls)),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                timestamp_parsers=[self._timestamp_format] if self._timestamp_format else None,
            ),
        )
        return table


def _common_type(types: list[Any]) -> Any:
    """The type that slices of a column agree on, but for a few.

    Texts of another encoding than the file's are inferred as binary: they are wrong values.
    """
    known = [data_type for data_type in types if not pa.types.is_null(data_type)]
    texts = (pa.types.is_string, pa.types.is_binary)
    others = [data_type for data_type in known if not any(test(data_type) for test in texts)]
    if len(others) < max(1, _AGREEING * len(known)):
        return pa.string()
    try:
        fields = [pa.schema([pa.field("x", data_type)]) for data_type in others]
        joined = pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()
    if pa.types.is_timestamp(joined) and joined.unit == "s":
        return pa.timestamp("us", joined.tz)
    return joined


def _parsed(data_type: Any) -> Any:
    """The type that the parser makes, to be cast to that of the column."""
    if pa.types.is_float16(data_type):
        return pa.float32()
    if data_type == pa.string_view():
        return pa.large_string()
    if pa.types.is_dictionary(data_type):
        return _parsed(data_type.value_type)
    return data_type


def _reason(error: Exception, names: list[str]) -> str:
    """The parser's message with the name of the column, and without its own counts of rows."""
    found = _COLUMN.match(str(error))
    if found is None:
        return _ROW.sub("", str(error))
    number = int(found[1])
    name = names[number] if number < len(names) else str(number)
    reason = str(error)[found.end() :].removeprefix("CSV conversion error to ")
    return f"column {name}: {reason}{f'. {_ENCODING}' if 'invalid UTF8' in reason else ''}"
