"""BLOOMFILTER: a filter of the values of each zone of rows.

Specification: "BLOOMFILTER" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from glaive.index.address_map import AddressMap
from glaive.index.protocol import BuiltSegment, IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.scalar.block_filters import FilterBuilder, filter_bytes, is_hashed
from glaive.index.scalar.bloomfilter_search import OpenedBloomFilter
from glaive.index.scalar.json_members import MemberSource
from glaive.index.scalar.parameters import check_type, integer, known_parameters, probability
from glaive.index.scalar.rowsets import union_of_rowsets
from glaive.index.scalar.zones import (
    NULLS,
    ZONE_FIELDS,
    StoredZones,
    Zoned,
    joined,
    retained_zones,
    shared_setting,
    stored_nulls,
    stored_setting,
)
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.source import IndexSource

__all__ = ["BloomFilter"]

FILTERS = "bloomfilter.lance"
_ITEMS, _PROBABILITY = "number_of_items", "probability"
_STORED_ITEMS, _STORED_PROBABILITY = "bloomfilter_item", "bloomfilter_probability"
_DEFAULT_ITEMS, _DEFAULT_PROBABILITY = 8192, 0.00057
_STORED_TYPE = "glaive.value_type"
_OF_MEMBERS = {str(kind): kind for kind in (pa.int64(), pa.float64(), pa.string())}
"""Types of members of documents that filters are made of; those of columns are in the schema."""


@index_kind
class BloomFilter(IndexKind):
    """A filter for the values of each zone of rows; a rewrite cuts other zones."""

    name: ClassVar[str] = "bloomfilter"
    newest: ClassVar[int] = 0
    indexes_dictionaries: ClassVar[bool] = False
    stores_addresses: ClassVar[bool] = True
    markers: ClassVar[tuple[str, ...]] = (FILTERS,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Drop nulls where rows stay where they are; else None: zones do not follow rows."""
        return retained_zones(segment, FILTERS, address_map, out)

    def open(self, segment: Segment) -> OpenedBloomFilter:
        """Read where the zones are; the filters too if they are small."""
        file = segment.open(FILTERS)
        file.check(has_null=pa.bool_(), bloom_filter_data=pa.binary())
        return OpenedBloomFilter(file, StoredZones.read(file))

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Read the values once.

        Parameters are ``number_of_items``, the rows of a zone and the distinct values that are
        expected in it, 8,192 by default, and ``probability``, with which a zone is read in vain,
        0.00057 by default.
        """
        known_parameters("BLOOMFILTER", parameters, (_ITEMS, _PROBABILITY))
        items = integer(parameters, _ITEMS, _DEFAULT_ITEMS)
        wanted = probability(parameters, _PROBABILITY, _DEFAULT_PROBABILITY)
        zones, nulls = _zones_of(source, items, wanted)
        return _write(zones, [nulls], (str(items), _text(wanted)), {_noted(source)}, out)

    def value_type(self, segment: Segment) -> pa.DataType | None:
        """The type of the values, where the writer noted it: filters of others look the same."""
        return _OF_MEMBERS.get(segment.open(FILTERS).metadata.get(_STORED_TYPE, ""))

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The rows of a zone, and the probability."""
        file = segment.open(FILTERS)
        given = {_ITEMS: file.number(_STORED_ITEMS, _DEFAULT_ITEMS, least=1)}
        chance = file.metadata.get(_STORED_PROBABILITY, _text(_DEFAULT_PROBABILITY))
        items = stored_setting(file, given, _ITEMS)
        return {_ITEMS: items, _PROBABILITY: _probability_of(file, chance)}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Its zones, how many rows one has, and the probability."""
        count = segment.open(FILTERS).num_rows
        return {"type": "BloomFilter", "num_blocks": count, **self.parameters(segment)}

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Put the zones of all segments behind each other, and those of the source."""
        files = [segment.open(FILTERS) for segment in segments]
        items = shared_setting(files, _STORED_ITEMS, str(_DEFAULT_ITEMS))
        wanted = shared_setting(files, _STORED_PROBABILITY, _text(_DEFAULT_PROBABILITY))
        tables = [file.read() for file in files]
        nulls = [stored_nulls(file) for file in files]
        kinds = {self.value_type(segment) for segment in segments}
        if source is not None:
            kinds.add(_noted(source))
            given = self.parameters(segments[0])
            table, absent = _zones_of(source, given[_ITEMS], given[_PROBABILITY])
            tables.append(table)
            nulls.append(absent)
        return _write(joined(tables, files), nulls, (items, wanted), kinds, out)


def _probability_of(file: IndexFile, text: str) -> float:
    """The probability of the metadata; raises a ``CorruptFileError`` if it is none."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise file.corrupt(f"metadata {_STORED_PROBABILITY!r}", "a number from 0 to 1", repr(text))
    return value


def _text(value: float) -> str:
    return f"{value:.17f}".rstrip("0") if value < 1e-4 else repr(value)


def _noted(source: IndexSource) -> pa.DataType | None:
    """The type that is noted in the file: of members of documents, not of columns."""
    return source.field.type if isinstance(source, MemberSource) else None


def _zones_of(source: IndexSource, items: int, wanted: float) -> tuple[pa.Table, bytes]:
    """The zones of a source with their filters, and the rows that are null."""
    check_type("BLOOMFILTER", source.field, supported=is_hashed(source.field.type))
    zoned = Zoned(source, items)
    filters = FilterBuilder(filter_bytes(items, wanted))
    for batch in zoned.batches():
        filters.add(batch)
    columns, nulls = zoned.columns()
    schema = pa.schema(
        [
            *ZONE_FIELDS,
            pa.field("has_null", pa.bool_(), nullable=False),
            pa.field("bloom_filter_data", pa.binary(), nullable=False),
        ]
    )
    return pa.table([*columns, pa.array(nulls > 0), filters.finish()], schema=schema), zoned.nulls()


def _write(
    zones: pa.Table,
    nulls: Sequence[bytes],
    settings: tuple[str, str],
    kinds: set[pa.DataType | None],
    out: SegmentWriter,
) -> BuiltSegment:
    metadata = dict(zip((_STORED_ITEMS, _STORED_PROBABILITY), settings, strict=True))
    if len(kinds) == 1 and None not in kinds:
        metadata[_STORED_TYPE] = str(*kinds)
    out.write(FILTERS, zones, metadata=metadata, buffers={NULLS: union_of_rowsets(nulls)})
    return BuiltSegment("/lance.index.pb.BloomFilterIndexDetails")
