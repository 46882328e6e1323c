"""Text files: CSV, JSON lines and plain lines, parsed in blocks of whole records."""

from __future__ import annotations

import csv as python_csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from io import StringIO
from itertools import chain, pairwise
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.dataclass import dataclass
from glaive.errors import FormatError, SchemaError
from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    open_source,
    refuse_failure,
)
from glaive.io.failures import from_system
from glaive.options import SWITCH, Kind
from glaive.types import Int64s, as_buffer

# --- Blocks of whole records, and blocks with records that cannot be parsed ---------------

BLOCK_BYTES: Final = 16 << 20
_SAMPLE_BYTES: Final = 4 << 20
_MAX_RECORD_BYTES: Final = 1 << 30
"""Largest record: a longer one means that the file lacks line ends."""

_MAX_PIECES: Final = 10_000
_MAX_NUMBERED: Final = 1024
"""Largest run of records for which the parser's record number is used; longer ones are divided."""

_DIVISIONS: Final = 8

Ends: TypeAlias = Callable[[bytes], Int64s]
"""Function that returns the ends of a block's records."""

Parse: TypeAlias = Callable[[bytes], pa.Table]
_NUMBERED: Final = re.compile(r"Row #(\d+): ")


def byte_pieces(file: SourceFile, target_bytes: int) -> list[Piece]:
    """Return ranges of bytes of about the same size; a compressed file is one range."""
    wanted = 1 if file.compression else round(file.size / target_bytes)
    count = min(max(1, wanted), _MAX_PIECES)
    edges = [file.size * number // count for number in range(count)]
    return [
        Piece(file, start, stop, (stop or file.size) - start)
        for start, stop in pairwise([*edges, None])
        if start is not None
    ]


def line_ends(data: bytes) -> Int64s:
    """Return the positions after line ends."""
    ends: Int64s = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    return ends


def read_blocks(
    file: SourceFile,
    start: int = 0,
    stop: int | None = None,
    *,
    aligned: bool = True,
    ends: Ends = line_ends,
    size: int = BLOCK_BYTES,
) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of the records that begin in a range, each with its position.

    Parameters
    ----------
    start, stop
        First byte, and the byte after the last; for compressed files, of their content.
    aligned
        Whether a record begins at ``start``.
    ends
        Function that finds the ends of records.
    size
        Number of bytes to read at a time.

    Raises
    ------
    FormatError
        A record has more than 1 GiB, or a compressed file is damaged.
    """
    at = start if aligned else start - 1
    with _opened(file) as stream:
        if file.compression is None:
            stream.seek(at)
        else:
            stream.read(at)
        rest = b""
        while True:
            wanted = max(size, min(len(rest), 16 * size))
            data = b"".join(_chunks(stream, wanted))
            rest, last = rest + data, len(data) < wanted
            if not aligned:
                cut = rest.find(b"\n") + 1 or len(rest)
                aligned = rest[cut - 1 : cut] == b"\n"
                at, rest = at + cut, rest[cut:]
            if stop is not None and at >= stop:
                return
            end = len(rest)
            if stop is not None and at + end >= stop:
                cut = rest.find(b"\n", max(stop - at - 1, 0)) + 1
                end, last = (cut, True) if cut else (end * last, last)
            elif not last:
                found = ends(rest)
                end = int(found[-1]) if len(found) else 0
            if end:
                yield at, rest[:end]
            if last:
                return
            at, rest = at + end, rest[end:]
            if len(rest) > _MAX_RECORD_BYTES:
                raise FormatError(f"{file.uri}: more than 1 GiB without a line end")


@contextmanager
def _opened(file: SourceFile) -> Iterator[pa.NativeFile]:
    """Open the content of a file; errors have its name."""
    try:
        with open_source(file, decompress=True) as stream:
            yield stream
    except (OSError, pa.ArrowException) as error:  # some of bz2 are not an OSError
        refuse_failure(file, error)
        if file.compression is None and isinstance(error, OSError):
            raise from_system(error, file.uri, "read") from error
        raise FormatError(f"{file.uri} is damaged: {error}") from error


def _first_block(file: SourceFile, ends: Ends = line_ends) -> bytes:
    return next((data for _, data in read_blocks(file, ends=ends, size=_SAMPLE_BYTES)), b"")


def _records(data: bytes, ends: Ends, *, blank: bool = False) -> tuple[Int64s, Int64s]:
    """Return starts and ends of records; with ``blank`` also of empty records."""
    stops = ends(data)
    if len(data) and (not len(stops) or stops[-1] != len(data)):
        stops = np.append(stops, len(data))
    starts = np.append(0, stops)[:-1].astype(np.int64)
    if blank or not len(data):
        return starts, stops
    values, sizes = np.frombuffer(data, np.uint8), stops - starts
    returns = (sizes == 2) & (values[stops - 2] == ord("\r"))
    filled = ~(((sizes == 1) | returns) & (values[stops - 1] == ord("\n")))
    return starts[filled], stops[filled]


def parse_block(
    file: SourceFile,
    data: bytes,
    parse: Parse,
    rejects: Rejects,
    *,
    lines: int = 0,
    ends: Ends = line_ends,
    blank: bool = False,
) -> Iterator[pa.Table]:
    """Parse a block that failed as a whole; reject the records that fail alone.

    Parameters
    ----------
    lines
        Number of lines of the file before the block.
    blank
        Whether empty lines are records.
    """
    starts, stops = _records(data, ends, blank=blank)
    before = np.searchsorted(line_ends(data), starts, side="right")
    bad: dict[int, str] = {}

    def fails(at: int) -> bool:
        try:
            parse(data[starts[at] : stops[at]])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            bad[at] = _NUMBERED.sub("", str(error))
        return at in bad

    waiting = [(0, len(starts))] if len(starts) else []
    while waiting:
        low, high = waiting.pop()
        among = sorted(at for at in bad if low <= at < high)
        runs = [(one + 1, end) for one, end in pairwise([low - 1, *among, high]) if one + 1 < end]
        part = b"".join(data[starts[one] : stops[end - 1]] for one, end in runs)
        try:
            table = parse(part) if part else None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            found = _NUMBERED.search(str(error)) if high - low <= _MAX_NUMBERED else None
            kept = list(chain.from_iterable(range(*run) for run in runs)) if found else []
            number = int(found[1]) if found else 1
            suspect = kept[number - 1] if number <= len(kept) else low
            if (found or high - low == 1) and suspect not in bad and fails(suspect):
                waiting.append((low, high))
                continue
            step = -(-(high - low) // _DIVISIONS)
            waiting += [(at, min(at + step, high)) for at in range(low, high, step)][::-1]
            continue
        for at in among:
            reason, record = bad.pop(at), data[starts[at] : stops[at]]
            if record.strip():
                rejects.add(file, 1 + lines + int(before[at]), reason, record)
        if table is not None:
            yield table


def parse_piece(
    piece: Piece,
    parse: Parse,
    rejects: Rejects,
    *,
    start: int = 0,
    ends: Ends = line_ends,
    blank: bool = False,
) -> Iterator[pa.Table]:
    """Parse the records of a piece.

    Parameters
    ----------
    start
        Position of the file's first record.
    """
    file, aligned = piece.file, not piece.start
    first = piece.start or start
    for at, data in read_blocks(file, first, piece.stop, aligned=aligned, ends=ends):
        try:
            table = parse(data)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            with _opened(file) as stream:
                lines = sum(part.count(b"\n") for part in _chunks(stream, at))
            yield from parse_block(file, data, parse, rejects, lines=lines, ends=ends, blank=blank)
            continue
        yield table


def _chunks(stream: pa.NativeFile, size: int) -> Iterator[bytes]:
    """Yield up to ``size`` bytes of a stream, in parts, because decompressors return parts."""
    while size > 0 and (data := stream.read(min(size, BLOCK_BYTES))):
        yield data
        size -= len(data)


def _text_of(data: bytes) -> Any:
    """Return the bytes as an array of one string.

    Raises
    ------
    pyarrow.ArrowInvalid
        The bytes are invalid UTF-8.
    """
    ends: Any = as_buffer(np.array([0, len(data)], np.int64))
    text: Any = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid("invalid UTF8 data. Convert the file to UTF-8") from None
    return text


# --- Lists in text files: as JSON in strings, and as vectors that all have one length ----

_NUMBERS = r'^\s*\[[^\[\]{}"]*\]\s*$'
"""One flat list, which JSON reads as one value."""


def _holds_numbers(data_type: Any) -> bool:
    """Return whether a type has lists or vectors of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(data_type) for test in lists):
        return False
    item = data_type.value_type
    return bool(pa.types.is_integer(item) or pa.types.is_floating(item))


