"""ZONEMAP: smallest and largest value of each zone of rows.

Specification: "ZONEMAP" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy
from glaive.arrow.dictionaries import decode_dictionary, dictionary_encoded
from glaive.errors import UnsupportedFeatureError
from glaive.index.address_map import AddressMap
from glaive.index.index_file import IndexFile
from glaive.index.protocol import BuiltSegment, IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.scalar.extremes import Extremes
from glaive.index.scalar.ordering import is_sortable
from glaive.index.scalar.parameters import check_type, integer, known_parameters
from glaive.index.scalar.rowsets import union_of_rowsets
from glaive.index.scalar.zonemap_search import OpenedZoneMap
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
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.source import IndexSource
from glaive.index.text.varints import encode_varints

__all__ = ["ZoneMap"]

ZONES = "zonemap.lance"
_ROWS = "rows_per_zone"
_DEFAULT_ROWS = 8192
_BOUNDS = ("min", "max")
_COUNTS = ("null_count", "nan_count")


@index_kind
class ZoneMap(IndexKind):
    """Smallest and largest value of each zone of rows; a rewrite cuts other zones."""

    name: ClassVar[str] = "zonemap"
    newest: ClassVar[int] = 0
    stores_addresses: ClassVar[bool] = True
    markers: ClassVar[tuple[str, ...]] = (ZONES,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Drop nulls where rows stay where they are; else None: zones do not follow rows."""
        return retained_zones(segment, ZONES, address_map, out)

    def open(self, segment: Segment) -> OpenedZoneMap:
        """Read all zones."""
        file = _opened(segment)
        rows = file.read([*_BOUNDS, *_COUNTS])
        low, high = (_decoded(rows[name].combine_chunks()) for name in _BOUNDS)
        if not is_sortable(low.type):
            raise UnsupportedFeatureError(
                f"{file.path}: values of type {low.type} are not searched"
            )
        for name in _COUNTS:
            file.check_present(rows[name])
        nulls, nans = (as_numpy(rows[name]) for name in _COUNTS)
        return OpenedZoneMap(StoredZones.read(file), low, high, nulls, nans > 0)

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Read the values once; ``rows_per_zone`` is 8,192 unless it is given."""
        known_parameters("ZONEMAP", parameters, (_ROWS,))
        rows_per_zone = integer(parameters, _ROWS, _DEFAULT_ROWS)
        check_type("ZONEMAP", source.field, supported=is_sortable(source.field.type))
        rows, nulls = _zones_of(source, rows_per_zone)
        return _write(rows, [nulls], rows_per_zone, source.dictionary_type, out)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The rows of a zone."""
        file = segment.open(ZONES)
        given = {_ROWS: file.number(_ROWS, _DEFAULT_ROWS, least=1)}
        return {_ROWS: stored_setting(file, given, _ROWS)}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Its zones, and how many rows one has."""
        return {"num_zones": segment.open(ZONES).num_rows, **self.parameters(segment)}

    def value_type(self, segment: Segment) -> pa.DataType | None:
        """The type of the bounds."""
        file = _opened(segment)
        kind: pa.DataType = file.schema.field("min").type
        return kind

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Put the zones of all segments behind each other, and those of the source."""
        files = [_opened(segment) for segment in segments]
        shared_setting(files, _ROWS, str(_DEFAULT_ROWS))
        rows_per_zone: int = self.parameters(segments[0])[_ROWS]
        tables = [_plain(file.read()) for file in files]
        kind = self.value_type(segments[-1])
        nulls = [stored_nulls(file) for file in files]
        if source is not None:
            new = _zones_of(source, rows_per_zone)
            tables.append(new[0])
            nulls.append(new[1])
            kind = source.dictionary_type
        return _write(joined(tables, files), nulls, rows_per_zone, kind, out)


