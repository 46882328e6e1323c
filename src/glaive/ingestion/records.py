"""Records in text files: blocks of whole lines, and the lines of a block that cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.config import USUAL_RATIO
from glaive.dataclass import dataclass
from glaive.errors import FormatError
from glaive.ingestion.rejects import Rejects, refuse_failure
from glaive.ingestion.sources import SourceFile, open_source
from glaive.io.failures import from_system
from glaive.io.holes import refuse_holes
from glaive.memory import as_array
from glaive.types import Int64s, UInt8s

__all__ = [
    "BLOCK_BYTES",
    "Block",
    "first_block",
    "parse_block",
    "parse_blocks",
    "read_blocks",
    "record_starts",
    "unescaped",
]

BLOCK_BYTES: Final = 16 << 20
MAX_RECORD_BYTES: Final = 1 << 30
"""A record longer than this is taken for a file without line ends."""

_MOST_UNPACKED: Final = 128 << 20
"""The same for compressed files of a few megabytes: few bytes stand for any number of others."""

_MOST_ESCAPES: Final = 1 << 12
"""Of those in front of a line end, of which the number is odd or even, that are looked at where a
file is cut into ranges."""

_PART_BYTES: Final = 1 << 20
"""Bytes in which escapes are counted at a time."""

_FEW: Final = 4
"""Records of which one or more are bad that are parsed one by one."""

Parse = Callable[[pa.Buffer], pa.Table]
Suspects = Callable[[pa.Buffer, Int64s], Int64s]
"""Numbers of records, which begin at the given bytes, that may fail alone; others seldom do."""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records of a file.

    Parameters
    ----------
    data
        Their bytes.
    lines
        Lines of the range before the first record.
    """

    data: pa.Buffer
    lines: int


def read_blocks(
    file: SourceFile,
    start: int = 0,
    stop: int | None = None,
    *,
    aligned: bool = True,
    quoted: bool = False,
    escape: str = "",
) -> Iterator[Block]:
    """Blocks of the records that begin in a range of a file.

    Parameters
    ----------
    start, stop
        First byte, and that behind the last; a record belongs to the range that its first byte is
        in. Of what a compressed file holds, which has no ``stop``.
    aligned
        A record begins at ``start``.
    quoted
        Line ends between quotation marks belong to a value; ``start`` is aligned.
    escape
        The character behind which a line end belongs to a value, and a quotation mark is none.

    Raises
    ------
    FormatError
        A record has more than 1 GiB, or in compressed files than 128 MiB and 64 times their size:
        the file has no line ends. Or a compressed file is damaged.

    Notes
    -----
    Reads the range once, in blocks of 16 MiB.
    """
    with _opened(file) as stream:
        lines = 0
        start = _seek(stream, file, start, aligned=aligned, escape=escape)
        if stop is not None and start >= stop:
            return
        rest = b""
        while True:
            data = stream.read(_more(len(rest), BLOCK_BYTES))
            joined = rest + data
            if not joined:
                return
            end = len(joined)
            last = not data
            if stop is not None and start + end >= stop:
                cut = _next_line_end(joined, max(stop - start - 1, 0), escape)
                if cut >= 0:
                    end, last = cut + 1, True
                elif not last:
                    end = 0
            elif not last:
                end = _last_record_end(joined, quoted=quoted, escape=escape)
            if end:
                yield Block(pa.py_buffer(joined[:end] if end < len(joined) else joined), lines)
                lines += joined.count(b"\n", 0, end)
                start += end
            if last:
                return
            rest = joined[end:]
            _refuse_beyond(file, len(rest))


def first_block(file: SourceFile, size: int, *, quoted: bool = False, escape: str = "") -> Block:
    """Whole records from the beginning of a file, of about ``size`` bytes; at least one.

    The last record of a file may have no line end.
    """
    with _opened(file) as stream:
        joined = b""
        while True:
            asked = _more(len(joined), size)
            data = stream.read(asked)
            is_short = len(data) < asked  # at the end, or where a decompressor gives a part
            behind = stream.read(1) if is_short else b""
            joined += data + behind
            is_whole = is_short and not behind
            end = len(joined)
            if not is_whole:
                end = _last_record_end(joined, quoted=quoted, escape=escape)
            if end or is_whole:
                return Block(pa.py_buffer(joined[:end]), 0)
            _refuse_beyond(file, len(joined))