def _numbers_of(name: str, texts: Any, data_type: Any) -> Any:
    """Read a column of strings such as ``[0.25, 1e-3]`` as lists of numbers.

    Raises
    ------
    pyarrow.ArrowInvalid
        A string has another form; the message names the column.
    """
    item = data_type.value_type
    parsed: Any = pa.list_(pa.float32() if pa.types.is_float16(item) else item)
    texts = texts.combine_chunks()
    wrong = pc.invert(pc.match_substring_regex(texts, _NUMBERS))
    if pc.any(wrong).as_py():
        found = texts.filter(wrong)[0].as_py()
        raise pa.ArrowInvalid(
            f"column {name}: expected a list of numbers as in JSON, such as [0.5, 2], found "
            f"{found[:60]!r}"
        )
    lines = pc.binary_join_element_wise('{"v":', pc.fill_null(texts, "null"), "}\n", "")
    whole = "".join(lines.to_pylist()).encode()
    try:
        return _parse_json(whole, pa.schema([pa.field("v", parsed)]), "error").column("v")
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {name}: {error}") from None


def _vectors_checked(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Check that lists of a table have the lengths of a schema's vectors; return the table.

    Raises
    ------
    pyarrow.ArrowInvalid
        A list has another length; the message names the column.
    """
    for field in schema:
        if not pa.types.is_fixed_size_list(field.type) or field.name not in table.column_names:
            continue
        lengths = pc.list_value_length(table.column(field.name))
        wrong = pc.not_equal(lengths, field.type.list_size)
        if pc.any(wrong).as_py():
            raise pa.ArrowInvalid(
                f"column {field.name}: expected {field.type.list_size} numbers, found "
                f"{lengths.filter(wrong)[0].as_py()}"
            )
    return table


# --- CSV --------------------------------------------------------------------------------

_ENCODINGS = "an encoding whose line ends are one byte; files of others are to be converted"


def _character(given: Any) -> str:
    if given and (len(given) != 1 or not given.isascii() or given in "\r\n"):
        raise ValueError(given)
    return str(given)


def _unicode(given: Any) -> str:
    str.encode(given)
    return str(given)


def _encoding(given: Any) -> str:
    with suppress(LookupError):
        if "\n".encode(given) == b"\n":
            return str(given)
    raise ValueError(given)


_CHARACTER = Kind("one character of ASCII", _character)
_TEXT = Kind("a string", _unicode)
_SEPARATORS = ",;\t|"
"""Characters that are between fields, and seldom in the name of an only column."""
_SAMPLE_SLICES = 64
_MIN_AGREEMENT = 0.8
"""Share of a sample's slices that must agree on a type."""
_COLUMN = re.compile(r"In CSV column #(\d+): ")
_ENCODING = (
    "The encoding of the files is named by reader_options, such as {'encoding': 'cp1252'}; files "
    "in UTF-16 are to be converted to UTF-8"
)
_UNCLOSED_QUOTE = "a quotation mark is not closed in its line"
_CONTINUED = (
    ". A value in quotation marks that goes on in the next line is read with "
    "reader_options={'multiline': True}"
)


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a file: names, first records, size of the line with names in bytes."""

    names: list[str]
    sample: bytes
    size: int
    quoted: bool


class Csv(SourceFormat):
    """CSV: lines of fields.

    Options:

    - ``sep`` (``,``; for ``.tsv`` a tab).
    - ``header`` (True: the first line has the names. False: the names are ``f0``, ``f1`` …).
    - ``quote`` (``"``).
    - ``escape`` (none).
    - ``null`` (empty): a string that means null, in addition to the empty string.
    - ``decimal`` (``.``).
    - ``encoding`` (UTF-8).
    - ``multiline``: whether values have line ends. Such files are read as a whole. By default the
      first 4 MiB of the file decide.
    - ``timestamp_format`` (ISO 8601), also for dates.
    """

    name = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    typed = False

    options: ClassVar = {
        "sep": (_CHARACTER, ""),
        "header": (SWITCH, True),
        "quote": (_CHARACTER, '"'),
        "escape": (_CHARACTER, ""),
        "null": (_TEXT, ""),
        "decimal": (Kind(_CHARACTER.expected, lambda given: _character(given or "none")), "."),
        "encoding": (Kind(_ENCODINGS, _encoding), "utf-8"),
        "multiline": (SWITCH, None),
        "timestamp_format": (_TEXT, ""),
    }

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return names from the first line, and types from the first 4 MiB.

        These are cut into slices. A column gets a type on which most slices agree. So a bad value
        is an error when it is read, and its column keeps its type.
        """
        head = self._head(file)
        starts, stops = _records(head.sample, self._ends(quoted=head.quoted))
        edges = np.unique(np.linspace(0, len(starts), _SAMPLE_SLICES + 1).astype(np.int64)).tolist()
        inferred = [
            self._parse(head.sample[starts[low] : stops[high - 1]], head.names, None, file).schema
            for low, high in pairwise(edges)
        ]
        types = ([one.field(at).type for one in inferred] for at in range(len(head.names)))
        return pa.schema(list(zip(head.names, map(_common_type, types), strict=True)))

    def check(self, schema: pa.Schema) -> None:
        """Refuse types that text has no conversion to."""
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
        """Cut a file into ranges; a file with line ends in values, or with escapes, stays whole.

        This takes one request for a file of several pieces, if its beginning must be read.
        """
        pieces = byte_pieces(file, target_bytes)
        whole = len(pieces) > 1 and (self.given.escape or self._head(file).quoted)
        return super().pieces(file, target_bytes) if whole else pieces

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield tables of about 16 MiB of text."""
        file = piece.file
        head = self._head(file)
        fields = [field for field in schema if field.name in head.names]
        types = {field.name: self._parsed(field.type) for field in fields}
        ends = self._ends(quoted=head.quoted)
        convert = partial(self._parse, names=head.names, types=types, file=file)
        hints: list[str] = []
        last = (
            self._separator(file) * (len(head.names) - 1) or self.given.quote * 2
        ).encode() + b"\n"

        def parse(data: bytes) -> pa.Table:
            """Parse records and a final one of nulls, which an unclosed value would absorb."""
            try:
                if not self.given.quote or self.given.quote.encode() not in data:
                    return self._completed(convert(data), fields)
                table = convert(data + last if data.endswith(b"\n") else b"\n".join((data, last)))
                rows = table.num_rows - 1
                is_open = any(
                    column[rows].as_py() not in (None, "", b"") for column in table.columns
                )
                if is_open or (not head.quoted and rows < len(_records(data, ends)[0])):
                    raise pa.ArrowInvalid(_UNCLOSED_QUOTE + ("" if head.quoted else _CONTINUED))
                return self._completed(table.slice(0, rows), fields)
            except pa.ArrowInvalid as error:
                reason = _reason(error, head.names)
                if not hints:  # the first failure: a block
                    late = (
                        self.given.multiline is None
                        and not head.quoted
                        and self._continues(data, file)
                    )
                    hints.append(_CONTINUED if late else "")
                if _CONTINUED not in reason:
                    reason += hints[0]
                raise pa.ArrowInvalid(reason) from None
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid(f"{error}. {_ENCODING}") from None

        yield from parse_piece(piece, parse, rejects, start=head.size, ends=ends)

    def _ends(self, *, quoted: bool) -> Ends:
        """Return a function that finds the ends of records, which may have several lines."""
        if not quoted and not self.given.escape:
            return line_ends
        escaped = re.compile(re.escape(self.given.escape.encode()) + b".", re.DOTALL)
        mark = (self.given.quote or '"').encode()

        def ends(data: bytes) -> Int64s:
            plain = escaped.sub(b"__", data) if self.given.escape else data
            found = line_ends(plain)
            if not quoted:
                return found
            marks = np.flatnonzero(np.frombuffer(plain, np.uint8) == ord(mark))
            inside: Int64s = found[np.searchsorted(marks, found) % 2 == 0]
            return inside

        return ends

    def _head(self, file: SourceFile) -> _Head:
        """Read the beginning of a file, twice if it has values with line ends."""
        quoted = bool(self.given.multiline)
        sample = _first_block(file, self._ends(quoted=quoted))
        if self.given.multiline is None and self._continues(sample, file):
            quoted = True
            sample = _first_block(file, self._ends(quoted=True))
        if not sample:
            return _Head([], b"", 0, quoted)
        ends = self._ends(quoted=quoted)(sample)
        end = int(ends[0]) if len(ends) else len(sample)
        try:
            names = self._names(sample[:end], self._separator(file))
            if self.given.header and not self.given.sep:
                self._refuse_other_separator(names, sample[:end], file)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            hint = f". {_ENCODING}" if isinstance(error, UnicodeDecodeError) else ""
            raise FormatError(f"{file.uri}, line 1: {error}{hint}") from error
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise FormatError(f"{file.uri}, line 1: several columns are called {repeated[0]!r}")
        size = end if self.given.header else 0
        return _Head(names, sample[size:], size, quoted)

    def _continues(self, sample: bytes, file: SourceFile) -> bool:
        """Return whether values continue in the next line, and end in one of the lines."""
        if not self.given.quote or self.given.quote.encode() not in sample:
            return False
        lines = StringIO(sample.decode("latin-1"), newline="")
        rows = python_csv.reader(
            chain(lines, ["\nx"]),
            delimiter=self._separator(file),
            quotechar=self.given.quote,
            escapechar=self.given.escape or None,
        )
        line = 0
        with suppress(python_csv.Error):
            for row in rows:
                if rows.line_num > line + 1:
                    return not row[-1].endswith("\nx")
                line = rows.line_num
        return False

    def _names(self, line: bytes, sep: str) -> list[str]:
        csv: Any = import_module("pyarrow.csv")

        ended = line if self.given.header and line.endswith(b"\n") else line + b"\n"
        first = csv.read_csv(
            pa.BufferReader(ended),
            read_options=csv.ReadOptions(
                autogenerate_column_names=not self.given.header,
                encoding=self.given.encoding,
                use_threads=False,
            ),
            parse_options=self._parse_options(sep),
        )
        if self.given.header and first.num_rows:
            raise pa.ArrowInvalid(
                "it ends in a carriage return alone. Convert the line ends to line feeds"
            )
        names: list[str] = first.column_names
        return names

    def _refuse_other_separator(self, names: list[str], line: bytes, file: SourceFile) -> None:
        """Refuse a file of one column that another character would cut into several.

        Characters in quotation marks are ignored.
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
        return self.given.sep or ("\t" if file.suffix == ".tsv" else ",")

    def _parsed(self, data_type: Any) -> Any:
        """Return the type that the parser returns, before the cast to the column's type."""
        if _holds_numbers(data_type):
            return pa.string()
        if pa.types.is_date32(data_type) and self.given.timestamp_format:
            return pa.timestamp("s")
        if pa.types.is_float16(data_type):
            return pa.float32()
        if pa.types.is_dictionary(data_type):
            return self._parsed(data_type.value_type)
        return pa.large_string() if data_type == pa.string_view() else data_type

    def _completed(self, table: pa.Table, fields: list[Any]) -> pa.Table:
        """Replace strings with lists by the lists."""
        for field in fields:
            if _holds_numbers(field.type):
                number = table.schema.get_field_index(field.name)
                lists = _numbers_of(field.name, table.column(number), field.type)
                table = table.set_column(number, field.name, lists)
        return _vectors_checked(table, pa.schema(fields))

    def _parse_options(self, sep: str, invalid: Any = None) -> Any:
        csv: Any = import_module("pyarrow.csv")

        return csv.ParseOptions(
            delimiter=sep,
            quote_char=self.given.quote or False,
            escape_char=self.given.escape or False,
            invalid_row_handler=invalid,
        )

    def _parse(
        self, data: bytes, names: list[str], types: dict[str, Any] | None, file: SourceFile
    ) -> pa.Table:
        """Parse records; infer ``types`` if they are missing."""
        csv: Any = import_module("pyarrow.csv")

        nulls = ["", self.given.null, *(["NA", "NULL", "null"] if types is None else [])]
        timestamps = self.given.timestamp_format
        if not data:
            return pa.table({name: pa.nulls(0, (types or {}).get(name)) for name in types or names})
        quoted = len(names) == 1 and (
            b'""' in data
            if types is None
            else not any("string" in f"{kind}" or "binary" in f"{kind}" for kind in types.values())
        )
        table: pa.Table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                column_names=names,
                use_threads=False,
                block_size=min(3 * len(data) + 1, 2**31 - 1),  # one block, also as UTF-8
                # Strings that cannot be decoded are bad records when they are read. Types do not
                # depend on them.
                encoding="latin-1" if types is None else self.given.encoding,
            ),
            parse_options=self._parse_options(
                self._separator(file), (lambda _: "skip") if types is None else None
            ),
            convert_options=csv.ConvertOptions(
                column_types=types,
                include_columns=None if types is None else list(types),
                null_values=list(dict.fromkeys(nulls)),
                strings_can_be_null=True,
                # The parser skips empty lines: in a file of one column ``""`` is null.
                quoted_strings_can_be_null=quoted,
                decimal_point=self.given.decimal,
                timestamp_parsers=[timestamps] if timestamps else None,
            ),
        )
        return table


