"""Cutting files into ranges."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from glaive.ingestion.formats.protocol import Piece
from glaive.ingestion.sources import SourceFile

__all__ = ["byte_pieces", "grouped_pieces"]

_MOST_PIECES: Final = 10_000
"""Of a file: what a server, or a file with holes, says of its size may be any number."""


def byte_pieces(file: SourceFile, target_bytes: int, *, whole: bool) -> list[Piece]:
    """Ranges of bytes of about the same size; a compressed file is one."""
    wanted = 1 if whole or file.compression else round(file.size / target_bytes)
    count = min(max(1, wanted), _MOST_PIECES)
    edges = [file.size * number // count for number in range(count)]
    return [
        Piece(file, start, stop, (stop or file.size) - start)
        for start, stop in pairwise([*edges, None])
        if start is not None
    ]


def grouped_pieces(file: SourceFile, sizes: list[int], target_bytes: int) -> list[Piece]:
    """Ranges of consecutive parts of a file, such as row groups, of about so many bytes.

    Parameters
    ----------
    sizes
        Bytes of each part.
    """
    pieces, start, size = [], 0, 0
    for number, part in enumerate(sizes):
        if size and size + part > target_bytes:
            pieces.append(Piece(file, start, number, size))
            start, size = number, 0
        size += part
    if sizes:
        pieces.append(Piece(file, start, len(sizes), size))
    return pieces
