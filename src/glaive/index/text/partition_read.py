"""Read a partition whole: its documents, tokens and posting lists.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import spread
from glaive.errors import UnsupportedFeatureError
from glaive.index.row_set import RowSet
from glaive.index.segment import Segment, batches
from glaive.index.text.columns import numbers_of
from glaive.index.text.lists_read import (
    check_posting_columns,
    list_starts,
    read_positions,
    read_postings,
    unknown_columns,
    wrong_lists,
)
from glaive.index.text.partition_write import PartitionContent, partition_files
from glaive.index.text.text_format import ELEMENT, TextFormat
from glaive.index.text.tokens import read_tokens
from glaive.kernels.inverting import Inversion
from glaive.types import Int64s, UInt32s

__all__ = ["StoredPartition", "reordered"]

_BATCH = 1 << 19
"""Postings that are decoded at a time, about."""


class StoredPartition:
    """A partition of a segment.

    Parameters
    ----------
    segment
        Has the files.
    number
        Of the partition in the segment.
    form
        How the index was written.

    Raises
    ------
    UnsupportedFeatureError
        A file has a column that is not known.
    CorruptFileError, DataFileMissingError
        A file is damaged or absent.
    """

    def __init__(self, segment: Segment, number: int, form: TextFormat) -> None:
        self.segment, self._form = segment, form
        self.names = partition_files(number)
        self._documents, self._tokens, self._postings = map(segment.open, self.names)
        unknown = unknown_columns(self._documents, self._tokens, self._postings)
        for path, columns in unknown.items():
            raise UnsupportedFeatureError(f"{path}: columns {', '.join(columns)} are not known")
        check_posting_columns(self._postings)

    @cached_property
    def _lengths(self) -> Int64s:
        file = self._documents
        return numbers_of(file, file.read(["_num_tokens"]), "_num_tokens", pa.uint32())

    @cached_property
    def _starts(self) -> Int64s:
        return list_starts(self._postings, len(self._lengths))

    @property
    def documents(self) -> int:
        """Documents."""
        return len(self._lengths)

    @property
    def postings(self) -> int:
        """Postings of all lists."""
        return int(self._starts[-1])

    @property
    def positions(self) -> int:
        """Positions of all lists."""
        return int(self._lengths.sum()) if self._form.params.with_position else 0

    def rows(self) -> RowSet:
        """Rows of the documents.

        Raises
        ------
        CorruptFileError
            The file of the documents is damaged.
        """
        rows = self._documents.read(["_rowid"])
        return RowSet.of(numbers_of(self._documents, rows, "_rowid", pa.uint64()).view(np.uint64))

    def content(self) -> PartitionContent:
        """All of it, decoded; lists are in the order of their tokens.

        Raises
        ------
        CorruptFileError
            A file is damaged.
        """
        file = self._documents
        types: dict[str, pa.DataType] = {"_rowid": pa.uint64()}
        if self._form.by_element:
            types[ELEMENT] = pa.uint32()
        file.check(**types)
        rows = file.read(list(types))
        for name in types:
            file.check_present(rows[name])
        elements = rows[ELEMENT].to_numpy().astype(np.uint32) if self._form.by_element else None
        tokens = read_tokens(self._tokens, len(self._starts) - 1)
        lists = reordered(self._lists(), tokens.numbers)
        row_numbers = rows["_rowid"].to_numpy().astype(np.uint64)
        return PartitionContent(tokens.strings, row_numbers, elements, self._lengths, lists)

    def _lists(self) -> Inversion:
        """The lists in the order in which they are stored."""
        file, layout, starts = self._postings, self._form.layout, self._starts
        documents = np.empty(self.postings, np.uint32)
        frequencies = np.empty(self.postings, np.uint32)
        with_position = self._form.params.with_position
        positions, at = np.empty(self.positions, np.uint32), 0
        columns = ["_posting"]
        if with_position:
            columns += ["_compressed_position", "_position_block_offset"]
        for first, last in batches(starts, _BATCH):
            here = slice(int(starts[first]), int(starts[last]))
            rows = file.read(columns, first, last)
            own = starts[first : last + 1] - here.start
            documents[here], often = read_postings(file, rows, own, layout, self.documents)
            frequencies[here] = often
            if not with_position:
                continue
            for _, part in read_positions(file, rows, own, layout, often):
                if len(part) > len(positions) - at:
                    raise wrong_lists(self._documents, "_num_tokens")
                positions[at : at + len(part)] = part
                at += len(part)
        return Inversion(starts, documents, frequencies, positions[:at] if with_position else None)


def reordered(lists: Inversion, order: Int64s) -> Inversion:
    """Lists in another order; themselves, if it is theirs."""
    if (order == np.arange(len(order))).all():
        return lists
    sizes = np.diff(lists.starts)[order]
    begins = lists.starts[:-1][order]
    documents, frequencies = (
        _taken(items, begins, sizes) for items in (lists.documents, lists.frequencies)
    )
    positions = lists.positions
    if positions is not None:
        bounds = lists.position_starts()
        positions = _taken(positions, bounds[:-1][order], np.diff(bounds)[order])
    starts = np.concatenate(([0], np.cumsum(sizes)))
    return Inversion(starts, documents, frequencies, positions)


def _taken(items: UInt32s, begins: Int64s, sizes: Int64s) -> UInt32s:
    """Ranges of items, one after the other; where they are is made for some at a time."""
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    taken = np.empty(int(bounds[-1]), np.uint32)
    for first, last in batches(bounds, _BATCH):
        places = spread(begins[first:last], sizes[first:last])
        taken[bounds[first] : bounds[last]] = items[places]
    return taken
