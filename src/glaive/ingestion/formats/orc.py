"""ORC: stripes become tables."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError, FormatError, UnsupportedFeatureError
from glaive.format.wire import field_values
from glaive.ingestion.formats.options import grouped_pieces, known_options
from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    open_source,
    refuse_failure,
)
from glaive.kernels.flat import lz4_sizes

# --- Time zones that ORC files name, checked before Arrow: it opens the file of any path
# A stripe says in which zone its writer was, where it has times without one. Arrow looks for it
# below the zones of this machine by the name as it is, so that one with ``..`` is any file of it,
# or a pipe, for whose writer it waits.

_STRIPES: Final = 3
"""Number of the field of a footer that has the stripes."""

_OFFSET, _INDEX, _DATA, _FOOTER = 1, 2, 3, 4
"""Those of a stripe: where it begins, and how long its parts are."""

_ZONE: Final = 3
"""That of the footer of a stripe with the name of the zone."""

_CODECS: Final = ("LZ4", "SNAPPY", "ZLIB", "ZSTD")
_HEAD: Final = 3
_MOST: Final = 64 << 20
"""Bytes of a footer, decompressed."""


class ZonesOfStripes:
    """The zones of the stripes of a file; one request if there are any, and one for each stripe.

    Parameters
    ----------
    source
        The file.
    opened
        As Arrow has opened it.
    file
        Of this place.

    Raises
    ------
    CorruptFileError
        Its footer cannot be read.
    StoreError
        The store, or the system, failed.
    """

    def __init__(self, source: pa.NativeFile, opened: Any, file: SourceFile) -> None:
        self._source, self._opened, self._file = source, opened, file
        self._where = file.uri
        self._stripes: list[bytes] | None = None
        if any(_has_local_times(field.type) for field in opened.schema):
            size = opened.file_footer_length
            end = opened.file_length - 1 - opened.file_postscript_length
            footer = self._footer(end - size, size)
            self._stripes = field_values(footer, _STRIPES, bytes, "footer of an ORC file", file.uri)

    def check(self, number: int) -> None:
        """Refuse a stripe whose zone is a path that leads elsewhere.

        Raises
        ------
        CorruptFileError
            It is, or its footer cannot be read.
        """
        if self._stripes is None:
            return
        offset, index, data, size = (
            # Of several values, the last one counts.
            sum(field_values(self._stripes[number], key, int, "stripe", self._where)[-1:])
            for key in (_OFFSET, _INDEX, _DATA, _FOOTER)
        )
        footer = self._footer(offset + index + data, size)
        for zone in field_values(footer, _ZONE, bytes, "footer of a stripe", self._where):
            if b".." in zone.split(b"/"):
                raise self._damaged("the name of a time zone", f"{zone!r:.200}")

    def _footer(self, start: int, size: int) -> bytes:
        if start < 0 or size > _MOST or start + size > self._opened.file_length:
            raise self._damaged("a footer within the file", f"{size} bytes at {start}")
        try:
            codec, limit = self._opened.compression, min(self._opened.compression_size, _MOST)
            self._source.seek(start)
            data = self._source.read(size)
        except (pa.ArrowException, OSError) as error:
            refuse_failure(self._file, error)
            raise self._damaged("a footer", f"{error}") from error
        if codec == "UNCOMPRESSED":
            return data
        parts, at, made = [], 0, 0
        while at + _HEAD <= len(data):
            head = int.from_bytes(data[at : at + _HEAD], "little")
            at += _HEAD
            piece = data[at : at + (head >> 1)]
            at += head >> 1
            parts.append(piece if head & 1 else self._decompressed(codec, piece, limit))
            made += len(parts[-1])
            if made > _MOST:
                raise self._damaged(f"a footer of at most {_MOST} bytes", "a longer one")
        return b"".join(parts)

    def _decompressed(self, codec: str, piece: bytes, limit: int) -> bytes:
        """A block of a footer, of at most so many bytes."""
        if codec not in _CODECS:
            raise UnsupportedFeatureError(
                f"{self._where}: times without a zone in an ORC file that {codec} compresses. "
                "Write it with another codec, or with times in UTC"
            )
        try:
            if codec == "ZLIB":
                return zlib.decompressobj(-zlib.MAX_WBITS).decompress(piece, limit)
            if codec == "ZSTD":
                with pa.input_stream(pa.py_buffer(piece), compression="zstd") as stream:
                    return stream.read(limit)
            size = _size_of_lz4(piece, limit) if codec == "LZ4" else _size_of_snappy(piece)
            if not 0 <= size <= limit:
                raise self._damaged(f"a block of at most {limit} bytes", f"{size} bytes")
            made: Any = pa.decompress(piece, size, "lz4_raw" if codec == "LZ4" else "snappy")
        except (zlib.error, pa.ArrowException, OSError) as error:
            raise self._damaged(f"a block of {codec}", f"{error}") from error
        return bytes(made)

    def _damaged(self, expected: str, found: str) -> CorruptFileError:
        return CorruptFileError("ORC file", expected=expected, found=found, where=self._where)


def _size_of_lz4(piece: bytes, limit: int) -> int:
    start, size, most = (np.array([number], np.int64) for number in (0, len(piece), limit))
    return int(lz4_sizes(pa.py_buffer(piece), start, size, most, "a footer")[0])


def _size_of_snappy(piece: bytes) -> int:
    """How long a block says that it is: seven bits in each byte, the lowest first."""
    size = 0
    for at, byte in enumerate(piece[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size
    return -1


def _has_local_times(kind: Any) -> bool:
    """Whether there are times without a zone at any depth."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_local_times(kind.field(at).type) for at in range(kind.num_fields))


class Orc(SourceFormat):
    """ORC files. No options."""

    name = "orc"
    suffixes: ClassVar[tuple[str, ...]] = (".orc",)

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ())

    def schema(self, file: SourceFile) -> pa.Schema:
        """Columns from the footer."""
        with open_source(file) as source:
            schema: pa.Schema = _opened(source, file).schema
        return schema.remove_metadata()

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Runs of stripes."""
        if file.size <= target_bytes:
            return [Piece(file, 0, None, file.size)]
        with open_source(file) as source:
            stripes = _opened(source, file).nstripes
        sizes = [file.size // stripes] * stripes if stripes else []
        return grouped_pieces(file, sizes, target_bytes)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """A batch for each stripe, which is the memory needed."""
        with open_source(piece.file) as source:
            opened = _opened(source, piece.file)
            given = set(opened.schema.names)
            names = [name for name in schema.names if name in given]
            stop = opened.nstripes if piece.stop is None else piece.stop
            zones = ZonesOfStripes(source, opened, piece.file)
            for number in range(piece.start, stop):
                try:
                    zones.check(number)
                    stripe = opened.read_stripe(number, columns=names)
                except CorruptFileError as error:
                    rejects.add(piece.file, None, f"stripe {number} is damaged: {error}", None)
                    continue
                except (pa.ArrowException, OSError) as error:
                    rejects.add_damaged(piece.file, f"stripe {number}", error)
                    continue
                yield stripe


def _opened(source: pa.NativeFile, file: SourceFile) -> Any:
    from pyarrow import orc

    try:
        opened = orc.ORCFile(source)
        _ = opened.schema  # made now, of types that Arrow may not have
    except (pa.ArrowException, OSError) as error:
        refuse_failure(file, error)
        raise FormatError(f"{file.uri} is not an ORC file: {error}") from error
    return opened
