"""Plain text: a row for each line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.dataset.blobs import blob_array, blob_field
from glaive.errors import FormatError, MissingDependencyError
from glaive.ingestion.formats.options import byte_pieces, known_options, option
from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    open_source,
    parse_blocks,
    record_starts,
)
from glaive.io.failures import as_store_errors
from glaive.memory import as_array, as_buffer

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


# --- Whole files as rows: images, audio or anything else, as blobs with their facts -----

_FIELDS = (
    pa.field("path", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("modified", pa.timestamp("us", "UTC")),
    pa.field("sha256", pa.string(), nullable=False),
)
_IMAGE_FIELDS = (
    pa.field("width", pa.int32()),
    pa.field("height", pa.int32()),
    pa.field("format", pa.string()),
)


class Binary(SourceFormat):
    """A row for each file: ``path``, ``size``, ``modified``, ``sha256`` and the bytes.

    Options: ``content`` (``content``: name of the column with the bytes, which are blobs).
    """

    name = "binary"
    _extra: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ("content",))
        self._content = option(options, "content", "content")

    def schema(self, file: SourceFile) -> pa.Schema:  # the same for all
        """The columns, the same for every file."""
        return pa.schema([*_FIELDS, *self._extra, blob_field(self._content, nullable=False)])

    def read(
        self, piece: Piece, schema: pa.Schema, rejects: Rejects
    ) -> Iterator[Rows]:  # always the same
        """One row; memory for the file."""
        try:
            row = self._row(piece.file, rejects)
        except MemoryError as error:
            raise FormatError(
                f"{piece.file.uri}: {piece.file.size} bytes are one value, and there is too little "
                "memory for it. Leave the file out, or give the process more"
            ) from error
        if row is not None:
            yield row

    def _row(self, file: SourceFile, rejects: Rejects) -> Rows | None:
        """The row of a file; None for one that is rejected."""
        with open_source(file) as source, as_store_errors(file.uri, "read"):
            content = source.read()
        facts = self._facts(file, content, rejects)
        if facts is None:
            return None
        digest = hashlib.sha256(content).hexdigest()
        values = [file.named[1], len(content), file.modified, digest, *facts]
        arrays = [
            pa.array([value], field.type)
            for value, field in zip(values, (*_FIELDS, *self._extra), strict=True)
        ]
        return pa.table([*arrays, blob_array([content])], schema=self.schema(file))

    def _facts(
        self, file: SourceFile, content: bytes, rejects: Rejects
    ) -> list[Any] | None:  # of subclasses
        """Values of further columns; None for a file that is rejected."""
        return []


class Images(Binary):
    """As :class:`Binary`, and ``width``, ``height`` and ``format`` of images, read by Pillow."""

    name = "images"
    suffixes: ClassVar[tuple[str, ...]] = (
        ".jpg",
        ".jpeg",
        ".png",
        ".webp",
        ".gif",
        ".bmp",
        ".tiff",
    )
    _extra = _IMAGE_FIELDS

    def _facts(self, file: SourceFile, content: bytes, rejects: Rejects) -> list[Any] | None:
        try:
            images: Any = import_module("PIL.Image")
        except ImportError as error:
            raise MissingDependencyError(
                "images: Pillow is not installed: pip install 'glaive[images]'; or use "
                "format='binary', which does not look into the files"
            ) from error
        try:
            with images.open(BytesIO(content)) as image:
                return [image.width, image.height, image.format]
        except MemoryError:
            raise
        except Exception as error:  # any: each format is a plugin of its own
            rejects.add(file, None, f"not an image: {error}", content)
            return None