def _common_type(types: list[Any]) -> Any:
    """Return the type on which all slices of a column agree, except a few."""
    known = [data_type for data_type in types if not pa.types.is_null(data_type)]
    if not known:
        return pa.null()
    others = [data_type for data_type in known if not pa.types.is_string(data_type)]
    if len(others) < max(1, _MIN_AGREEMENT * len(known)):
        return pa.string()
    try:
        fields = [pa.schema([pa.field("x", data_type)]) for data_type in others]
        joined = pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()
    if pa.types.is_timestamp(joined) and joined.unit == "s":
        return pa.timestamp("us", joined.tz)
    return joined


def _reason(error: Exception, names: list[str]) -> str:
    """Return the parser's message with the name of the column."""
    reason = str(error)
    found = _COLUMN.match(reason)
    if found is None:
        return reason
    number = int(found[1])
    name = names[number] if number < len(names) else str(number)
    reason = reason[found.end() :].replace("CSV conversion error to ", "", 1)
    return f"column {name}: {reason}{f'. {_ENCODING}' if 'invalid UTF8' in reason else ''}"


# --- JSON lines -------------------------------------------------------------------------

_FIRST_NULL: Final = re.compile(rb"\A((?:\xef\xbb\xbf)?\s*)null")
"""A null as the first record: it ends the process in Arrow's parser."""

