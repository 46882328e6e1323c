"""Which lines of CSV are records: values in quotation marks may go on in the next line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import FormatError
from glaive.ingestion.records import first_block, parse_blocks, record_starts, unescaped
from glaive.ingestion.rejects import Rejects
from glaive.ingestion.sources import SourceFile
from glaive.memory import as_array
from glaive.types import Int64s, UInt8s

__all__ = ["GOES_ON", "Quotes", "are_quoted_nulls", "block_size", "checked_quotes"]

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
