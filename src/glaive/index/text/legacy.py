"""Segments of pylance up to 0.27: one partition, whose postings name the rows of documents.

Specification: "Old segments" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy
from glaive.index.address_map import AddressMap
from glaive.index.protocol import BuiltSegment
from glaive.index.row_set import RowNumbers
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.text.opened import Documents, OpenedPartition
from glaive.index.text.partition import (
    PartitionContent,
    partition_files,
    reordered,
    write_metadata,
    write_partition,
)
from glaive.index.text.posting_columns import wrong_lists
from glaive.index.text.postings import lists_of, numbers_of
from glaive.index.text.text_format import PostingLayout, TextFormat, TextParams
from glaive.index.text.tokens import read_tokens
from glaive.kernels.hashing import Inversion
from glaive.types import Int64s, UInt32s

_COLUMNS = _ROW, _FREQUENCY = "_rowid", "_frequency"
_POSITION = "_position"
_WITHOUT_PARAMETERS = '{"ascii_folding": false}'
"""Parameters of pylance 0.16 to 0.19, which stored none."""


def legacy_format(segment: Segment, tokens: IndexFile) -> TextFormat:
    """How the texts of a segment became tokens, and the format in which it is written again."""
    params = TextParams.from_json(
        tokens.metadata.get("tokenizer", _WITHOUT_PARAMETERS), tokens.path
    )
    stored = _POSITION in segment.open(partition_files(None)[2]).schema.names
    return TextFormat(replace(params, with_position=stored), 2)


class LegacyPartition(OpenedPartition):
    """The partition of such a segment: documents are numbered in the order of their rows."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment, None, PostingLayout(128, fixed_tail=True))

    @property
    def _list_count(self) -> int:
        return len(self._starts) - 1

    @property
    def _starts(self) -> Int64s:
        starts: Int64s = self._kept("starts", lambda: _starts_of(self._lists))
        return starts

    def _read_documents(self) -> Documents:
        rows, lengths, statistics = super()._read_documents()
        order = np.argsort(rows)
        return Documents(rows[order], lengths[order], statistics)

    def count(self, token: str) -> int:
        """How many documents have a token: of a list, several postings can be of one."""
        found = self._kept(("count", token), lambda: np.int64(len(self.occurrences(token)[0])))
        return int(found)

    def _read_list(self, place: int) -> tuple[UInt32s, UInt32s]:
        return self._inverted(place, _COLUMNS)[1:3]

    def _read_positions(self, place: int, frequencies: UInt32s) -> tuple[Int64s, UInt32s]:
        self.check_positions()
        found: Any = self._inverted(place, (*_COLUMNS, _POSITION)).positions
        return np.concatenate(([0], np.cumsum(frequencies, dtype=np.int64))), found

    def _inverted(self, place: int, columns: tuple[str, ...]) -> Inversion:
        first, last = self._starts[place : place + 2].tolist()
        rows = self._lists.read(columns, first, last)
        owners = np.zeros(len(rows), np.int64)
        return _inverted(self._lists, rows, owners, 1, self.documents.rows)


def remap_legacy(
    segment: Segment, form: TextFormat, address_map: AddressMap, out: SegmentWriter
) -> BuiltSegment:
    """Write the segment in the format of today, without deleted documents; held in memory."""
    documents, tokens, postings = map(segment.open, partition_files(None))
    documents.check(_rowid=pa.uint64(), _num_tokens=pa.uint32())
    measured, _ = address_map.remap_rows(documents.read([_ROW, "_num_tokens"]), _ROW)
    lengths = numbers_of(documents, measured, "_num_tokens", pa.uint32())
    rows: RowNumbers = as_numpy(measured[_ROW])
    order = np.argsort(rows)
    rows, lengths = rows[order], lengths[order]
    starts = _starts_of(postings)
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    columns = (*_COLUMNS, _POSITION) if form.params.with_position else _COLUMNS
    postings.check(_rowid=pa.uint64())
    stored, kept = address_map.remap_rows(postings.read(columns), _ROW)
    lists = _inverted(postings, stored, owners[kept], len(starts) - 1, rows)
    # The length of a list is that of one element; its postings cover all elements.
    sums = np.bincount(lists.documents, lists.frequencies, len(rows)).astype(np.int64)
    lengths = np.maximum(lengths, sums)
    used = lists.starts[1:] > lists.starts[:-1]
    lists = lists._replace(starts=np.append(lists.starts[:-1][used], lists.starts[-1]))
    names = read_tokens(tokens, len(used)).kept(used)
    content = PartitionContent(names.strings, rows, None, lengths, reordered(lists, names.numbers))
    write_partition(out, 0, content, form)
    write_metadata(out, form, [0])
    return form.built()


def _starts_of(file: IndexFile) -> Int64s:
    """Where the postings of each token begin among the rows of a file; and the end of the last."""
    text = file.metadata.get("offsets", "")
    try:
        stored = np.array([*json.loads(text), file.num_rows])
        good = stored.dtype == np.int64 and stored[0] == 0 and bool((np.diff(stored) >= 0).all())
    except (ValueError, TypeError, RecursionError):
        good = False
    if not good:
        expected = f"ascending integers from 0 to {file.num_rows}"
        raise file.corrupt("'offsets' of an index", expected, text[:80])
    return stored


def _inverted(
    file: IndexFile, postings: pa.Table, owners: Int64s, lists: int, rows: RowNumbers
) -> Inversion:
    """Postings as lists of ascending documents.

    Each element of a list of texts has postings of its own: postings of a row are joined.

    Parameters
    ----------
    owners
        The list of each posting.
    lists
        How many lists there are.
    rows
        Row of each document, ascending.
    """
    file.check(_rowid=pa.uint64(), _frequency=pa.float32())
    for column in postings.columns:
        file.check_present(column)
    stored, frequencies = as_numpy(postings[_ROW]), as_numpy(postings[_FREQUENCY])
    places = np.searchsorted(rows, stored)
    if len(stored) and (not len(rows) or (rows[np.minimum(places, len(rows) - 1)] != stored).any()):
        raise file.corrupt_column(_ROW, "rows of documents", "others")
    if not ((frequencies >= 1) & (frequencies < 1 << 31)).all():
        raise file.corrupt_column(_FREQUENCY, "numbers from 1 on", "others")
    counts = frequencies.astype(np.int64)
    keys, at = np.unique(owners * len(rows) + places, return_inverse=True)
    starts = np.searchsorted(keys, np.arange(lists + 1) * len(rows)).astype(np.int64)
    found = (keys % max(len(rows), 1)).astype(np.uint32)
    summed = np.bincount(at, counts, len(keys)).astype(np.uint32)
    if _POSITION not in postings.column_names:
        return Inversion(starts, found, summed, None)
    begins, values = lists_of(postings, _POSITION, file)
    if values.type != pa.int32() or values.null_count or (np.diff(begins) != counts).any():
        raise wrong_lists(file, _POSITION)
    positions = as_numpy(values).astype(np.uint32)
    order = np.lexsort((positions, np.repeat(at, counts)))
    return Inversion(starts, found, summed, positions[order])