def _refuse_beyond(file: SourceFile, size: int) -> None:
    """Refuse so many bytes without a line end."""
    if file.compression is None:
        if size > MAX_RECORD_BYTES:
            raise FormatError(f"{file.uri}: more than 1 GiB without a line end")
        return
    most = min(max(_MOST_UNPACKED, USUAL_RATIO * file.size), MAX_RECORD_BYTES)
    if size > most:
        raise FormatError(
            f"{file.uri}: more than {most >> 20} MiB without a line end in a compressed file of "
            f"{file.size:,} bytes. If these are one record, decompress the file first"
        )


def _more(held: int, least: int) -> int:
    """Bytes to read behind those of a record: it is copied again with each part.

    Blocks stay below 2 GiB, which parsers take.
    """
    return max(least, min(held, 16 * BLOCK_BYTES))


def parse_blocks(  # noqa: PLR0913  # a range of a file, and how it is cut
    file: SourceFile,
    parse: Parse,
    rejects: Rejects,
    start: int = 0,
    stop: int | None = None,
    *,
    aligned: bool = True,
    quoted: bool = False,
    escape: str = "",
    suspects: Suspects | None = None,
) -> Iterator[pa.Table]:
    """Parse the records that begin in a range; those that fail alone are rejected with a reason.

    In a block that fails, the suspects are parsed alone and all others in one call. What fails
    then is halved until the records at fault stand alone. For the numbers of lines the file is
    read from its beginning again, once per range that has bad records.

    Parameters
    ----------
    parse
        Makes a table of the bytes of whole records.
    rejects
        What records go to that cannot be parsed.
    start, stop, aligned, quoted, escape
        As for :func:`read_blocks`.
    suspects
        Finds the records of a block that may be bad.
    """
    before: int | None = None
    blocks = read_blocks(file, start, stop, aligned=aligned, quoted=quoted, escape=escape)
    for block in blocks:
        try:
            table = parse(block.data)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if before is None:
                before = _lines_before(file, start, aligned=aligned, escape=escape)
            placed = replace(block, lines=block.lines + before)
            yield from parse_block(
                file, placed, parse, rejects, quoted=quoted, escape=escape, suspects=suspects
            )
            continue
        yield table


def parse_block(
    file: SourceFile,
    block: Block,
    parse: Parse,
    rejects: Rejects,
    *,
    quoted: bool = False,
    escape: str = "",
    suspects: Suspects | None = None,
) -> Iterator[pa.Table]:
    """Parse the records of a block; those that fail alone are rejected."""
    data = block.data
    starts = record_starts(data, quoted=quoted, escape=escape)
    lines = _lines_of(data, starts)
    count = len(starts) - 1

    def records(low: int, high: int) -> pa.Buffer:
        return data.slice(int(starts[low]), int(starts[high] - starts[low]))

    def fails(at: int) -> bool:
        record = records(at, at + 1)
        try:
            parse(record)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            line = 1 + block.lines + int(lines[at])
            rejects.add(file, line, str(error), record.to_pybytes())
            return True
        return False

    waiting = [(0, count)] if data.size else []
    bad = [at for at in suspects(data, starts).tolist() if fails(at)] if suspects else []
    if bad:
        edges = np.array([-1, *bad, count])
        runs = [(at + 1, to) for at, to in pairwise(edges.tolist()) if at + 1 < to]
        try:
            yield parse(pa.py_buffer(b"".join(records(*run) for run in runs)))
            return
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            waiting = runs[::-1]
    while waiting:
        low, high = waiting.pop()
        part = records(low, high)
        alone = high - low == 1
        if alone and not part.to_pybytes().strip():
            continue
        try:
            table = parse(part)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if alone:
                rejects.add(file, 1 + block.lines + int(lines[low]), str(error), part.to_pybytes())
                continue
            step = 1 if high - low <= _FEW else (high - low) // 2 + 1
            waiting += [(at, min(at + step, high)) for at in range(low, high, step)][::-1]
            continue
        yield table


@contextmanager
def _opened(file: SourceFile) -> Iterator[pa.NativeFile]:
    """What a file holds, from its beginning; errors have its name.

    Raises
    ------
    FormatError
        A compressed file is damaged, or one has large holes, which are no text.
    StoreError
        A store, or the system, failed.
    """
    try:
        with open_source(file, decompress=True) as stream:
            if isinstance(stream, pa.OSFile):
                refuse_holes(stream.fileno(), stream.size(), file.uri)
            yield stream
    except (OSError, pa.ArrowException) as error:  # of bz2 some are no OSError
        refuse_failure(file, error)
        if file.compression is None and isinstance(error, OSError):
            raise from_system(error, file.uri, "read") from error
        raise FormatError(f"{file.uri} is damaged: {error}") from error


