"""CSV and other delimited text."""

from __future__ import annotations

import re
from codecs import lookup
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.dataclass import dataclass
from glaive.errors import FilterError, FormatError, OptionError, SchemaError
from glaive.expr.casts import cast
from glaive.ingestion.formats.options import (
    byte_pieces,
    holds_numbers,
    known_options,
    numbers_of,
    option,
    vectors_checked,
)
from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    first_block,
    parse_blocks,
    record_starts,
    unescaped,
)
from glaive.memory import as_array
from glaive.types import Int64s, UInt8s

# --- Which lines of CSV are records: values in quotation marks may go on in the next line

GOES_ON = (
    "A value in quotation marks that goes on in the next line is read with reader_options="
    "{'multiline': True}"
)
_INGEST = (
    "A value in quotation marks that goes on in the next line is read by glaive ingest with "
    "--option multiline=true"
)
_NOT_CLOSED = "a quotation mark is not closed"
_LINE_END, _RETURN = b"\n\r"
_BEGINNING = 4 << 20
_ANOTHER = b"\nx\n"
"""A record, and nothing but the end of a value where a quotation mark is open."""


@dataclass(frozen=True, slots=True)
class Quotes:
    """How the parser finds the ends of records.

    Parameters
    ----------
    sep, quote, escape
        Characters as of the options; none where empty.
    """

    sep: str
    quote: str
    escape: str

    def go_on(self, data: pa.Buffer) -> bool:
        """Whether values go on in the next line, and end in one of the lines.

        A mark that is never closed, as in ``7,"x``, tells nothing: it would make one value of all
        lines behind it.
        """
        marks = unescaped(as_array(data), self.quote, self.escape)
        starts = record_starts(data, quoted=False, escape=self.escape)
        if not np.any(np.searchsorted(marks, starts) % 2):
            return False  # where a value ends a line, marks before this line end are odd
        lines = _lines(data, starts)
        records = self._records(data)
        if records > len(lines):  # a carriage return alone ends some
            lines = _ended_by_any(data)
        if records >= len(lines):
            return False
        if not self._is_open(data, records):
            return True
        before = data.slice(0, int(lines[records - 1]))
        return self._records(before) < records - 1

    def check_closed(self, data: pa.Buffer, rows: int, *, quoted: bool) -> None:
        """Check that no value took in lines that are records of their own.

        The parser takes the end of its data for the end of a value that is open.

        Parameters
        ----------
        rows
            That were parsed.
        quoted
            Values may go on in the next line.

        Raises
        ------
        pyarrow.ArrowInvalid
            A mark is not closed, where ``quoted`` in the last record.
        """
        if not self.quote:
            return
        marks = as_array(data) == ord(self.quote)
        if not marks.any():
            return
        if quoted:
            records = len(_lines(data, record_starts(data, quoted=True, escape=self.escape)))
            in_step = records == rows and self._are_pairs(as_array(data))
            if not in_step and self._is_open(data, self._records(data)):
                raise pa.ArrowInvalid(_NOT_CLOSED)
            return
        starts = record_starts(data, quoted=False, escape=self.escape)
        last = data.slice(int(starts[-2]))
        shorter = rows < len(starts) - 1 and rows < len(_lines(data, starts))
        ends_open = marks[int(starts[-2]) :].any() and self._is_open(last, self._records(last))
        if shorter or ends_open:
            raise pa.ArrowInvalid(f"{_NOT_CLOSED} in its line. {GOES_ON}")

    def check_file(self, file: SourceFile, *, quoted: bool) -> None:
        """Check that no value of a file takes in lines that are records of their own.

        For readers that do not tell how many records a part of the file has.

        Parameters
        ----------
        quoted
            Values may go on in the next line.

        Raises
        ------
        FormatError
            A mark is not closed, where ``quoted`` in the last record; names the line.
        """

        def check(data: pa.Buffer) -> pa.Table:
            starts = record_starts(data, quoted=False, escape=self.escape)
            marks = unescaped(as_array(data), self.quote, self.escape)
            in_lines = not np.any(np.searchsorted(marks, starts) % 2)
            if not (in_lines and self._are_pairs(as_array(data))):
                self.check_closed(data, self._records(data), quoted=quoted)
            return pa.table({})

        for _ in parse_blocks(file, check, _FirstFails(keep=False), quoted=quoted):
            pass

    def _are_pairs(self, values: UInt8s) -> bool:
        """Whether each mark begins or ends a value, or is one of two that stand for one.

        Marks within fields, as in ``5" pipe``, do not: one of these and one that is open are two.
        """
        marks = unescaped(values, self.quote, self.escape)
        if len(marks) % 2:
            return False
        around = np.concatenate(([_LINE_END], values, [_LINE_END]))  # at + 1 is where at was
        is_edge = np.zeros(256, np.bool_)
        is_edge[[ord(self.sep), ord(self.quote), _LINE_END, _RETURN]] = True
        begins, ends = marks[::2], marks[1::2]
        if self.escape and np.any(around[np.maximum(begins - 1, 0)] == ord(self.escape)):
            return False  # what stands before the mark may be escaped
        return bool(is_edge[around[begins]].all() and is_edge[around[ends + 2]].all())

    def _is_open(self, data: pa.Buffer, records: int) -> bool:
        """Whether the data end within a value; ``records`` are in them."""
        return self._records(pa.py_buffer(data.to_pybytes() + _ANOTHER)) == records

    def _records(self, data: pa.Buffer) -> int:
        """Records that the parser finds; those of too many or too few fields, too."""
        csv: Any = import_module("pyarrow.csv")

        if not data.size:
            return 0
        invalid: list[Any] = []

        def skip(row: Any) -> str:
            invalid.append(row)
            return "skip"

        whole = data.to_pybytes() + b"\n"
        try:
            table = csv.read_csv(
                pa.BufferReader(whole),
                read_options=csv.ReadOptions(
                    autogenerate_column_names=True,
                    use_threads=False,
                    block_size=block_size(whole),
                    encoding="latin-1",  # in which all bytes are characters
                ),
                parse_options=csv.ParseOptions(
                    delimiter=self.sep,
                    quote_char=self.quote,
                    escape_char=self.escape or False,
                    newlines_in_values=True,
                    invalid_row_handler=skip,
                ),
                convert_options=csv.ConvertOptions(
                    include_columns=["f0"], column_types={"f0": pa.binary()}
                ),
            )
        except pa.ArrowInvalid:
            return 1  # it cannot tell the columns of a first record that is open
        return int(table.num_rows) + len(invalid)