def _opened(segment: Segment) -> IndexFile:
    """The file of a segment, whose bounds and counts have been checked to be there.

    Raises
    ------
    CorruptFileError
        Columns are absent or of wrong types.
    """
    file = segment.open(ZONES)
    file.check(min=None, max=None, **dict.fromkeys(_COUNTS, pa.uint32()))
    kinds = {file.schema.field(name).type for name in _BOUNDS}
    if len(kinds) > 1:
        raise file.corrupt("zones of an index", "bounds of one type", f"{kinds}")
    return file


def _zones_of(source: IndexSource, rows_per_zone: int) -> tuple[pa.Table, bytes]:
    """The zones of a source, and the rows that are null; bounds of dictionaries are plain ones.

    Values without an order, of which pylance makes such indices, have bounds that are null.
    """
    zoned, extremes = Zoned(source, rows_per_zone), Extremes(source.field.type)
    has_order = is_sortable(source.field.type)
    for batch in zoned.batches():
        if has_order:
            extremes.add(batch)
    columns, nulls = zoned.columns()
    if has_order:
        low, high, nans = extremes.finish()
    else:
        kind: Any = source.field.type
        low = high = pa.nulls(len(nulls), kind)
        nans = np.zeros(len(nulls), np.int64)
    counts = [pa.array(one.astype(np.uint32)) for one in (nulls, nans)]
    schema = _schema(source.field.type)
    return pa.table([low, high, *counts, *columns], schema=schema), zoned.nulls()


def _write(
    zones: pa.Table,
    nulls: Sequence[bytes],
    rows_per_zone: int,
    kind: pa.DataType | None,
    out: SegmentWriter,
) -> BuiltSegment:
    """Write zones with plain bounds; ``kind`` is the column's type if it has dictionaries."""
    if kind is not None and pa.types.is_dictionary(kind):
        bounds = [_encoded(zones[name].combine_chunks(), kind) for name in _BOUNDS]
        zones = _with_bounds(zones, bounds)
    metadata, buffers = {_ROWS: str(rows_per_zone)}, {NULLS: union_of_rowsets(nulls)}
    out.write(ZONES, zones, metadata=metadata, buffers=buffers)
    return BuiltSegment(_DETAILS, _details(rows_per_zone, zones.schema.field("min").type))


_DETAILS = "/lance.table.ZoneMapIndexDetails"


@lru_cache(maxsize=64)
def _details(rows_per_zone: int, kind: pa.DataType) -> bytes:
    """Rows per zone, ``use_seeds`` as pylance has it, and that it is known which rows are null."""
    tests = ("string", "large_string", "binary", "large_binary", "decimal")
    seeds = any(getattr(pa.types, f"is_{test}")(kind) for test in tests)
    rows = bytes(encode_varints(np.array([rows_per_zone]))[0])
    return b"\x08" + rows + bytes([0x10, int(seeds), 0x18, 1])


def _schema(kind: pa.DataType) -> pa.Schema:
    bounds = [pa.field(name, kind) for name in _BOUNDS]
    counts = [pa.field(name, pa.uint32(), nullable=False) for name in _COUNTS]
    return pa.schema([*bounds, *counts, *ZONE_FIELDS])


def _decoded(bounds: Any) -> Any:
    return decode_dictionary(bounds) if pa.types.is_dictionary(bounds.type) else bounds


def _plain(zones: pa.Table) -> pa.Table:
    """The zones of a file; bounds that are dictionaries become plain ones."""
    return _with_bounds(zones, [_decoded(zones[name].combine_chunks()) for name in _BOUNDS])


def _with_bounds(zones: pa.Table, bounds: Sequence[Any]) -> pa.Table:
    for name, bound in zip(_BOUNDS, bounds, strict=True):
        at = zones.schema.get_field_index(name)
        zones = zones.set_column(at, pa.field(name, bound.type), bound)
    return zones


def _encoded(bounds: Any, kind: Any) -> Any:
    """Bounds as dictionaries with the indices of the column's: pylance finds no rows by others.

    Where these are too narrow for all bounds, nulls, which pass all values, as pylance has them.
    """
    encoded = dictionary_encoded(bounds)
    try:
        indices = encoded.indices.cast(kind.index_type)
    except pa.ArrowInvalid:
        indices = pa.nulls(len(bounds), kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)
