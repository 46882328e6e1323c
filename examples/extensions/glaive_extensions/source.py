"""Add the format ``pairs``: files of lines such as ``red=3``, with the suffix ``.pairs``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    known_options,
    open_source,
)

_SCHEMA = pa.schema({"name": pa.string(), "value": pa.int64()})


class Pairs(SourceFormat):
    """A format of names and integers without options."""

    name, suffixes = "pairs", (".pairs",)

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ())

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return the columns, the same for every file."""
        return _SCHEMA

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield one batch with all lines of a file."""
        with open_source(piece.file) as source:
            pairs = [line.split("=") for line in source.read().decode().splitlines()]
        names, values = [name for name, _ in pairs], [int(value) for _, value in pairs]
        yield pa.record_batch([names, values], schema=_SCHEMA)
