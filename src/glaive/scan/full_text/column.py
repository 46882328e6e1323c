"""A column that is searched: its index, the rows that the index finds, and those it does not know.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import OptionError
from glaive.format.column_path import joined_path
from glaive.format.field import Field
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.source import ValueBatch
from glaive.index.text.bm25 import TextStatistics
from glaive.index.text.joined import JoinedPartitions
from glaive.index.text.opened import OpenedInverted
from glaive.index.text.opened_partition import OpenedPartition
from glaive.index.text.params import TextParams
from glaive.index.text.term_search import SearchedPartition
from glaive.index.text.tokenizers.tokenizer import Tokenizer
from glaive.named_tuple import NamedTuple
from glaive.scan.indices import (
    FragmentIds,
    IndexedSegment,
    LogicalIndex,
    SnapshotIndices,
    union_of,
)
from glaive.scan.snapshot import Snapshot
from glaive.types import UInt8s

__all__ = ["UNINDEXED_TEXTS", "TextColumn", "indexed_columns"]

_KIND = "inverted"

UNINDEXED_TEXTS = TextParams(
    max_token_length=None, lower_case=False, stem=False, remove_stop_words=False,
    ascii_folding=False,
)  # fmt: skip
"""How texts of a column without an index become tokens."""


class _PartitionRows(NamedTuple):
    """Where the documents of a partition are in this version.

    Parameters
    ----------
    addresses
        Of each.
    allowed
        Not 0 where it may be found; None: all may.
    ascending
        Whether addresses ascend.
    """

    addresses: RowNumbers
    allowed: UInt8s | None
    ascending: bool


class TextColumn:
    """A column of a version that is searched.

    Parameters
    ----------
    snapshot
        The version.
    path
        Of the column.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    OptionError
        It does not hold texts.
    """

    def __init__(self, snapshot: Snapshot, path: str) -> None:
        self.snapshot, self.path = snapshot, path
        field = snapshot.manifest.schema.find(path)[-1]
        kind: Any = field.to_arrow().type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        self.index = _index_of(snapshot, field.id)
        self._emptied = _emptied(snapshot, field.id, self.index)
        self.plain = _is_text(kind)
        if not self.plain and self.index is None and not (listed and _is_text(kind.value_type)):
            raise OptionError(f"full_text_query: column {path!r} holds no texts, but {kind}")

    def documents_of(self, values: Any, addresses: RowNumbers) -> tuple[Any, RowNumbers]:
        """The texts of rows, as in an index: that of each, or of the elements; and their rows."""
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        from glaive.index.text.documents import documents_of

        batch = ValueBatch(values, addresses)
        texts, rows, _ = documents_of(batch, by_element=self.by_element)
        return texts, rows

    @classmethod
    def of(cls, snapshot: Snapshot, path: str) -> TextColumn:
        """A column of a version, opened once."""
        key = ("text column", path)
        known: TextColumn | None = snapshot.memo.get(key)
        if known is None:
            known = snapshot.memo[key] = cls(snapshot, path)
        return known

    @cached_property
    def segments(self) -> Sequence[tuple[IndexedSegment, OpenedInverted]]:
        """The segments of its index, opened: those that answer for no row count for scores.

        Without those that were built with other parameters than the first: they have other tokens,
        so that their rows are read, as those of no segment.
        """
        indices = SnapshotIndices.of(self.snapshot)
        known = () if self.index is None else self.index.segments
        opened: list[Any] = [(one, indices.open(one)) for one in (*known, *self._emptied)]
        return [pair for pair in opened if self._documents(*pair) == self._documents(*opened[0])]

    def _documents(self, segment: IndexedSegment, opened: OpenedInverted) -> tuple[object, ...]:
        """What the documents of a segment are, and how they become tokens."""
        return opened.params.tokenizing, not self.plain and _is_by_element(segment)

    @cached_property
    def by_element(self) -> bool:
        """Whether the elements of lists are documents, by its index."""
        return bool(self.segments) and not self.plain and _is_by_element(self.segments[0][0])

    @cached_property
    def covered(self) -> FragmentIds:
        """Fragments that the index knows."""
        return union_of(segment for segment, _ in self.segments) if self.segments else frozenset()

    @cached_property
    def statistics(self) -> TextStatistics:
        """Documents of the index, and their tokens."""
        return TextStatistics.sum_of(opened.statistics for _, opened in self.segments)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What makes tokens of texts, as in the index."""
        if not self.segments:
            return Tokenizer.of(UNINDEXED_TEXTS)
        return self.segments[0][1].texts.tokenizer

    def tokens(self, text: str, *, fuzzy: bool) -> tuple[tuple[str, int], ...]:
        """The tokens of the text of a query; ``fuzzy``: as they stand in it."""
        if not self.segments:
            return tuple(self.tokenizer.tokens(text))
        opened = self.segments[0][1]
        return (opened.fuzzy_texts if fuzzy else opened.texts).tokens(text)

    def searched(self, among: RowSet | None, *, joined: bool = False) -> list[SearchedPartition]:
        """All partitions of the index.

        Parameters
        ----------
        among
            Addresses of the rows that may be found; None: all.
        joined
            Those of a segment as one, if they can be.
        """
        return [
            self._searched(segment, partition, among)
            for segment, opened in self.segments
            for partition in (opened.joined if joined else opened.partitions)
        ]

    def _searched(
        self,
        segment: IndexedSegment,
        partition: OpenedPartition | JoinedPartitions,
        among: RowSet | None,
    ) -> SearchedPartition:
        key = ("text rows", segment.stated, partition.number)
        rows: _PartitionRows | None = self.snapshot.memo.get(key)
        if rows is None:
            rows = self.snapshot.memo[key] = self._rows(segment, partition)
        allowed = rows.allowed
        if among is not None:
            inside = _inside(rows, among)
            allowed = inside if allowed is None else inside & allowed
        return SearchedPartition(partition, rows.addresses, allowed, rows.ascending)

    def _rows(
        self, segment: IndexedSegment, partition: OpenedPartition | JoinedPartitions
    ) -> _PartitionRows:
        stored = partition.stored_rows
        addresses, known = SnapshotIndices.of(self.snapshot).locate(segment, stored)
        ascending = bool((addresses[1:] > addresses[:-1]).all())
        allowed = None if known.all() else known.astype(np.uint8)
        return _PartitionRows(addresses, allowed, ascending)


