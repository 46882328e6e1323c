"""How deeply JSON is nested, before Arrow infers types from it.

That recurses: 200 KB of brackets ended the process. With types that are given it does not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.nesting import MAX_NESTING, without_json_strings

__all__ = ["refuse_deep", "refuse_deep_files"]

_HIDDEN: Final = re.compile("/[._]")
"""In the path of a file below a folder."""

_BLOCK_BYTES: Final = 16 << 20
_LONGEST_LINE: Final = 1 << 30
"""Of a file that may be compressed, where a few bytes can stand for any number."""

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
    marks = np.frombuffer(without_json_strings(text), np.uint8) | _BRACE
    marks = marks[(marks == ord("{")) | (marks == ord("}"))]
    # A line of closing ones alone must not make room for the next.
    depths = np.concatenate([[0], np.cumsum(np.where(marks == ord("{"), 1, -1))])
    if int((depths - np.minimum.accumulate(depths)).max()) > MAX_NESTING:
        raise pa.ArrowInvalid(f"JSON is nested deeper than {MAX_NESTING} levels. Flatten it")


def refuse_deep_files(place: Path) -> None:
    """The same for a file, or all files of a folder; of compressed ones, for what they hold.

    Raises
    ------
    pyarrow.ArrowInvalid
        A file is nested too deeply, or has a line of more than 1 GiB.
    """
    below = [] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    # Arrow skips those with such names, too.
    read = [path for path in below if not _HIDDEN.search(f"/{path.relative_to(place).as_posix()}")]
    for path in [place] if place.is_file() else read:
        try:
            _refuse_deep_file(path)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"{path}: {error}") from None


def _refuse_deep_file(path: Path) -> None:
    with pa.input_stream(str(path)) as source:
        rest = b""
        while data := source.read(_BLOCK_BYTES):
            lines, _, rest = (rest + data).rpartition(b"\n")
            refuse_deep(lines)
            if len(rest) > _LONGEST_LINE:
                raise pa.ArrowInvalid(f"a line has more than {_LONGEST_LINE:,} bytes")
        refuse_deep(rest)
