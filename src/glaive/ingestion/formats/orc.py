"""ORC: stripes become tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from glaive.errors import CorruptFileError, FormatError
from glaive.ingestion.formats.options import known_options
from glaive.ingestion.formats.orc_zones import ZonesOfStripes
from glaive.ingestion.formats.protocol import Piece, Rows, SourceFormat
from glaive.ingestion.formats.ranges import grouped_pieces
from glaive.ingestion.rejects import Rejects, refuse_failure
from glaive.ingestion.sources import SourceFile, open_source

__all__ = ["Orc"]


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
