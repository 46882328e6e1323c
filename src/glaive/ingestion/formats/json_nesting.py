"""How deeply JSON is nested, before Arrow infers types from it; files that it parses as a whole.

That recurses: 200 KB of brackets ended the process. With types that are given it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from glaive.arrow.nesting import MAX_NESTING, without_json_strings
from glaive.ingestion.formats.json_cells import count_names, refuse_many_cells
from glaive.ingestion.formats.json_nulls import refuse_null_records
from glaive.io.holes import refuse_holes

__all__ = ["check_files", "open_lines", "refuse_deep"]

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

_WINDOW: Final = 1 << 20
"""Bytes that are counted at a time: their numbers take some 40 times as much."""

_BRACE: Final = 0x20
"""The bit that is the difference between brackets and braces."""


def refuse_deep(text: bytes | memoryview) -> None:
    """Refuse lines of JSON that are nested too deeply.

    Raises
    ------
    pyarrow.ArrowInvalid
        A line, or lines that are no JSON together, have more than
        :data:`~glaive.arrow.nesting.MAX_NESTING` levels, the record included.
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
