"""Read posting lists and positions, some lists at a time, checked.

Specification: "Postings", "Positions" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy, one_array
from glaive.errors import CorruptFileError
from glaive.index.index_file import IndexFile
from glaive.index.segment import batches
from glaive.index.text.columns import elements_of, lists_of, numbers_of
from glaive.index.text.positions import check_positions, decode_positions, occurrences
from glaive.index.text.posting_layout import PostingLayout
from glaive.index.text.postings import WINDOW, Elements, blocks_of, decode_postings
from glaive.index.text.text_format import ELEMENT
from glaive.index.text.tokens import token_columns
from glaive.kernels.postings import decode_list_positions
from glaive.types import Int64s, UInt32s

__all__ = [
    "check_posting_columns",
    "list_starts",
    "read_positions",
    "read_postings",
    "unknown_columns",
    "wrong_lists",
]

_DOCUMENT_COLUMNS: Final = frozenset(("_rowid", "_num_tokens", ELEMENT))
_POSTING_COLUMNS: Final = frozenset(("_posting", "_length", "_max_score", "_impacts"))
_OWN_POSITION_COLUMNS: Final = frozenset(("_position",))
_SHARED_POSITION_COLUMNS: Final = frozenset(("_compressed_position", "_position_block_offset"))

_FEW_POSTINGS: Final = 1 << 20
_POSTINGS_PER_BYTE: Final = 256
"""Postings of a small file, and those for each byte of others, at most: before compression a
document of a list takes a bit at least."""


def unknown_columns(
    documents: IndexFile, tokens: IndexFile, postings: IndexFile
) -> dict[str, list[str]]:
    """Columns of the files of a partition that such files do not have, by the path of the file."""
    has_own = "_position" in postings.schema.names
    positions = _OWN_POSITION_COLUMNS if has_own else _SHARED_POSITION_COLUMNS
    known = (
        (documents, _DOCUMENT_COLUMNS),
        (tokens, token_columns(tokens)),
        (postings, _POSTING_COLUMNS | positions),
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
    present = frozenset(file.schema.names)
    file.check(_max_score=pa.float32(), _length=pa.uint32())
    file.check_lists(_posting=pa.large_binary())
    if "_impacts" in present:
        file.check_lists(_impacts=pa.large_binary())
    if not present.isdisjoint(("_compressed_position", "_position_block_offset")):
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
    """Documents and frequencies of some rows of a file.

    Memory: eight bytes for each posting, and a window of them as :data:`WINDOW` says.

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
    blocks = blocks_of(starts, layout.block)
    elements = elements_of(array, "_posting", file)
    if (np.diff(of_list) != blocks.of_list).any():
        raise wrong_lists(file, "_posting")
    found = np.empty(int(starts[-1]), np.uint32)
    frequencies = np.empty(int(starts[-1]), np.uint32)
    for some, within in blocks.windows():
        here = slice(*np.searchsorted(starts, (within.start, within.stop)).tolist())
        own = np.concatenate(([within.start], starts[here], [within.stop])) - within.start
        part = elements.between(some.start, some.stop)
        postings = decode_postings(part, own, layout, file.path)
        read = postings.documents
        goes_on = within.start > 0 and starts[here.start] != within.start
        if goes_on and read[0] <= found[within.start - 1]:
            raise wrong_lists(file, "_posting")
        if not ((read >= 0) & (read < documents)).all():
            raise wrong_lists(file, "_posting")
        found[within], frequencies[within] = read, postings.frequencies
    return found, frequencies


def read_positions(
    file: IndexFile, rows: pa.Table, starts: Int64s, layout: PostingLayout, frequencies: UInt32s
) -> Iterator[tuple[slice, UInt32s]]:
    """Positions that are one stream for each list; of some postings at a time.

    Parameters
    ----------
    starts, frequencies
        Those of the postings of these rows.

    Raises
    ------
    CorruptFileError
        A stream has another number of positions, or all have more than the file can hold.
    """
    check_positions(frequencies, file)
    column = "_position_block_offset"
    stream = "_compressed_position"
    streams = elements_of(one_array(rows[stream]), stream, file)
    of_list, array = lists_of(rows, column, file)
    blocks = blocks_of(starts, layout.block)
    if array.null_count or (np.diff(of_list) != blocks.of_list).any():
        raise wrong_lists(file, column)
    within = as_numpy(array).astype(np.int64)
    offsets = np.append(within + np.repeat(streams.offsets[:-1], blocks.of_list), 0)
    offsets[-1] = streams.offsets[-1]
    list_begins = np.cumsum(blocks.of_list) - blocks.of_list
    if (offsets[1:] < offsets[:-1]).any() or within[list_begins[blocks.of_list > 0]].any():
        raise wrong_lists(file, column)
    elements = Elements(offsets, streams.data)
    counts = occurrences(blocks, frequencies)
    postings = np.append(blocks.begins, starts[-1])
    for first, last in batches(np.concatenate(([0], np.cumsum(counts))), WINDOW):
        some, of = elements.between(first, last), counts[first:last]
        owners = slice(int(postings[first]), int(postings[last]))
        often = frequencies[owners]
        if of[0] > WINDOW:  # of one block
            yield (
                owners,
                decode_list_positions(
                    some.data, some.offsets, often, block=layout.block, where=file.path
                )[1],
            )
        else:
            steps = decode_positions(some, of, file.path)
            yield owners, _absolute(steps, often.astype(np.int64))


def _absolute(steps: Int64s, frequencies: Int64s) -> UInt32s:
    """Positions from the first and the steps of each document."""
    sums = np.concatenate([[0], np.cumsum(steps)])
    before = sums[np.cumsum(frequencies) - frequencies]
    # What damage made too large comes back as another number.
    positions: UInt32s = (sums[1:] - np.repeat(before, frequencies)).astype(np.uint32)
    return positions


def wrong_lists(file: IndexFile, column: str) -> CorruptFileError:
    """The error for a column that does not match the lengths of the lists."""
    return file.corrupt_column(column, "values that match the lengths of the lists", "others")
