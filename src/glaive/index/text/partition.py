"""Rebuild one partition of a full-text index without deleted documents.

Specification: "Documents" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.errors import CorruptFileError
from glaive.index.address_map import AddressMap
from glaive.index.segment import IndexFile, Segment, SegmentWriter, batches
from glaive.index.text.columns import elements_of, lists_array, lists_of, numbers_of
from glaive.index.text.positions import decode_positions, occurrences
from glaive.index.text.posting_columns import (
    DocumentLengths,
    posting_columns,
    shared_position_columns,
)
from glaive.index.text.posting_layout import PostingLayout
from glaive.index.text.postings import (
    Blocks,
    Elements,
    Postings,
    blocks_of,
    decode_postings,
)
from glaive.index.text.scores import length_codes
from glaive.index.text.tokens import TOKEN_COLUMNS, read_tokens, write_tokens
from glaive.types import Flags, Int64s

__all__ = ["remap_partition"]

_BATCH = 1 << 20
"""Postings that are decoded at a time, about."""

_POSTING = "_posting"
_LENGTH = "_length"
_SCORE = "_max_score"
_IMPACTS = "_impacts"
_STREAM = "_compressed_position"
_STREAM_AT = "_position_block_offset"
_POSITION = "_position"

_DOCUMENT_COLUMNS = frozenset(("_rowid", "_num_tokens"))
_POSTING_COLUMNS = frozenset((_POSTING, _LENGTH, _SCORE, _IMPACTS, _STREAM, _STREAM_AT, _POSITION))
_KNOWN = _DOCUMENT_COLUMNS | _POSTING_COLUMNS | TOKEN_COLUMNS


def remap_partition(
    segment: Segment, name: str, layout: PostingLayout, address_map: AddressMap, out: SegmentWriter
) -> bool:
    """Rebuild documents, tokens and postings of the partition whose files begin with ``name``.

    Returns
    -------
    bool
        Whether all columns are known; otherwise the partition is not written.

    Raises
    ------
    CorruptFileError
        A file is damaged.
    """
    documents, tokens, postings = (f"{name}_{part}.lance" for part in ("docs", "tokens", "invert"))
    opened = [segment.open(file_name) for file_name in (documents, tokens, postings)]
    if any(not _KNOWN.issuperset(index_file.schema.names) for index_file in opened):
        return False
    file = opened[0]
    file.check(_rowid=pa.uint64(), _num_tokens=pa.uint32())
    rows = file.read()
    for column in rows.column_names:
        file.check_present(rows[column])
    surviving, kept = address_map.remap_rows(rows, "_rowid")
    lengths = surviving["_num_tokens"].to_numpy().astype(np.int64)
    total = {"total_tokens": str(lengths.sum())} if "total_tokens" in file.metadata else {}
    out.write(documents, surviving, metadata=total)
    if kept.all():
        # Documents keep their numbers: only the addresses of their rows changed.
        out.copy(segment, tokens)
        out.copy(segment, postings)
        return True
    nonempty = _Lists(opened[2], layout, kept, lengths).write(out, postings)
    if nonempty.all():
        out.copy(segment, tokens)
        return True
    kept_tokens = read_tokens(opened[1], len(nonempty)).kept(nonempty)
    out.write(tokens, write_tokens(kept_tokens, opened[1].schema))
    return True


class _Lists:
    """The posting lists of a partition, to be written without some documents."""

    def __init__(
        self, file: IndexFile, layout: PostingLayout, kept: Flags, lengths: Int64s
    ) -> None:
        self._file, self._layout, self._kept = file, layout, kept
        self._lengths = DocumentLengths(lengths, length_codes(lengths), int(lengths.sum()))
        self._renumbered = np.cumsum(kept) - 1
        self._has = frozenset(file.schema.names)
        file.check(**{_SCORE: pa.float32()})
        file.check_lists(**{_POSTING: pa.large_binary()})
        if _IMPACTS in self._has:
            file.check_lists(**{_IMPACTS: pa.large_binary()})
        if not self._has.isdisjoint((_STREAM, _STREAM_AT)):
            file.check(**{_STREAM: pa.large_binary()})
            file.check_lists(**{_STREAM_AT: pa.uint32()})

    def write(self, out: SegmentWriter, name: str) -> Flags:
        """Write the file; returns which tokens still have documents."""
        file = self._file
        list_lengths = numbers_of(file, file.read([_LENGTH]), _LENGTH, pa.uint32())
        if list_lengths.max(initial=0) > len(self._kept):
            raise _wrong(file, _LENGTH)
        starts = np.concatenate([[0], np.cumsum(list_lengths)])
        into = out.create(name, file.schema)
        masks = [np.zeros(0, np.bool_)]
        for first, last in batches(starts, _BATCH):
            rows, nonempty = self._without(
                file.read(None, first, last), starts[first : last + 1] - starts[first]
            )
            masks.append(nonempty)
            if len(rows) or (last == len(list_lengths) and not np.concatenate(masks).any()):
                into.write(rows)
        if not len(list_lengths):
            into.write(file.read())
        into.finish()
        return np.concatenate(masks)

    def _without(self, rows: pa.Table, starts: Int64s) -> tuple[pa.Table, Flags]:
        """Some lists without deleted documents, and which of them are not empty then."""
        file, layout = self._file, self._layout
        of_list, array = lists_of(rows, _POSTING, file)
        before = blocks_of(starts, layout.block)
        elements = elements_of(array, _POSTING, file)
        if (np.diff(of_list) != before.of_list).any():
            raise _wrong(file, _POSTING)
        postings = decode_postings(elements, starts, layout, file.path)
        if (
            len(postings.documents)
            and not ((postings.documents >= 0) & (postings.documents < len(self._kept))).all()
        ):
            raise _wrong(file, _POSTING)
        stays = self._kept[postings.documents]
        counted = np.concatenate([[0], np.cumsum(stays)])[starts]
        nonempty = np.diff(counted) > 0
        surviving = Postings(
            np.concatenate([counted[:-1][nonempty], counted[-1:]]),
            self._renumbered[postings.documents[stays]],
            postings.frequencies[stays],
        )
        blocks = blocks_of(surviving.starts, layout.block)
        columns = posting_columns(
            surviving, blocks, self._lengths, layout, impacts=_IMPACTS in self._has
        )
        columns |= self._positions(rows, nonempty, before, postings, stays, surviving, blocks)
        arrays = [columns[field.name] for field in file.schema]
        return pa.Table.from_arrays(arrays, schema=file.schema), nonempty

    def _positions(
        self,
        rows: pa.Table,
        nonempty: Flags,
        before: Blocks,
        postings: Postings,
        stays: Flags,
        surviving: Postings,
        blocks: Blocks,
    ) -> dict[str, Any]:
        """Columns of positions, if there are any."""
        file = self._file
        if _POSITION in self._has:
            starts, array = lists_of(rows, _POSITION, file)
            if (starts != postings.starts).any():
                raise _wrong(file, _POSITION)
            kind = file.schema.field(_POSITION).type
            return {_POSITION: lists_array(surviving.starts, array.filter(pa.array(stays)), kind)}
        if _STREAM not in self._has:
            return {}
        streams = elements_of(one_array(rows[_STREAM]), _STREAM, file)
        of_list, array = lists_of(rows, _STREAM_AT, file)
        if array.null_count:
            raise _wrong(file, _STREAM_AT)
        if (np.diff(of_list) != before.of_list).any():
            raise _wrong(file, _STREAM_AT)
        within = array.to_numpy().astype(np.int64)
        offsets = np.append(within + np.repeat(streams.offsets[:-1], before.of_list), 0)
        offsets[-1] = streams.offsets[-1]
        list_begins = np.cumsum(before.of_list) - before.of_list
        if (np.diff(offsets) < 0).any() or within[list_begins[before.of_list > 0]].any():
            raise _wrong(file, _STREAM_AT)
        counts = occurrences(before, postings.frequencies)
        values = decode_positions(Elements(offsets, streams.data), counts, file.path)
        values = values[np.repeat(stays, postings.frequencies)]
        return shared_position_columns(values, blocks, surviving.frequencies)


def _wrong(file: IndexFile, column: str) -> CorruptFileError:
    return file.corrupt_column(column, "values that match the lengths of the lists", "others")