def _inside(rows: _PartitionRows, among: RowSet) -> UInt8s:
    """Which documents are among some rows."""
    if not rows.ascending:
        return among.contains(rows.addresses).astype(np.uint8)
    # Each range of rows is a range of documents.
    change = np.zeros(len(rows.addresses) + 1, np.int64)
    np.add.at(change, np.searchsorted(rows.addresses, among.starts), 1)
    np.add.at(change, np.searchsorted(rows.addresses, among.stops), -1)
    return np.cumsum(change[:-1]).astype(np.uint8)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _index_of(snapshot: Snapshot, field_id: int) -> LogicalIndex | None:
    """The full-text index of a field."""
    for index in SnapshotIndices.of(snapshot).on(field_id):
        if index.kind.name == _KIND:
            return index
    return None


def _emptied(snapshot: Snapshot, field_id: int, index: LogicalIndex | None) -> list[IndexedSegment]:
    """Segments of the full-text index of a field whose rows were all deleted."""
    found = [one for one in SnapshotIndices.of(snapshot).emptied if _is_over(one, field_id)]
    name = found[0].entry.name if index is None and found else None if index is None else index.name
    return [one for one in found if one.entry.name == name]


def _is_over(segment: IndexedSegment, field_id: int) -> bool:
    return segment.kind.name == _KIND and list(segment.entry.fields) == [field_id]


def _is_by_element(segment: IndexedSegment) -> bool:
    """Whether the elements of lists are the documents of a segment."""
    from glaive.index.text.text_format import LIST_ELEMENT, details_by_name

    entry = segment.entry
    said = details_by_name(entry.index_details.value, f"details of index {entry.name!r}")
    return said.get("document_granularity") == LIST_ELEMENT


def _path_of(snapshot: Snapshot, field_id: int) -> str | None:
    """The path of a field; None for one that does not exist."""

    def below(fields: Sequence[Field], before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for field in fields:
            path = (*before, field.name)
            if field.id == field_id:
                yield path
            yield from below(field.children, path)

    names = next(below(snapshot.manifest.schema.fields, ()), None)
    return None if names is None else joined_path(names)


def indexed_columns(snapshot: Snapshot) -> list[str]:
    """Paths of the columns with a full-text index, in the order of the indices."""
    known: list[str] | None = snapshot.memo.get("text columns")
    if known is None:
        known = snapshot.memo["text columns"] = _indexed_columns(snapshot)
    return known


def _indexed_columns(snapshot: Snapshot) -> list[str]:
    indices = SnapshotIndices.of(snapshot)
    kinds = [(index.kind, index.fields) for index in indices.all]
    kinds += [(segment.kind, tuple(segment.entry.fields)) for segment in indices.emptied]
    paths = [
        _path_of(snapshot, fields[0])
        for kind, fields in kinds
        if kind.name == _KIND and len(fields) == 1
    ]
    return list(dict.fromkeys(path for path in paths if path is not None))