def checked_quotes(files: Iterable[SourceFile]) -> bool:
    """Whether values of one of the files go on in the next line, as their beginnings show.

    Raises
    ------
    FormatError
        A quotation mark is not closed; names file and line.
    """
    quotes, found = Quotes(",", '"', ""), False
    for file in files:
        quoted = quotes.go_on(first_block(file, _BEGINNING).data)
        quotes.check_file(file, quoted=quoted)
        found = found or quoted
    return found


class _FirstFails(Rejects):
    """Refuses the first record that is not closed."""

    def add(self, file: SourceFile, line: int | None, reason: str, record: bytes | None) -> None:
        """Raise the error."""
        raise FormatError(f"{file.uri}, line {line}: {reason.replace(GOES_ON, _INGEST)}")


def are_quoted_nulls(
    data: pa.Buffer, names: Sequence[str], types: Mapping[str, Any] | None
) -> bool:
    """Whether nulls are ``""``: in a file of one column, as the parser passes over empty lines.

    Not of texts, of which this is one. Types are none where they are inferred: there they are only
    where data has such, for others in quotation marks, such as ``"NA"``, are texts.
    """
    if len(names) != 1:
        return False
    if types is None:
        return b'""' in data.to_pybytes()
    return not any("string" in str(kind) or "binary" in str(kind) for kind in types.values())


def block_size(data: pa.Buffer | bytes) -> int:
    """A size of blocks by which the parser sees all data at once, also as UTF-8."""
    return min(3 * len(data) + 1, 2**31 - 1)


def _ended_by_any(data: pa.Buffer) -> Int64s:
    """Where lines start that are not empty, also behind carriage returns that stand alone."""
    values = as_array(data)
    ends = (values == ord("\n")) | (values == ord("\r"))
    before = np.concatenate((np.ones(1, np.bool_), ends[:-1]))
    filled: Int64s = np.flatnonzero(before & ~ends)
    return filled


def _lines(data: pa.Buffer, starts: Int64s) -> Int64s:
    """Where lines start that are not empty."""
    values = as_array(data)
    blank = values[starts[:-1]] == ord("\n")  # the last line may be of one byte without it
    returns = np.flatnonzero(np.diff(starts) == 2)
    blank[returns] = (values[starts[returns]] == ord("\r")) & (
        values[starts[returns] + 1] == ord("\n")
    )
    filled: Int64s = starts[:-1][~blank]
    return filled


