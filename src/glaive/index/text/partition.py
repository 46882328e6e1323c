"""Rebuild one partition of a full-text index without deleted documents.

Specification: "Documents" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.index.address_map import AddressMap
from glaive.index.segment import IndexFile, Segment, SegmentWriter, batches
from glaive.index.text.columns import lists_array, lists_of
from glaive.index.text.lists_read import (
    check_posting_columns,
    list_starts,
    read_positions,
    read_postings,
    unknown_columns,
    wrong_lists,
)
from glaive.index.text.posting_columns import (
    DocumentLengths,
    posting_columns,
    shared_position_columns,
)
from glaive.index.text.posting_layout import PostingLayout
from glaive.index.text.postings import (
    Postings,
    blocks_of,
)
from glaive.index.text.scores import length_codes
from glaive.index.text.tokens import read_tokens, write_tokens
from glaive.types import Flags, Int64s

__all__ = ["remap_partition"]

_BATCH = 1 << 20
"""Postings that are decoded at a time, about."""

_POSTING = "_posting"
_IMPACTS = "_impacts"
_STREAM = "_compressed_position"
_POSITION = "_position"


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
    if unknown_columns(*opened):
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
        self._renumbered = (np.cumsum(kept) - 1).astype(np.uint32)
        self._has = frozenset(file.schema.names)
        check_posting_columns(file)

    def write(self, out: SegmentWriter, name: str) -> Flags:
        """Write the file; returns which tokens still have documents."""
        file = self._file
        starts = list_starts(file, len(self._kept))
        into = out.create(name, file.schema)
        masks = [np.zeros(0, np.bool_)]
        for first, last in batches(starts, _BATCH):
            rows, nonempty = self._without(
                file.read(None, first, last), starts[first : last + 1] - starts[first]
            )
            masks.append(nonempty)
            if len(rows) or (last == len(starts) - 1 and not np.concatenate(masks).any()):
                into.write(rows)
        if not len(starts) - 1:
            into.write(file.read())
        into.finish()
        return np.concatenate(masks)

    def _without(self, rows: pa.Table, starts: Int64s) -> tuple[pa.Table, Flags]:
        """Some lists without deleted documents, and which of them are not empty then."""
        file, layout = self._file, self._layout
        documents, frequencies = read_postings(file, rows, starts, layout, len(self._kept))
        stays = self._kept[documents]
        sizes = np.diff(starts)
        counts = np.zeros(len(sizes), np.int64)
        if len(stays):
            filled = sizes > 0
            counts[filled] = np.add.reduceat(stays, starts[:-1][filled], dtype=np.int64)
        nonempty = counts > 0
        surviving = Postings(
            np.concatenate(([0], np.cumsum(counts[nonempty]))),
            self._renumbered[documents[stays]],
            frequencies[stays],
        )
        blocks = blocks_of(surviving.starts, layout.block)
        columns = posting_columns(
            surviving, blocks, self._lengths, layout, impacts=_IMPACTS in self._has
        )
        if _POSITION in self._has:
            columns |= self._documents_of(rows, starts, stays, surviving)
        elif _STREAM in self._has:
            parts = [np.zeros(0, np.uint32)]
            for of, positions in read_positions(file, rows, starts, layout, frequencies):
                parts.append(positions[np.repeat(stays[of], frequencies[of])])
            joined = np.concatenate(parts)
            columns |= shared_position_columns(joined, blocks, surviving.frequencies)
        arrays = [columns[field.name] for field in file.schema]
        return pa.Table.from_arrays(arrays, schema=file.schema), nonempty

    def _documents_of(
        self, rows: pa.Table, starts: Int64s, stays: Flags, surviving: Postings
    ) -> dict[str, Any]:
        """The column of positions that each document has by itself."""
        found, array = lists_of(rows, _POSITION, self._file)
        if (found != starts).any():
            raise wrong_lists(self._file, _POSITION)
        kind = self._file.schema.field(_POSITION).type
        return {_POSITION: lists_array(surviving.starts, array.filter(pa.array(stays)), kind)}
