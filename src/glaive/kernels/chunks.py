"""Mini-block chunks: headers into piece positions, pieces into chunks, rows among levels.

A chunk is a header and some *pieces*: repetition levels, definition levels, value buffers.

====================== =========== ======================================================
part                   bytes       meaning
====================== =========== ======================================================
level count            2           entries in the chunk; 0 when the page has no levels
size of repetition     2           only when the page has repetition levels
size of definition     2           only when the page has definition levels
size of value buffer k 2 or 4      one per value buffer; 4 in pages with large chunks
fill                   to 8        ``0xFE``
pieces                 each to 8   in the order of their sizes, each followed by fill
====================== =========== ======================================================

Specification: "Chunks" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import outside
from glaive.kernels._tier import use_loops
from glaive.kernels.native import chunks as loops
from glaive.memory import allocate, as_array
from glaive.types import Where

__all__ = [
    "ChunkHeaders",
    "assemble_chunks",
    "count_levels",
    "exercise",
    "find_row",
    "header_size",
    "most_levels",
    "parse_headers",
]

FILL = 0xFE
"""The byte after headers and pieces; readers ignore it."""


LEVELS_PER_BYTE = 255
"""Repetition levels other than 0 that a byte stands for at most: the length of a run."""


class ChunkHeaders(NamedTuple):
    """What the headers of some chunks say.

    ``levels[i]`` is the number of entries of chunk i. Piece p of chunk i lies at
    ``starts[p, i]`` of the data and has ``sizes[p, i]`` bytes. All are ``int64``.
    """

    levels: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


def header_size(level_pieces: int, value_pieces: int, value_width: int) -> int:
    """Bytes of a chunk header without its fill."""
    return 2 + 2 * level_pieces + value_width * value_pieces


def parse_headers(
    data: pa.Buffer,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    *,
    level_pieces: int,
    value_pieces: int,
    value_width: int,
    where: Where,
) -> ChunkHeaders:
    """Find the pieces of each chunk ``data[starts[i] : starts[i] + sizes[i]]``.

    Every piece returned lies within its chunk.

    Parameters
    ----------
    level_pieces, value_pieces
        Pieces per chunk: 0 to 2 of levels, and the value buffers.
    value_width
        Bytes of a value buffer's size: 2, or 4 in pages with large chunks.
    """
    chunks, pieces = len(starts), level_pieces + value_pieces
    _check_within(data, starts, sizes, where)
    memory = as_array(allocate(8 * chunks * (1 + 2 * pieces)), np.int64)
    levels = memory[:chunks]
    piece_starts = memory[chunks : chunks * (1 + pieces)].reshape(pieces, chunks)
    piece_sizes = memory[chunks * (1 + pieces) :].reshape(pieces, chunks)
    if use_loops(chunks * 64):
        starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
        bad = loops.parse_headers(
            address(data),
            address(starts),
            address(sizes),
            chunks,
            level_pieces,
            value_pieces,
            value_width,
            address(levels),
            address(piece_starts),
            address(piece_sizes),
        )
    else:
        bad = _parse_headers_numpy(
            as_array(data),
            starts,
            sizes,
            (level_pieces, value_width),
            ChunkHeaders(levels, piece_starts, piece_sizes),
        )
    if bad >= 0:
        raise CorruptFileError(
            "mini-block chunk header",
            expected=f"a header and {pieces} buffers within {sizes[bad]} bytes",
            found="sizes that add up to more",
            where=f"{where}, chunk at byte {starts[bad]}",
        )
    return ChunkHeaders(levels, piece_starts, piece_sizes)


def _parse_headers_numpy(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    form: tuple[int, int],
    out: ChunkHeaders,
) -> int:
    level_pieces, value_width = form
    pieces = len(out.starts)
    head = header_size(level_pieces, pieces - level_pieces, value_width)
    short = sizes < head
    if short.any():
        return int(np.argmax(short))
    raw = data[starts[:, None] + np.arange(head)]
    out.levels[:] = raw[:, :2].copy().view("<u2")[:, 0]
    position = np.full(len(starts), (head + 7) & ~7)
    over = np.zeros(len(starts), np.bool_)
    at = 2
    for piece in range(pieces):
        width = 2 if piece < level_pieces else value_width
        size = raw[:, at : at + width].copy().view(f"<u{width}")[:, 0].astype(np.int64)
        over |= position + size > sizes
        out.starts[piece] = starts + position
        out.sizes[piece] = size
        position += (size + 7) & ~7
        at += width
    return int(np.argmax(over)) if over.any() else -1


def count_levels(
    rep: NDArray[np.uint16] | None,
    definition: NDArray[np.uint16] | None,
    *,
    max_rep: int,
    visible_max: int,
    max_def: int,
    where: Where,
) -> tuple[int, int]:
    """Check the levels of some entries; return ``(row starts, visible entries)``.

    A row starts where the repetition level is ``max_rep``; an entry is visible when its
    definition level is at most ``visible_max``. One of the two arrays may be missing; a
    level above ``max_rep`` or ``max_def`` is a ``CorruptFileError``.
    """
    levels = rep if rep is not None else definition
    entries = 0 if levels is None else len(levels)
    if rep is not None and definition is not None and len(definition) != entries:
        raise CorruptFileError(
            "definition levels",
            expected=f"{entries}, one per repetition level",
            found=f"{len(definition)}",
            where=where,
        )
    if use_loops(entries):
        rep = None if rep is None else np.ascontiguousarray(rep)
        definition = None if definition is None else np.ascontiguousarray(definition)
        counted = loops.count_levels(
            0 if rep is None else address(rep),
            0 if definition is None else address(definition),
            entries,
            max_rep,
            visible_max,
            max_def,
        )
        rows, visible, bad_rep, bad_def = (int(count) for count in counted)
    else:
        rows, visible, bad_rep, bad_def = _count_levels_numpy(
            rep, definition, entries, max_rep, visible_max, max_def
        )
    if bad_rep or bad_def:
        kind, top = ("repetition", max_rep) if bad_rep else ("definition", max_def)
        raise CorruptFileError(
            f"{kind} levels",
            expected=f"levels of at most {top}",
            found=f"{bad_rep or bad_def} higher ones",
            where=where,
        )
    return rows, visible


def _count_levels_numpy(
    rep: NDArray[np.uint16] | None,
    definition: NDArray[np.uint16] | None,
    entries: int,
    max_rep: int,
    visible_max: int,
    max_def: int,
) -> tuple[int, int, int, int]:
    rows = hidden = bad_rep = bad_def = 0
    if rep is not None:
        rows = int(np.count_nonzero(rep == max_rep))
        bad_rep = int(np.count_nonzero(rep > max_rep))
    if definition is not None:
        hidden = int(np.count_nonzero(definition > visible_max))
        bad_def = int(np.count_nonzero(definition > max_def))
    return rows, entries - hidden, bad_rep, bad_def


def most_levels(
    counts: NDArray[np.int64],
    row_starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    *,
    max_rep: int,
) -> int:
    """Levels that chunks of a page with lists have at most, together.

    An entry without a value begins a row. With lists in lists it may begin an inner list
    instead: then its repetition level is not 0, and takes bytes.

    Parameters
    ----------
    counts, sizes
        Values and bytes of each chunk.
    row_starts
        Rows ``row_starts[i]`` to ``row_starts[i + 1]`` start in chunk i.
    """
    most = int(counts.sum()) + int(row_starts[-1]) - int(row_starts[0])
    return most + (LEVELS_PER_BYTE * int(sizes.sum()) if max_rep > 1 else 0)


def find_row(rep: NDArray[np.uint16], max_rep: int, row: int) -> int:
    """Return the entry at which row number ``row`` (from 0) of these entries begins.

    The number of entries, when fewer rows begin here.
    """
    if use_loops(len(rep)):
        rep = np.ascontiguousarray(rep)
        return int(loops.find_row(address(rep), len(rep), max_rep, row))
    return _find_row_numpy(rep, max_rep, row)


def _find_row_numpy(rep: NDArray[np.uint16], max_rep: int, row: int) -> int:
    found = np.flatnonzero(rep == max_rep)
    return int(found[row]) if row < len(found) else len(rep)


def assemble_chunks(
    levels: NDArray[np.int64],
    level_pieces: list[tuple[NDArray[np.uint8], NDArray[np.int64]]],
    value_pieces: list[tuple[NDArray[np.uint8], NDArray[np.int64]]],
    *,
    value_width: int,
) -> tuple[pa.Buffer, NDArray[np.int64]]:
    """Build the chunks from their pieces; return their bytes and the size of each.

    Parameters
    ----------
    levels
        Entries per chunk, at most 65535.
    level_pieces, value_pieces
        Per piece the bytes of all chunks back to back, and the size in each chunk. Sizes fit
        the header: two bytes for levels, ``value_width`` for values.
    value_width
        Bytes of a value buffer's size in the header: 2 or 4.
    """
    parts = [*level_pieces, *value_pieces]
    chunks = len(levels)
    sizes = np.empty((len(parts), chunks), np.int64)
    for piece, (data, piece_sizes) in enumerate(parts):
        limit = 1 << (16 if piece < len(level_pieces) else 8 * value_width)
        fits = int(piece_sizes.sum()) == len(data) and not (piece_sizes >= limit).any()
        if len(piece_sizes) != chunks or not fits or (piece_sizes < 0).any():
            raise ValueError(
                f"piece {piece} has {len(data)} bytes, its sizes add up to {piece_sizes.sum()} "
                f"over {len(piece_sizes)} of {chunks} chunks, the largest {piece_sizes.max()}"
            )
        sizes[piece] = piece_sizes
    head = header_size(len(level_pieces), len(value_pieces), value_width)
    chunk_sizes = ((head + 7) & ~7) + ((sizes + 7) & ~7).sum(0, dtype=np.int64)
    starts = np.cumsum(chunk_sizes) - chunk_sizes
    out = allocate(int(chunk_sizes.sum()))
    # Bytes past the last level or value are never asked for: only whole arrays are copied.
    sources = [np.ascontiguousarray(data) for data, _ in parts]
    if use_loops(out.size):
        addresses = np.array([address(source) for source in sources], np.int64)
        levels = np.ascontiguousarray(levels, np.int64)
        loops.assemble(
            address(out),
            address(starts),
            chunks,
            address(levels),
            len(level_pieces),
            len(value_pieces),
            value_width,
            address(addresses),
            address(sizes),
            FILL,
        )
    else:
        _assemble_numpy(
            as_array(out), starts, levels, sources, sizes, (len(level_pieces), value_width)
        )
    return out, chunk_sizes


def _assemble_numpy(
    out: NDArray[np.uint8],
    starts: NDArray[np.int64],
    levels: NDArray[np.int64],
    sources: list[NDArray[np.uint8]],
    sizes: NDArray[np.int64],
    form: tuple[int, int],
) -> None:
    level_pieces, value_width = form
    out[:] = FILL
    fields = [levels.astype("<u2")[:, None].view(np.uint8)]
    for piece, size in enumerate(sizes):
        width = 2 if piece < level_pieces else value_width
        fields.append(size.astype(f"<u{width}")[:, None].view(np.uint8))
    header = np.concatenate(fields, axis=1)
    out[starts[:, None] + np.arange(header.shape[1])] = header
    position = starts + ((header.shape[1] + 7) & ~7)
    for source, size in zip(sources, sizes, strict=True):
        # One flag per byte of the output: bytes between pieces, piece, bytes between, …
        edges = np.empty(2 * len(starts) + 1, np.int64)
        edges[0:-1:2], edges[1::2], edges[-1] = position, position + size, len(out)
        lengths = np.diff(edges, prepend=0)
        flags = np.zeros(len(lengths), np.bool_)
        flags[1::2] = True
        out[np.repeat(flags, lengths)] = source
        position = position + ((size + 7) & ~7)


def _check_within(
    data: pa.Buffer, starts: NDArray[np.int64], sizes: NDArray[np.int64], where: Where
) -> None:
    wrong = outside(starts, sizes, data.size)
    if wrong.any():
        bad = int(wrong.argmax())
        raise CorruptFileError(
            "mini-block chunks",
            expected=f"chunks within {data.size} bytes",
            found=f"{sizes[bad]} bytes at byte {starts[bad]}",
            where=where,
        )


def exercise() -> None:
    """Call every wrapper once; used to warm up the compiled loops."""
    place = Where("warm-up")
    rep = np.array([1, 0] * 40, np.uint16)
    pieces = [(np.arange(12, dtype=np.uint8), np.array([5, 7]))]
    for width in (2, 4):
        data, sizes = assemble_chunks(np.array([2, 3]), pieces, pieces, value_width=width)
        parse_headers(
            data,
            np.cumsum(sizes) - sizes,
            sizes,
            level_pieces=1,
            value_pieces=1,
            value_width=width,
            where=place,
        )
    count_levels(rep, rep, max_rep=1, visible_max=0, max_def=1, where=place)
    find_row(rep, 1, 30)