def record_starts(data: pa.Buffer, *, quoted: bool, escape: str = "") -> Int64s:
    """Where records begin, and the end of the last."""
    ends = _record_ends(data, quoted=quoted, escape=escape)
    starts: Int64s = np.concatenate([np.zeros(1, np.int64), ends])
    return starts if starts[-1] == data.size else np.append(starts, data.size)


def unescaped(values: UInt8s, character: str, escape: str) -> Int64s:
    """Where a character is, but behind an odd number of escapes; memory for these alone."""
    if not escape:
        return np.flatnonzero(values == ord(character))
    found, escapes = [np.zeros(0, np.int64)], 0  # in front of a part
    for start in range(0, len(values), _PART_BYTES):
        part = values[start : start + _PART_BYTES]
        is_escape = part == ord(escape)
        at = np.flatnonzero(part == ord(character))
        if escapes or is_escape[-1] or is_escape[at - 1].any():
            others = np.append(-1 - escapes, np.flatnonzero(~is_escape))
            at = at[(at - others[np.searchsorted(others, at) - 1]) % 2 == 1]
            escapes = len(part) - 1 - int(others[-1])
        found.append(start + at)
    return np.concatenate(found)


def _record_ends(data: pa.Buffer, *, quoted: bool, escape: str) -> Int64s:
    values = as_array(data)
    ends = unescaped(values, "\n", escape) + 1
    if quoted:
        marks = unescaped(values, '"', escape)
        ends = ends[np.searchsorted(marks, ends) % 2 == 0]
    return ends


def _lines_of(data: pa.Buffer, starts: Int64s) -> Int64s:
    """Lines before each start."""
    ends = np.flatnonzero(as_array(data) == ord("\n")) + 1
    lines: Int64s = np.searchsorted(ends, starts, side="right").astype(np.int64)
    return lines


def _last_record_end(data: bytes, *, quoted: bool, escape: str) -> int:
    if not quoted and not escape:
        return data.rfind(b"\n") + 1
    ends = _record_ends(pa.py_buffer(data), quoted=quoted, escape=escape)
    return int(ends[-1]) if len(ends) else 0


def _next_line_end(data: bytes, start: int, escape: str) -> int:
    """The first line end from a position on that ends a value; -1 if there is none."""
    at = data.find(b"\n", start)
    while escape and at >= 0:
        before = data[max(at - _MOST_ESCAPES, 0) : at]
        if not (len(before) - len(before.rstrip(escape.encode()))) % 2:
            break
        at = data.find(b"\n", at + 1)
    return at


def _lines_before(file: SourceFile, start: int, *, aligned: bool, escape: str) -> int:
    """Lines before the first record of a range."""
    with _opened(file) as stream:
        rest = start if aligned else _record_start(stream, file, start, escape)
        if not aligned:
            stream.seek(0)
        lines = 0
        while rest > 0 and (data := stream.read(min(rest, BLOCK_BYTES))):
            lines += data.count(b"\n")
            rest -= len(data)
    return lines


def _seek(
    stream: pa.NativeFile, file: SourceFile, start: int, *, aligned: bool, escape: str
) -> int:
    """Go to the first record of a range; returns where it begins."""
    if not aligned:
        start = _record_start(stream, file, start, escape)
    if file.compression is None:
        stream.seek(start)
    elif start:
        stream.read(start)
    return start


def _record_start(stream: pa.NativeFile, file: SourceFile, start: int, escape: str) -> int:
    """Where the first record begins that does so at a position or behind it.

    Raises
    ------
    FormatError
        The record before has more than 1 GiB.
    """
    at = start - 1
    before = b""
    if escape:
        stream.seek(max(at - _MOST_ESCAPES, 0))
        before = stream.read(min(at, _MOST_ESCAPES))
    stream.seek(at)
    while data := stream.read(1 << 16):
        found = _next_line_end(before + data, len(before), escape)
        if found >= 0:
            return int(at + found - len(before) + 1)
        at += len(data)
        _refuse_beyond(file, at - start)
        before = data[-_MOST_ESCAPES:] if escape else b""
    return at