_MAX_BAD_RECORDS: Final = 1_000
"""Largest number of bad records in a sample, which ends after them."""

_MAX_SCHEMAS: Final = 64
"""Parts of a sample whose columns are joined at once; if types differ, a record is a part."""


class Json(SourceFormat):
    """JSON lines.

    Options:

    - ``ignore_unknown`` (False: an unknown member is an error).
    - ``infer_all`` (False: types come from the first 4 MiB of each file. True: from the whole
      file).
    """

    name = "json"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")
    typed = False
    named = False

    options: ClassVar = {"ignore_unknown": (SWITCH, False), "infer_all": (SWITCH, False)}

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return members and types of the first 4 MiB, or of the whole file."""
        infer = partial(_parse_json, schema=None, unexpected="infer")
        schemas: list[pa.Schema] = []
        rejects = _Sample(keep=True)
        blocks: Iterator[tuple[int, bytes]] = iter([(0, _first_block(file))])
        with suppress(_EnoughError):
            for _, data in read_blocks(file) if self.given.infer_all else blocks:
                for part in parse_block(file, data, infer, rejects):
                    schemas.append(part.schema)
                    if len(schemas) == _MAX_SCHEMAS:
                        schemas = [_unified(file, schemas)]
        if not schemas and rejects.first:
            raise FormatError(f"{file.uri}{rejects.first}: it has no record to infer types from")
        return _unified(file, [*schemas, pa.schema([])])

    def check(self, schema: pa.Schema) -> None:
        """Refuse types that JSON has no conversion to."""
        for field in schema:
            try:
                _parse_json(b"{}\n", pa.schema([_parsed(field)]), "ignore")
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
                raise SchemaError(
                    f"column {field.name}: JSON cannot be read as {field.type}. Convert the files "
                    "to Parquet, or read the column with another type"
                ) from error

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Cut a file into ranges of bytes; a compressed file stays whole."""
        return byte_pieces(file, target_bytes)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield tables of about 16 MiB of text."""
        parsed = pa.schema([_parsed(field) for field in schema])
        unexpected = "ignore" if self.given.ignore_unknown else "error"

        def parse(data: bytes) -> pa.Table:
            _text_of(data)  # Arrow's parser does not check for UTF-8
            return _vectors_checked(_parse_json(data, parsed, unexpected), schema)

        yield from parse_piece(piece, parse, rejects)


class _EnoughError(Exception):
    """Raised when a sample has too many malformed records."""


class _Sample(Rejects):
    """Counts malformed records, up to a limit: each costs a call of the parser."""

    first = ""
    """Line of the first bad record, and the reason."""

    def add(self, file: SourceFile, line: int | None, reason: str, record: bytes | None) -> None:
        """Count a record."""
        self.first = self.first or f", line {line}: {reason}"
        super().add(file, line, reason, None)
        if len(self) >= _MAX_BAD_RECORDS:
            raise _EnoughError


def _unified(file: SourceFile, schemas: list[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise FormatError(
            f"{file.uri}: types cannot be inferred: {error}. Pass schema= to name them"
        ) from error


def _parse_json(data: bytes, schema: pa.Schema | None, unexpected: str) -> pa.Table:
    json: Any = import_module("pyarrow.json")
    data = _FIRST_NULL.sub(rb"\1{}  ", data)
    table: pa.Table = json.read_json(
        pa.BufferReader(data),
        read_options=json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior=unexpected
        ),
    )
    return table


def mapped(data_type: Any, change: Callable[[Any], Any]) -> Any:
    """Return a list or struct with other types inside; ``None`` for other types."""
    if pa.types.is_struct(data_type):
        members = (data_type.field(at) for at in range(data_type.num_fields))
        return pa.struct([one.with_type(change(one.type)).with_nullable(True) for one in members])
    if pa.types.is_large_list(data_type):
        return pa.large_list(change(data_type.value_type))
    if hasattr(data_type, "value_field"):  # lists, vectors and views of lists
        return pa.list_(change(data_type.value_type))
    return None


def with_texts(field: Any) -> Any:
    """Return the field with strings in place of values that are all null."""

    def typed(kind: Any) -> Any:
        return pa.string() if pa.types.is_null(kind) else mapped(kind, typed) or kind

    return field.with_type(typed(field.type))


def _parsed(field: Any) -> Any:
    """Return the field that the parser returns, before the cast to the column's type."""

    def parsed(kind: Any) -> Any:
        if pa.types.is_dictionary(kind):
            return parsed(kind.value_type)
        return pa.float32() if pa.types.is_float16(kind) else mapped(kind, parsed) or kind

    return field.with_type(parsed(field.type)).with_nullable(True)


# --- Plain lines ------------------------------------------------------------------------


class Text(SourceFormat):
    """Lines of UTF-8 as a column ``value``; line ends are removed. Options: none."""

    name = "text"
    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".log", ".md")

    def schema(self, file: SourceFile) -> pa.Schema:  # the same for all
        """Return the column ``value``."""
        return pa.schema([("value", pa.string())])

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Cut a file into ranges of bytes; a compressed file stays whole."""
        return byte_pieces(file, target_bytes)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield tables of about 16 MiB of text."""
        yield from parse_piece(piece, _lines, rejects, blank=True)


def _lines(data: bytes) -> pa.Table:
    """Return lines as strings; raise ``ArrowInvalid`` if they are invalid UTF-8."""
    lines: Any = pc.list_flatten(pc.split_pattern(_text_of(data.removesuffix(b"\n")), "\n"))
    if b"\r" in data:
        lines = pc.replace_substring_regex(lines, "\r$", "")
    return pa.table({"value": lines.cast(pa.string())})
