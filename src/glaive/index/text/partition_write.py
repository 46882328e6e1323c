"""Write a partition: documents, tokens, and the posting list of each token.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.index.row_set import RowNumbers
from glaive.index.segment import SegmentWriter, batches
from glaive.index.text.posting_columns import (
    DocumentLengths,
    document_position_columns,
    posting_columns,
    shared_position_columns,
)
from glaive.index.text.postings import Postings, blocks_of
from glaive.index.text.scores import length_codes
from glaive.index.text.text_format import TextFormat
from glaive.index.text.tokens import Tokens, write_tokens
from glaive.kernels.inverting import Inversion
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s

__all__ = ["PartitionContent", "partition_files", "write_partition"]

_BATCH = 1 << 17
"""Postings that are encoded at a time, about."""


class PartitionContent(NamedTuple):
    """What is to be written.

    Parameters
    ----------
    tokens
        ``large_binary``, ascending; the number of a token is its place.
    rows
        Row of each document.
    elements
        Which element of its row's list each document is; None if documents are rows.
    lengths
        Tokens of each document.
    lists
        Documents of each token; positions where they are stored.
    """

    tokens: pa.Array
    rows: RowNumbers
    elements: UInt32s | None
    lengths: Int64s
    lists: Inversion

    @property
    def postings(self) -> int:
        """Postings of all lists."""
        return len(self.lists.documents)

    @property
    def positions(self) -> int:
        """Positions of all lists."""
        return 0 if self.lists.positions is None else len(self.lists.positions)


def partition_files(number: int | None) -> tuple[str, str, str]:
    """Names of the files of a partition: of its documents, tokens and postings.

    ``None`` stands for the partition of a segment by pylance up to 0.27.
    """
    begin = "" if number is None else f"part_{number}_"
    return f"{begin}docs.lance", f"{begin}tokens.lance", f"{begin}invert.lance"


def write_partition(
    out: SegmentWriter, number: int, content: PartitionContent, form: TextFormat
) -> None:
    """Write the three files of a partition.

    Cost: memory for the encoded form of a hundred thousand postings at a time, beside the content.
    """
    documents, tokens, postings = partition_files(number)
    lengths = content.lengths
    columns: list[Any] = [pa.array(content.rows, pa.uint64()), pa.array(lengths, pa.uint32())]
    if content.elements is not None:
        columns.append(pa.array(content.elements, pa.uint32()))
    total = int(lengths.sum())
    rows = pa.Table.from_arrays(columns, schema=form.document_schema())
    out.write(documents, rows, metadata={"total_tokens": str(total)})
    names = Tokens(content.tokens, np.arange(len(content.tokens)))
    out.write(tokens, write_tokens(names, form.token_schema()))
    measured = DocumentLengths(lengths, length_codes(lengths), total)
    file = out.create(postings, form.posting_schema())
    for batch in _posting_tables(content.lists, measured, form):
        file.write(batch)
    file.finish()


def _posting_tables(
    lists: Inversion, lengths: DocumentLengths, form: TextFormat
) -> Iterator[pa.Table]:
    """The posting lists, some at a time."""
    schema, occurrences_before = form.posting_schema(), 0
    for first, last in batches(lists.starts, _BATCH):
        begin, end = int(lists.starts[first]), int(lists.starts[last])
        frequencies = lists.frequencies[begin:end]
        own = lists.starts[first : last + 1] - begin
        postings = Postings(own, lists.documents[begin:end], frequencies)
        blocks = blocks_of(postings.starts, form.layout.block)
        columns = posting_columns(postings, blocks, lengths, form.layout)
        if lists.positions is not None:
            stop = occurrences_before + int(frequencies.sum(dtype=np.int64))
            positions = lists.positions[occurrences_before:stop]
            occurrences_before = stop
            if form.shares_positions:
                columns |= shared_position_columns(positions, blocks, frequencies)
            else:
                columns |= document_position_columns(positions.astype(np.int64), postings)
        yield pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
    if len(lists.starts) == 1:
        yield schema.empty_table()