_OPTIONS = (
    "sep",
    "header",
    "quote",
    "escape",
    "null",
    "decimal",
    "encoding",
    "multiline",
    "timestamp_format",
)
_SEPARATORS = ",;\t|"
"""Characters that are between fields, and hardly ever in the name of an only column."""
_SAMPLE_BYTES = 4 << 20
_SLICES = 64
_AGREEING = 0.8
"""Share of the slices of a sample that agree on a type."""
_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?")
_ROW = re.compile(r"Row #\d+: ")
_ANY_BYTES = "latin-1"
"""An encoding in which all bytes are characters, and those of ASCII the same."""
_BOM = b"\xef\xbb\xbf"
"""What a file in UTF-8 may begin with, and the parser leaves out at the start of each block."""
_ENCODING = (
    "The encoding of the files is named by reader_options, such as {'encoding': 'cp1252'}; files "
    "in UTF-16 are to be converted to UTF-8"
)


@dataclass(frozen=True, slots=True)
class _Head:
    """What the beginning of a file tells.

    Parameters
    ----------
    names
        Of the columns.
    sample
        The first records.
    size
        Bytes of the line with the names.
    quoted
        Values have line ends.
    """

    names: list[str]
    sample: pa.Buffer
    size: int
    quoted: bool


class Csv(SourceFormat):
    """CSV: fields behind each other in lines.

    Options: ``sep`` (``,``; a tab for ``.tsv``), ``header`` (True: the first line has the names;
    else ``f0``, ``f1`` …), ``quote`` (``"``), ``escape`` (none), ``null`` (a text that means null,
    beside the empty one), ``decimal`` (``.``), ``encoding`` (UTF-8), ``multiline`` (whether values
    have line ends; such files are not read in pieces. Default: as the first 4 MiB of the file
    show), ``timestamp_format`` (ISO 8601; of dates, too).
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
        self._decimal = option(options, "decimal", ".")
        self._multiline = option(options, "multiline", False) if "multiline" in options else None
        self._timestamp_format = option(options, "timestamp_format", "")
        for name in ("sep", "quote", "escape", "decimal"):
            character = getattr(self, f"_{name}")
            is_one = len(character) == 1 and character.isascii() and character not in "\r\n"
            if not is_one and (character or name == "decimal"):
                raise OptionError(f"{name}: expected one character of ASCII, found {character!r}")
        if self._multiline and self._quote != '"':
            raise OptionError(f"quote: expected one character, found {self._quote!r}")
        for name, text in (("null", self._null), ("timestamp_format", self._timestamp_format)):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise OptionError(f"{name}: {text!r} is no text: {error}") from None
        try:
            line_end = "\n".encode(self._encoding)
        except (LookupError, ValueError):
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
        head = self._head(file)
        names, sample = head.names, head.sample
        starts = record_starts(sample, quoted=head.quoted, escape=self._escape)
        edges = starts[np.linspace(0, len(starts) - 1, _SLICES + 1).astype(np.int64)]
        inferred = []
        for start, stop in pairwise(np.unique(edges).tolist()):
            part = sample.slice(start, stop - start)
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
                options = csv.ConvertOptions(column_types={"x": self._parsed(field.type)})
                csv.read_csv(pa.BufferReader(b"x\n\n"), convert_options=options)
            except pa.ArrowNotImplementedError as error:
                raise SchemaError(
                    f"column {field.name}: CSV cannot be read as {field.type}. Read it as text, "
                    "or convert the files to Parquet or JSON"
                ) from error

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Ranges of bytes; compressed files and those with line ends in values stay whole.

        One request for a file of several pieces, if its beginning has to say whether it has any.
        """
        pieces = byte_pieces(file, target_bytes, whole=bool(self._multiline))
        if len(pieces) > 1 and self._multiline is None and self._head(file).quoted:
            return byte_pieces(file, target_bytes, whole=True)
        return pieces

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Tables of about 16 MiB of text."""
        file = piece.file
        head = self._head(file)
        names = head.names
        fields = [field for field in schema if field.name in names]
        types = {field.name: self._parsed(field.type) for field in fields}
        hint: list[str] = []
        quotes = self._quotes(file)

        def parse(data: pa.Buffer) -> pa.Table:
            try:
                table = self._parse(data, names, types, file)
                quotes.check_closed(data, table.num_rows, quoted=head.quoted)
                return self._completed(table, fields)
            except pa.ArrowInvalid as error:
                reason = _reason(error, names)
                # A block fails before the records in it do.
                if not (hint or GOES_ON in reason) and self._has_line_ends(data, quotes):
                    hint.append(f". {GOES_ON}")
                raise pa.ArrowInvalid("".join([reason, *hint])) from None
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid(f"{error}. {_ENCODING}") from None

        stop = piece.stop
        if not (piece.start or self._header or stop is None):
            stop = max(stop, head.size + 1)  # no line end is in front of the first record
        yield from parse_blocks(
            file,
            parse,
            rejects,
            piece.start or head.size,
            stop,
            aligned=not piece.start,
            quoted=head.quoted,
            escape=self._escape,
            suspects=partial(self._suspects, names=names, types=types, file=file),
        )

    def _suspects(
        self,
        data: pa.Buffer,
        starts: Int64s,
        *,
        names: list[str],
        types: dict[str, Any],
        file: SourceFile,
    ) -> Int64s:
        """Records with too many or too few fields, or texts that are not of the column's type."""
        none = np.zeros(0, np.int64)
        skipped: list[Any] = []
        try:
            texts = self._parse(data, names, dict.fromkeys(names, pa.string()), file, skipped)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return none
        values, sizes = as_array(data), np.diff(starts)
        ends = starts[1:] - 1
        returns = (sizes == 2) & (values[np.maximum(ends - 1, 0)] == ord("\r"))
        records = np.flatnonzero(~((values[ends] == ord("\n")) & ((sizes == 1) | returns)))
        odd = np.array([row.number - 1 for row in skipped], np.int64)
        if len(records) != texts.num_rows + len(odd) or (len(odd) and odd[-1] >= len(records)):
            return none  # the parser counts otherwise
        rows = np.delete(records, odd)
        bad = np.zeros(len(rows), np.bool_)
        for name, kind in types.items():
            column: Any = texts.column(name).combine_chunks()
            if column.null_count < len(column) and not pa.types.is_string(kind):
                try:
                    fits = cast(pc.utf8_trim_whitespace(column), kind, attempt=True)
                except FilterError:  # no expression has this type: halving finds such records
                    continue
                bad |= column.is_valid().to_numpy(False) & fits.is_null().to_numpy(False)
        return np.sort(np.concatenate([records[odd], rows[bad]]))

    def _head(self, file: SourceFile) -> _Head:
        """Read the beginning of a file; twice, if that finds values with line ends."""
        quoted = bool(self._multiline)
        block = partial(first_block, file, _SAMPLE_BYTES, escape=self._escape)
        sample = block(quoted=quoted).data
        if self._has_line_ends(sample, self._quotes(file)):
            quoted = True
            sample = block(quoted=True).data
        if not sample.size:
            raise FormatError(f"{file.uri} is empty: it has no line with the names of columns")
        end = int(record_starts(sample, quoted=quoted, escape=self._escape)[1])
        line = sample.slice(0, end)
        try:
            names = self._names(line, self._separator(file))
            if self._header and not self._sep:
                self._refuse_other_separator(names, line, file)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            hint = f". {_ENCODING}" if isinstance(error, UnicodeDecodeError) else ""
            raise FormatError(f"{file.uri}, line 1: {error}{hint}") from error
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise FormatError(f"{file.uri}, line 1: several columns are called {repeated[0]!r}")
        size = end if self._header else len(_BOM) * self._begins_with_mark(sample)
        return _Head(names, sample.slice(size), size, quoted)

    def _begins_with_mark(self, data: pa.Buffer) -> bool:
        """Whether the parser leaves out the first bytes."""
        begins = bytes(memoryview(data)[: len(_BOM)]) == _BOM
        return begins and lookup(self._encoding) == lookup("utf-8")

    def _names(self, line: pa.Buffer, sep: str) -> list[str]:
        csv: Any = import_module("pyarrow.csv")

        ended = line.to_pybytes()
        if not (self._header and ended.endswith(b"\n")):
            ended += b"\n"  # else it has no columns
        first = csv.read_csv(
            pa.BufferReader(ended),
            read_options=csv.ReadOptions(
                autogenerate_column_names=not self._header,
                encoding=self._encoding,
                use_threads=False,
            ),
            parse_options=self._parse_options(sep),
        )
        if self._header and first.num_rows:
            raise pa.ArrowInvalid(
                "it ends in a carriage return alone. Convert the line ends to line feeds"
            )
        names: list[str] = first.column_names
        return names

    def _refuse_other_separator(self, names: list[str], line: pa.Buffer, file: SourceFile) -> None:
        """Refuse a file of one column that another character seems to cut into several.

        Characters in quotation marks cut nothing.
        """
        own = self._separator(file)
        if len(names) > 1:
            return
        held = {one: len(self._names(line, one)) for one in _SEPARATORS if one in names[0]}
        likely = max(held, key=lambda one: held[one], default=own)
        if held.get(likely, 1) == 1:
            return
        raise FormatError(
            f"{file.uri}, line 1: the only column would be called {names[0]!r}. Name the character "
            f"between fields: reader_options={{'sep': {likely!r}}}; with {{'sep': {own!r}}} the "
            "name is that. Files that differ are ingested by calls of their own, with mode='append'"
        )

    def _separator(self, file: SourceFile) -> str:
        return self._sep or ("\t" if file.suffix == ".tsv" else ",")

    def _quotes(self, file: SourceFile) -> Quotes:
        return Quotes(self._separator(file), self._quote, self._escape)

    def _has_line_ends(self, sample: pa.Buffer, quotes: Quotes) -> bool:
        """Whether values go on in the next line; False where the caller says."""
        known = self._multiline is not None or self._quote != '"'
        return not known and quotes.go_on(sample)

    def _parsed(self, data_type: Any) -> Any:
        """The type that the parser makes, to be cast to that of the column."""
        if holds_numbers(data_type):
            return pa.string()
        if pa.types.is_date32(data_type) and self._timestamp_format:
            return pa.timestamp("s")
        return _parsed(data_type)

    def _completed(self, table: pa.Table, fields: list[Any]) -> pa.Table:
        """Lists from their texts."""
        for field in fields:
            if holds_numbers(field.type):
                number = table.schema.get_field_index(field.name)
                lists = numbers_of(field.name, table.column(number), field.type)
                table = table.set_column(number, field.name, lists)
        return vectors_checked(table, pa.schema(fields))

    def _parse_options(self, sep: str, *, skipped: list[Any] | None = None) -> Any:
        """Options of the parser; rows of a wrong number of fields are skipped if there is a list.

        The list gets them.
        """
        csv: Any = import_module("pyarrow.csv")

        def skip(row: Any) -> str:
            if skipped is not None:
                skipped.append(row)
            return "skip"

        return csv.ParseOptions(
            delimiter=sep,
            quote_char=self._quote or False,
            escape_char=self._escape or False,
            newlines_in_values=bool(self._multiline),
            invalid_row_handler=None if skipped is None else skip,
        )

    def _parse(
        self,
        data: pa.Buffer,
        names: list[str],
        types: dict[str, Any] | None,
        file: SourceFile,
        skipped: list[Any] | None = None,
    ) -> pa.Table:
        """Parse records; without types, they are inferred. Odd ones are added to ``skipped``."""
        csv: Any = import_module("pyarrow.csv")

        nulls = ["", self._null] if types is not None else ["", self._null, "NA", "NULL", "null"]
        if not data.size:
            return pa.table({name: pa.nulls(0, (types or {}).get(name)) for name in types or names})
        if self._begins_with_mark(data) and types is not None:  # it belongs to a value
            data = pa.py_buffer(_BOM + data.to_pybytes())
        table: pa.Table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                column_names=names,
                use_threads=False,
                block_size=block_size(data),
                # Texts that cannot be decoded are bad records when they are read; types do not
                # depend on them.
                encoding=_ANY_BYTES if types is None or skipped is not None else self._encoding,
            ),
            parse_options=self._parse_options(
                self._separator(file), skipped=[] if types is None else skipped
            ),
            convert_options=csv.ConvertOptions(
                column_types=types,
                include_columns=None if types is None else list(types),
                null_values=list(dict.fromkeys(nulls)),
                strings_can_be_null=True,
                quoted_strings_can_be_null=are_quoted_nulls(data, names, types),
                decimal_point=self._decimal,
                timestamp_parsers=[self._timestamp_format] if self._timestamp_format else None,
            ),
        )
        return table


def _common_type(types: list[Any]) -> Any:
    """The type that slices of a column agree on, but for a few."""
    known = [data_type for data_type in types if not pa.types.is_null(data_type)]
    others = [data_type for data_type in known if not pa.types.is_string(data_type)]
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
