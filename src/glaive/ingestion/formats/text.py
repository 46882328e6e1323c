"""Plain text: a row for each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from glaive.ingestion.formats.options import known_options
from glaive.ingestion.formats.protocol import Piece, Rows, SourceFormat
from glaive.ingestion.formats.ranges import byte_pieces
from glaive.ingestion.records import parse_blocks, record_starts
from glaive.ingestion.rejects import Rejects
from glaive.ingestion.sources import SourceFile
from glaive.memory import as_array, as_buffer

__all__ = ["Text"]

_SCHEMA = pa.schema([pa.field("value", pa.string())])


class Text(SourceFormat):
    """Lines of UTF-8 as a column ``value``, without their ends. No options."""

    name = "text"
    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".log", ".md")

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ())

    def schema(self, file: SourceFile) -> pa.Schema:  # the same for all
        """The column ``value``."""
        return _SCHEMA

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Ranges of bytes; compressed files stay whole."""
        return byte_pieces(file, target_bytes, whole=False)

    def read(
        self, piece: Piece, schema: pa.Schema, rejects: Rejects
    ) -> Iterator[Rows]:  # always the same
        """Tables of about 16 MiB of text."""
        yield from parse_blocks(
            piece.file, _lines, rejects, piece.start, piece.stop, aligned=not piece.start
        )


def _lines(data: pa.Buffer) -> pa.Table:
    """Lines as strings; raises ``ArrowInvalid`` where they are not UTF-8."""
    starts = record_starts(data, quoted=False)
    values = as_array(data)
    ends = starts[1:].copy()
    for end in (ord("\n"), ord("\r")):
        filled = ends > starts[:-1]
        ends[filled] -= values[ends[filled] - 1] == end
    kept = np.ones(data.size, np.bool_)
    removed = np.repeat(ends, starts[1:] - ends)
    if len(removed):
        within = np.arange(len(removed)) - np.repeat(
            np.cumsum(starts[1:] - ends) - (starts[1:] - ends), starts[1:] - ends
        )
        kept[removed + within] = False
    offsets = np.zeros(len(ends) + 1, np.int32)
    np.cumsum(ends - starts[:-1], out=offsets[1:])
    texts = pa.StringArray.from_buffers(len(ends), as_buffer(offsets), as_buffer(values[kept]))
    texts.validate(full=True)
    return pa.table([texts], schema=_SCHEMA)
