"""Merge partitions: one vocabulary, documents one after the other, lists joined.

Specification: "Merging" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.buffers import spread
from glaive.arrow.dictionaries import dictionary_encoded
from glaive.index.segment import SegmentWriter, batches
from glaive.index.text.partition_read import StoredPartition
from glaive.index.text.partition_write import (
    PartitionContent,
    partition_files,
    write_partition,
)
from glaive.index.text.text_format import TextFormat
from glaive.kernels.inverting import Inversion
from glaive.types import Int64s

__all__ = ["merge_contents", "merge_partitions"]

_BYTES_PER_POSTING = 32
"""Held for a posting: document and frequency, twice, and where it goes."""

_BYTES_PER_POSITION = 16

_AT_ONCE = 1 << 19
"""Postings or positions, or those of a list, whose places are made at a time."""


def merge_partitions(
    stored: Iterable[StoredPartition],
    added: Iterator[PartitionContent],
    form: TextFormat,
    memory_limit: int,
    out: SegmentWriter,
) -> list[int]:
    """Write partitions again, as few as half of the limit of memory allows; their numbers.

    Parameters
    ----------
    stored
        Their documents stay in this order, before those of ``added``. Those that are large by
        themselves are copied.
    added
        Partitions that are not stored yet.
    """
    limit = memory_limit // 2
    numbers: list[int] = []
    *groups, last = list(_groups(stored, form, limit)) or [[]]
    for group in groups:
        _write(numbers, group, [], form, out)
    first = next(added, None)
    if first is None:
        _write(numbers, last, [], form, out)
    elif _is_mergeable(form) and sum(map(_held, last)) + _held(first) <= limit:
        _write(numbers, last, [first], form, out)
    else:
        _write(numbers, last, [], form, out)
        _write(numbers, [], [first], form, out)
    for content in added:
        _write(numbers, [], [content], form, out)
    return numbers


def _write(
    numbers: list[int],
    stored: Sequence[StoredPartition],
    added: Sequence[PartitionContent],
    form: TextFormat,
    out: SegmentWriter,
) -> None:
    """Write one partition, if there is something to write, and add its number."""
    number = len(numbers)
    if len(stored) == 1 and not added:
        for old, new in zip(stored[0].names, partition_files(number), strict=True):
            out.copy(stored[0].segment, old, new)
    elif stored or added:
        contents = [partition.content() for partition in stored] + list(added)
        content = merge_contents(contents) if len(contents) > 1 else contents[0]
        write_partition(out, number, content, form)
    else:
        return
    numbers.append(number)


def _is_mergeable(form: TextFormat) -> bool:
    """Whether lists can be joined: not if each document has its positions by itself."""
    return form.shares_positions or not form.params.with_position


def _groups(
    stored: Iterable[StoredPartition], form: TextFormat, limit: int
) -> Iterator[list[StoredPartition]]:
    """Neighbouring partitions that fit into memory together, or one."""
    group: list[StoredPartition] = []
    held = 0
    for partition in stored:
        needed = _held(partition)
        if group and (held + needed > limit or not _is_mergeable(form)):
            yield group
            group, held = [], 0
        group.append(partition)
        held += needed
    if group:
        yield group


def _held(partition: StoredPartition | PartitionContent) -> int:
    """Bytes of memory that merging a partition takes, about."""
    return _BYTES_PER_POSTING * partition.postings + _BYTES_PER_POSITION * partition.positions


def merge_contents(contents: Sequence[PartitionContent]) -> PartitionContent:
    """One partition of several; documents are numbered one partition after the other."""
    tokens, numbers = _vocabulary([content.tokens for content in contents])
    sizes = np.zeros(len(tokens), np.int64)
    position_sizes = np.zeros(len(tokens), np.int64)
    with_position = contents[0].lists.positions is not None
    for content, of in zip(contents, numbers, strict=True):
        sizes[of] += np.diff(content.lists.starts)
        if with_position:
            position_sizes[of] += np.diff(content.lists.position_starts())
    starts = np.concatenate(([0], np.cumsum(sizes)))
    documents = np.empty(int(starts[-1]), np.uint32)
    frequencies = np.empty(int(starts[-1]), np.uint32)
    positions = np.empty(int(position_sizes.sum()), np.uint32) if with_position else None
    ends, position_ends = starts[:-1].copy(), np.cumsum(position_sizes) - position_sizes
    before = 0
    for content, of in zip(contents, numbers, strict=True):
        lists = content.lists
        for some, places in _places(ends, of, lists.starts):
            documents[places] = lists.documents[some] + np.uint32(before)
            frequencies[places] = lists.frequencies[some]
        before += len(content.rows)
        if positions is not None and lists.positions is not None:
            for some, places in _places(position_ends, of, lists.position_starts()):
                positions[places] = lists.positions[some]
    elements = [content.elements for content in contents if content.elements is not None]
    return PartitionContent(
        tokens,
        np.concatenate([content.rows for content in contents]),
        np.concatenate(elements) if elements else None,
        np.concatenate([content.lengths for content in contents]),
        Inversion(starts, documents, frequencies, positions),
    )


def _vocabulary(parts: Sequence[Any]) -> tuple[Any, list[Int64s]]:
    """The distinct tokens of all, ascending; and for each part the numbers of its tokens."""
    encoded: Any = dictionary_encoded(pa.concat_arrays(parts))
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    numbers = rank[encoded.indices.to_numpy()]
    bounds = np.cumsum([len(part) for part in parts])[:-1]
    return encoded.dictionary.take(order), np.split(numbers, bounds)


def _places(ends: Int64s, of: Int64s, starts: Int64s) -> Iterator[tuple[slice, Int64s]]:
    """Where items of lists go that are appended to others, some items at a time.

    Moves the ends of these.
    """
    for first, last in batches(starts, _AT_ONCE):
        sizes = np.diff(starts[first : last + 1])
        into = of[first:last]
        yield slice(int(starts[first]), int(starts[last])), spread(ends[into], sizes)
        ends[into] += sizes
