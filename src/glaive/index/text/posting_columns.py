"""Posting lists as columns of a file: blocks, scores, impacts and positions.

Specification: "Postings" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import spread
from glaive.arrow.chunked import as_numpy, one_array
from glaive.dataclass import NamedTuple
from glaive.errors import CorruptFileError
from glaive.index.segment import IndexFile
from glaive.index.text.postings import (
    Blocks,
    Elements,
    Postings,
    bytes_array,
    check_positions,
    decode_document_positions,
    elements_of,
    encode_document_positions,
    encode_positions,
    encode_postings,
    encode_varints,
    lists_array,
    lists_of,
    numbers_of,
    occurrences,
    position_steps,
)
from glaive.index.text.text_format import ELEMENT, PostingLayout
from glaive.index.text.tokens import token_columns
from glaive.kernels.text_search import decode_lists, decode_positions
from glaive.types import Float32s, Int64s, UInt32s

# --- Impacts: for each block of documents the best pairs of frequency and length, which bound
# scores
#
# Specification: "Impacts" in ``docs/format/text-indices.md``.

_GROUP = 32
"""Blocks of a group."""


_MAX_FREQUENCY = np.int64(0xFFFF_FFFF)
"""Largest frequency."""


class _Pairs(NamedTuple):
    """Pairs of several sets, one set after the other, frequencies ascending in each."""

    of: Int64s
    frequencies: Int64s
    codes: Int64s


def encode_impacts(postings: Postings, blocks: Blocks, codes: Int64s) -> tuple[Elements, Int64s]:
    """Impacts of each list: of its blocks, then of groups of 32 blocks; and how many it has.

    Parameters
    ----------
    codes
        Lengths of the documents, as one byte each.
    """
    last = postings.documents[blocks.begins + blocks.sizes - 1].astype(np.int64)
    fine = _best_of_blocks(postings, blocks, codes)
    groups = -(-blocks.of_list // _GROUP)
    first = np.cumsum(groups) - groups
    within = spread(np.zeros(len(groups), np.int64), blocks.of_list)
    group = np.repeat(first, blocks.of_list) + within // _GROUP
    count = int(groups.sum())
    coarse = _best(_Pairs(group[fine.of], fine.frequencies, fine.codes))
    ends = np.flatnonzero(np.diff(group, append=-1) != 0) if len(group) else group
    elements = _encode(fine, last), _encode(coarse, last[ends])
    # In each list, blocks come before groups of blocks.
    lists = len(groups)
    of_block = np.repeat(np.arange(lists), blocks.of_list)
    of_group = np.repeat(np.arange(lists), groups)
    order = np.argsort(np.concatenate([2 * of_block, 2 * of_group + 1]), kind="stable")
    sizes = np.concatenate([np.diff(element.offsets) for element in elements])
    data = np.concatenate([element.data for element in elements])
    starts = np.cumsum(sizes) - sizes
    reordered = data[spread(starts[order], sizes[order])]
    offsets = np.concatenate([[0], np.cumsum(sizes[order])])
    if len(order) != len(group) + count:
        raise ValueError(f"{len(order)} impacts of {len(group)} blocks in {count} groups")
    return Elements(offsets, reordered), blocks.of_list + groups


def _best_of_blocks(postings: Postings, blocks: Blocks, codes: Int64s) -> _Pairs:
    """The Pareto-optimal pairs of each block."""
    parts = [_Pairs(*(np.zeros(0, np.int64) for _ in _Pairs._fields))]
    for some, within in blocks.windows():
        number = np.repeat(np.arange(some.start, some.stop), blocks.sizes[some])
        frequencies = postings.frequencies[within].astype(np.int64)
        parts.append(_best(_Pairs(number, frequencies, codes[postings.documents[within]])))
    return _Pairs(*map(np.concatenate, zip(*parts, strict=True)))


def _best(pairs: _Pairs) -> _Pairs:
    """The Pareto-optimal pairs of each set: no other pair is as good in both values."""
    # By set, the most frequent first, then the shortest: as one integer each, which sorts fast.
    keys = np.sort(pairs.of << 40 | (_MAX_FREQUENCY - pairs.frequencies) << 8 | pairs.codes)
    of, frequencies, codes = keys >> 40, _MAX_FREQUENCY - (keys >> 8 & _MAX_FREQUENCY), keys & 255
    # Keys of each set are below those of the set before, so that the minimum restarts.
    low = np.minimum.accumulate(codes - 256 * of)
    better = np.ones(len(of), np.bool_)
    better[1:] = low[1:] < low[:-1]
    of, frequencies, codes = of[better], frequencies[better], codes[better]
    order = np.lexsort((frequencies, of))
    return _Pairs(of[order], frequencies[order], codes[order])


def _encode(pairs: _Pairs, last: Int64s) -> Elements:
    sets = len(last)
    counts = np.bincount(pairs.of, minlength=sets)
    first = np.cumsum(counts) - counts
    previous = np.concatenate([[-1], pairs.of[:-1]]) == pairs.of
    frequencies = np.diff(pairs.frequencies, prepend=0)
    codes = np.diff(pairs.codes, prepend=0)
    frequencies[~previous] = pairs.frequencies[~previous]
    codes[~previous] = pairs.codes[~previous]
    explicit = codes != 1
    steps, step_sizes = encode_varints(((frequencies - 1) << 1) | explicit)
    heads, head_sizes = encode_varints(np.stack([last, counts], axis=1).reshape(-1))
    head_sizes = head_sizes.reshape(-1, 2).sum(axis=1)
    own = step_sizes + explicit
    sums = np.concatenate([[0], np.cumsum(own)])
    sizes = head_sizes + (sums[first + counts] - sums[first])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[spread(offsets[:-1], head_sizes)] = heads
    begins = (offsets[:-1] + head_sizes)[pairs.of] + (sums[:-1] - sums[first][pairs.of])
    data[spread(begins, step_sizes)] = steps
    data[(begins + step_sizes)[explicit]] = codes[explicit]
    return Elements(offsets, data)


# --- BM25 scores of documents for a token, and the best score of each block -------------
# Specification: "Scores" in ``docs/format/text-indices.md``.

_K1 = np.float32(1.2)
_B = np.float32(0.75)


def best_scores(
    postings: Postings, blocks: Blocks, lengths: Int64s, total: int
) -> tuple[Float32s, Float32s]:
    """Best score of each block, and of each list.

    Parameters
    ----------
    lengths
        Tokens of each document of the partition.
    total
        Tokens of all documents.
    """
    # In single precision, in this order: equal to pylance's scores to the last bit.
    unit = np.float32(1)
    counts = np.diff(postings.starts)
    half, list_lengths = np.float32(0.5), counts.astype(np.float32)
    ratio = (np.float32(len(lengths)) - list_lengths + half) / (list_lengths + half)
    rare = np.log((ratio + unit).astype(np.float64)).astype(np.float32)
    mean = np.float32(total) / np.float32(max(1, len(lengths)))
    by_block = np.zeros(len(blocks.sizes), np.float32)
    most = np.repeat(rare * (_K1 + unit), blocks.of_list)
    for some, within in blocks.windows():
        often = postings.frequencies[within].astype(np.float32)
        measured = lengths[postings.documents[within]].astype(np.float32)
        norm = _K1 * (unit - _B + _B * measured / mean)
        scores = np.repeat(most[some], blocks.sizes[some]) * (often / (often + norm))
        by_block[some] = np.maximum.reduceat(scores, blocks.begins[some] - within.start)
    best = np.zeros(len(counts), np.float32)
    filled = blocks.of_list > 0
    first = (np.cumsum(blocks.of_list) - blocks.of_list)[filled]
    if len(first):
        best[filled] = np.maximum.reduceat(by_block, first)
    return by_block, best


def length_codes(lengths: Int64s) -> Int64s:
    """Lengths of documents in one byte: exact below 8, then three bits after the leading one."""
    bits = np.zeros(len(lengths), np.int64)
    for bit in range(32):
        bits += lengths >> bit > 0
    shift = np.maximum(bits - 4, 0)
    return np.where(lengths < 8, lengths, ((lengths >> shift) & 7) | ((shift + 1) << 3))


_LISTS = pa.list_(pa.large_binary())


class DocumentLengths(NamedTuple):
    """Tokens of each document of a partition, exact and as one byte, and of all."""

    tokens: Int64s
    codes: Int64s
    total: int


def posting_columns(
    postings: Postings,
    blocks: Blocks,
    lengths: DocumentLengths,
    layout: PostingLayout,
    *,
    impacts: bool = True,
) -> dict[str, Any]:
    """All columns except those of positions."""
    by_block, best = best_scores(postings, blocks, lengths.tokens, lengths.total)
    encoded = encode_postings(postings, by_block, layout)
    begins = np.concatenate([[0], np.cumsum(blocks.of_list)])
    columns: dict[str, Any] = {
        "_posting": lists_array(begins, bytes_array(encoded), _LISTS),
        "_max_score": pa.array(best),
        "_length": pa.array(np.diff(postings.starts), pa.uint32()),
    }
    if impacts:
        elements, of_list = encode_impacts(postings, blocks, lengths.codes)
        begins = np.concatenate([[0], np.cumsum(of_list)])
        columns["_impacts"] = lists_array(begins, bytes_array(elements), _LISTS)
    return columns


def shared_position_columns(
    positions: UInt32s, blocks: Blocks, frequencies: Int64s | UInt32s
) -> dict[str, Any]:
    """Columns of positions that are one stream for each list."""
    steps = position_steps(positions, frequencies)
    encoded = encode_positions(steps, occurrences(blocks, frequencies))
    begins = np.concatenate([[0], np.cumsum(blocks.of_list)])
    stream = Elements(encoded.offsets[begins], encoded.data)
    own = encoded.offsets[:-1] - np.repeat(stream.offsets[:-1], blocks.of_list)
    at = pa.array(own, pa.uint32())
    return {
        "_compressed_position": bytes_array(stream),
        "_position_block_offset": lists_array(begins, at, pa.list_(pa.uint32())),
    }


def document_position_columns(positions: Int64s, postings: Postings) -> dict[str, Any]:
    """The column of positions that are stored for each document by itself."""
    frequencies = postings.frequencies.astype(np.int64)
    elements, of_document = encode_document_positions(positions, frequencies)
    begins = np.concatenate([[0], np.cumsum(of_document)])
    documents = lists_array(begins, bytes_array(elements), _LISTS)
    return {"_position": lists_array(postings.starts, documents, pa.list_(_LISTS))}


# --- Read posting lists and positions, some lists at a time, checked --------------------
# Specification: "Postings", "Positions" in ``docs/format/text-indices.md``.

_DOCUMENT_COLUMNS: Final = frozenset(("_rowid", "_num_tokens", ELEMENT))
_POSTING_COLUMNS: Final = frozenset(("_posting", "_length", "_max_score", "_impacts"))

_FEW_POSTINGS: Final = 1 << 20
_POSTINGS_PER_BYTE: Final = 256
"""Postings of a small file, and those for each byte of others, at most: before compression a
document of a list takes a bit at least."""


def unknown_columns(
    documents: IndexFile, tokens: IndexFile, postings: IndexFile
) -> dict[str, list[str]]:
    """Columns of the files of a partition that such files do not have, by the path of the file."""
    known = (
        (documents, _DOCUMENT_COLUMNS),
        (tokens, token_columns(tokens)),
        (postings, _POSTING_COLUMNS.union(position_columns(postings))),
    )
    found = {file.path: sorted(set(file.schema.names) - columns) for file, columns in known}
    return {path: columns for path, columns in found.items() if columns}


def check_posting_columns(file: IndexFile) -> None:
    """Check the types of the columns of postings that are there.

    Raises
    ------
    CorruptFileError
        A column is of another type.
    """
    file.check(_max_score=pa.float32(), _length=pa.uint32())
    file.check_lists(_posting=pa.large_binary())
    if "_impacts" in file.schema.names:
        file.check_lists(_impacts=pa.large_binary())
    if position_columns(file) == SHARED_POSITIONS:
        file.check(_compressed_position=pa.large_binary())
        file.check_lists(_position_block_offset=pa.uint32())


def list_starts(file: IndexFile, documents: int) -> Int64s:
    """Where the postings of each list begin among all; and the end of the last.

    Raises
    ------
    CorruptFileError
        A list has more postings than there are documents, or all have more than the file can hold.
    """
    lengths = numbers_of(file, file.read(["_length"]), "_length", pa.uint32())
    most = max(_FEW_POSTINGS, _POSTINGS_PER_BYTE * file.size)
    if lengths.max(initial=0) > documents or int(lengths.sum(dtype=np.int64)) > most:
        raise wrong_lists(file, "_length")
    return np.concatenate([[0], np.cumsum(lengths)])


def read_postings(
    file: IndexFile, rows: pa.Table, starts: Int64s, layout: PostingLayout, documents: int
) -> tuple[UInt32s, UInt32s]:
    """Documents and frequencies of some rows of a file. Memory: eight bytes for each posting.

    Parameters
    ----------
    starts
        Where each list begins among these; and the end of the last.
    documents
        Of the partition.

    Raises
    ------
    CorruptFileError
        A list has other blocks than its length says, or a document that does not exist.
    """
    of_list, array = lists_of(rows, "_posting", file)
    elements = elements_of(array, "_posting", file)
    if (np.diff(of_list) != -(-np.diff(starts) // layout.block)).any():
        raise wrong_lists(file, "_posting")
    return decode_lists(
        elements.data, elements.offsets, starts, block=layout.block, fixed_tail=layout.fixed_tail,
        limit=documents, where=file.path,
    )  # fmt: skip


OWN_POSITIONS: Final = ("_position",)
SHARED_POSITIONS: Final = ("_compressed_position", "_position_block_offset")


def position_columns(file: IndexFile) -> tuple[str, ...]:
    """The columns of positions that a file has, if any."""
    names = frozenset(file.schema.names)
    known = (OWN_POSITIONS, SHARED_POSITIONS)
    return next((columns for columns in known if not names.isdisjoint(columns)), ())


def read_positions(
    file: IndexFile, rows: pa.Table, starts: Int64s, layout: PostingLayout, frequencies: UInt32s
) -> tuple[Int64s, UInt32s]:
    """Where the positions of each document of some rows begin, with the end; and the positions.

    Parameters
    ----------
    starts, frequencies
        Those of the postings of these rows.

    Raises
    ------
    CorruptFileError
        A list has another number of positions, or all have more than the file can hold.
    """
    check_positions(frequencies, file)
    if position_columns(file) == OWN_POSITIONS:
        return _own_positions(file, rows, starts, frequencies.astype(np.int64))
    stream, column = SHARED_POSITIONS
    streams = elements_of(one_array(rows[stream]), stream, file)
    of_list, array = lists_of(rows, column, file)
    blocks = -(-np.diff(starts) // layout.block)
    if array.null_count or (np.diff(of_list) != blocks).any():
        raise wrong_lists(file, column)
    within = as_numpy(array).astype(np.int64)
    offsets = np.append(within + np.repeat(streams.offsets[:-1], blocks), streams.offsets[-1])
    if (offsets[1:] < offsets[:-1]).any() or within[of_list[:-1][blocks > 0]].any():
        raise wrong_lists(file, column)
    return decode_positions(
        streams.data, offsets, starts, frequencies, block=layout.block, where=file.path
    )


def _own_positions(
    file: IndexFile, rows: pa.Table, starts: Int64s, frequencies: Int64s
) -> tuple[Int64s, UInt32s]:
    """The same of format version 1, with elements for each document."""
    (column,) = OWN_POSITIONS
    found, documents = lists_of(rows, column, file)
    if (found != starts).any():
        raise wrong_lists(file, column)
    begins, values = lists_of(pa.table({column: documents}), column, file)
    elements = elements_of(values, column, file)
    positions = decode_document_positions(elements, np.diff(begins), frequencies, file.path)
    return np.concatenate(([0], np.cumsum(frequencies))), positions


def wrong_lists(file: IndexFile, column: str) -> CorruptFileError:
    """The error for a column that does not match the lengths of the lists."""
    return file.corrupt_column(column, "values that match the lengths of the lists", "others")
