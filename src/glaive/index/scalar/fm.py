"""FM: the texts of a column by their Burrows-Wheeler transform, in which any word is found.

Specification: "FM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.errors import UnsupportedFeatureError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import BuiltSegment, IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.scalar.fm_build import (
    Texts,
    is_small,
    partition_name,
    partitions_of,
    stored_texts,
    texts_of,
    write_partition,
)
from glaive.index.scalar.fm_partition import DEAD_ROW, FMPartition
from glaive.index.scalar.fm_search import OpenedFM
from glaive.index.scalar.parameters import check_type, no_parameters
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.source import IndexSource

__all__ = ["SubstringIndex"]

_VERSION = 10
_MERGE_MEMORY = 1 << 30
"""Bytes that joining small partitions may take."""

_PARTITION = re.compile(r"part_(\d{1,9})_fm\.lance")


@index_kind
class SubstringIndex(IndexKind):
    """Texts in which any word is found."""

    name: ClassVar[str] = "fm"
    newest: ClassVar[int] = _VERSION
    indexes_dictionaries: ClassVar[bool] = False
    stores_addresses: ClassVar[bool] = True

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Say where the rows are now; texts of deleted rows stay, and are in no row."""
        if segment.entry.index_version != _VERSION:
            return None
        for number, partition in enumerate(_partitions(segment)):
            moved, kept = address_map.apply(partition.rows)
            rows = np.where(kept, moved, np.uint64(DEAD_ROW))
            _copy(partition.with_rows(rows), number, out)
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedFM:
        """Read which texts are in which row; of the texts nothing."""
        return OpenedFM(list(_partitions(segment)), segment.keep)

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Sort the suffixes of the texts, partition by partition; there are no parameters."""
        no_parameters("FM", parameters)
        return _write([], source, out)

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Put the partitions of all segments into one, small ones with a source built again."""
        partitions = [one for segment in segments for one in _partitions(segment) if one.size]
        return _write(partitions, source, out)

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Partitions, and the bytes and texts in them."""
        partitions = list(_partitions(segment))
        if not partitions:
            return {}
        return {
            "num_partitions": len(partitions),
            "total_bwt_len": sum(partition.size for partition in partitions),
            "total_docs": sum(len(partition.rows) for partition in partitions),
        }


def _partitions(segment: Segment) -> Iterator[FMPartition]:
    """The partitions of a segment, in their order.

    Raises
    ------
    UnsupportedFeatureError
        They are of a version that no released writer has.
    """
    version = segment.entry.index_version
    if version != _VERSION:
        raise UnsupportedFeatureError(f"{segment.where}: version {version} of FM is not read")
    numbers = sorted(
        int(match[1]) for name in segment.sizes() if (match := _PARTITION.fullmatch(name))
    )
    for number in numbers:
        yield FMPartition.read(segment.open(partition_name(number)))


def _write(
    partitions: Sequence[FMPartition], source: IndexSource | None, out: SegmentWriter
) -> BuiltSegment:
    """Write large partitions as they are, then small ones and a source as new ones.

    An empty one if there is no text.
    """
    joined = [one for one in partitions if is_small(one)]
    if len(joined) == 1 and source is None:
        joined = []
    copied = [one for one in partitions if one not in joined]
    for number, partition in enumerate(copied):
        _copy(partition, number, out)
    count = len(copied)
    texts: Iterator[Texts] = map(stored_texts, joined)
    memory_limit = _MERGE_MEMORY
    if source is not None:
        kind = source.field.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        check_type("FM", source.field, supported=is_text or is_binary)
        texts = chain(texts, map(texts_of, source.batches()))
        memory_limit = source.memory_limit
    for parts in partitions_of(texts, memory_limit):
        write_partition(out, count, parts)
        count += 1
    if not count:
        write_partition(out, 0, [])
    return BuiltSegment("/lance.index.pb.FMIndexDetails", version=_VERSION)


def _copy(partition: FMPartition, number: int, out: SegmentWriter) -> None:
    rows = partition.file.read().replace_schema_metadata(None)
    out.write(partition_name(number), rows, metadata=partition.metadata())
