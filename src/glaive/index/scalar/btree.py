"""BTREE: all values with their rows, sorted by value, in pages; and the bounds of each page.

Specification: "BTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy
from glaive.dataclass import dataclass
from glaive.errors import IndexKindError, UnsupportedFeatureError
from glaive.format.extension import JSON
from glaive.format.logical_types import EXTENSION_NAME
from glaive.index.address_map import AddressMap
from glaive.index.protocol import (
    BuiltSegment,
    IndexKind,
    IndexSource,
    RebuiltSegment,
    ValueBatch,
    index_kind,
)
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.index.scalar.btree_search import OpenedBTree
    from glaive.index.scalar.sorting import SortedRun


PAGES = "page_data.lance"
LOOKUP = "page_lookup.lance"
_PAGE_ROWS = 4096
_MAX_PAGE_ROWS = 2**31 - 1
_ZONE_SIZE = "zone_size"
_RANGE_PARTITIONED = "range_partitioned"
_MERGE_BYTES = 1 << 28
"""Memory for a merge without a source, which would have a limit."""


@index_kind
class BTree(IndexKind):
    """Sorted values."""

    name: ClassVar[str] = "btree"
    newest: ClassVar[int] = 1
    indexes_dictionaries: ClassVar[bool] = False
    stores_addresses: ClassVar[bool] = True
    markers: ClassVar[tuple[str, ...]] = (LOOKUP,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the pages without deleted rows, and their bounds."""
        lookup = _open_lookup(segment, "rebuild")
        per_page = lookup.number("batch_size", _PAGE_ROWS, least=1)
        pages = _open_pages(segment)
        kind = pages.schema.field("values").type
        lookup.check(min=kind, max=kind, null_count=pa.uint32(), page_idx=pa.uint32())
        bounds = _LookupBuilder(lookup.schema, per_page)
        fields = [pages.schema.field(name) for name in ("values", "ids")]
        file = out.create(PAGES, pa.schema(fields).with_metadata(pages.schema.metadata))
        for rows in pages.windows(["values", "ids"]):
            pages.check_present(rows["ids"])
            surviving, _ = address_map.remap_rows(rows, "ids")
            file.write(surviving)
            for values in surviving["values"].chunks:
                bounds.add(values)
        file.finish()
        out.write(LOOKUP, bounds.table(), metadata=lookup.metadata)
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedBTree:
        """Read the bounds of all pages."""
        from glaive.index.scalar.btree_search import OpenedBTree, PageBounds
        from glaive.index.scalar.ordering import is_sortable

        lookup, pages = _open_lookup(segment, "search"), _open_pages(segment)
        per_page = lookup.number("batch_size", _PAGE_ROWS, least=1)
        kind = pages.schema.field("values").type
        lookup.check(min=kind, max=kind, null_count=pa.uint32(), page_idx=pa.uint32())
        if not is_sortable(kind):
            raise UnsupportedFeatureError(f"{pages.path}: values of type {kind} are not searched")
        rows = lookup.read(["min", "max", "null_count", "page_idx"])
        for name in ("null_count", "page_idx"):
            lookup.check_present(rows[name])
        count = -(-pages.num_rows // per_page)
        # Compactions of pylance before 2.0 dropped rows from the pages and left the bounds.
        old = _RANGE_PARTITIONED not in lookup.metadata
        if not old and not np.array_equal(as_numpy(rows["page_idx"]), np.arange(count)):
            expected = f"page_idx from 0 to {count - 1}, for {pages.num_rows} rows"
            raise lookup.corrupt("pages of an index", expected, f"{lookup.num_rows} other pages")
        sizes = np.minimum(np.full(count, per_page), pages.num_rows - per_page * np.arange(count))
        lowest, highest = (rows[name].combine_chunks() for name in ("min", "max"))
        nulls = as_numpy(rows["null_count"]).astype(np.int64)
        if old:
            lowest, highest, nulls = _bounds_in(pages, per_page, sizes)
        bounds = PageBounds.of(lowest, highest, nulls, sizes)
        if bounds is None:
            expected = "bounds in ascending order, nulls first"
            raise lookup.corrupt("pages of an index", expected, "others")
        if not segment.store.is_local:
            pages.open_pages(("values", "ids"))
        return OpenedBTree(pages, bounds, per_page, segment.keep)

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Sort the values, within the source's limit of memory.

        ``zone_size`` is the number of rows of a page, by default 4,096.
        """
        from glaive.index.scalar.ordering import is_sortable
        from glaive.index.scalar.sorting import sorted_runs
        from glaive.index.scalar.zones import check_type, integer, known_parameters

        known_parameters("BTREE", parameters, (_ZONE_SIZE,))
        per_page = integer(parameters, _ZONE_SIZE, _PAGE_ROWS)
        kind, name = source.field.type, source.field.name
        if (source.field.metadata or {}).get(EXTENSION_NAME.encode()) == JSON.encode():
            raise IndexKindError(
                f"BTREE index column {name}: JSON documents have no order. Index a member of them: "
                f"create_scalar_index({name!r}, IndexConfig('json', {{'path': 'a', "
                "'target_index_type': 'btree'}))"
            )
        check_type("BTREE", source.field, supported=is_sortable(kind))
        with sorted_runs(source.batches(), source.memory_limit) as runs:
            _write(runs, kind, per_page, source.memory_limit, out)
        return BuiltSegment(_DETAILS, version=int(source.stable_row_ids))

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The rows of a page."""
        return {_ZONE_SIZE: _page_rows(segment)}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Its pages, and the first and the last value."""
        lookup = _open_lookup(segment, "read")
        lookup.check(min=None, max=None)
        rows = lookup.read(["min", "max"])
        ends = [rows["min"][0], rows["max"][-1]] if len(rows) else [None, None]
        lowest, highest = map(_shown, ends)
        return {"min": lowest, "max": highest, "num_pages": len(rows)}

    def value_type(self, segment: Segment) -> pa.DataType:
        """The type of the values."""
        return _type_of([segment])

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Merge the sorted values of all segments and of the source."""
        from glaive.index.scalar.sorting import sorted_runs
        from glaive.index.scalar.zones import check_same_type

        runs: list[SortedRun] = [_StoredRun.of(segment) for segment in segments]
        kind = _type_of(segments)
        per_page = _page_rows(segments[0])
        if source is None:
            _write(runs, kind, per_page, _MERGE_BYTES, out)
        else:
            check_same_type(_open_pages(segments[0]), "values", source.field.type)
            with sorted_runs(source.batches(), source.memory_limit) as new:
                _write([*runs, *new], kind, per_page, source.memory_limit, out)
        return BuiltSegment(_DETAILS, version=max(one.entry.index_version for one in segments))


_DETAILS = "/lance.table.BTreeIndexDetails"


def _shown(value: Any) -> str:
    """A value as pylance shows it."""
    from glaive.arrow.conditions import python_values

    if value is None or not value.is_valid:
        return "NULL"
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).lower()
    if pa.types.is_floating(value.type):
        return str(value.as_py()).removesuffix(".0")
    if pa.types.is_temporal(value.type) and not pa.types.is_date(value.type):
        return str(value.value)
    return str(python_values(pa.array([value]))[0])


def _open_lookup(segment: Segment, purpose: str) -> IndexFile:
    lookup = segment.open(LOOKUP)
    if lookup.metadata.get(_RANGE_PARTITIONED, "false") != "false":
        raise UnsupportedFeatureError(
            f"{lookup.path}: this version of glaive does not {purpose} range-partitioned "
            "B-trees; drop the index and create it again"
        )
    return lookup


def _bounds_in(pages: IndexFile, per_page: int, sizes: Int64s) -> tuple[Any, Any, Int64s]:
    """Return the first value, the last value and the nulls of each page, as the pages have them."""
    starts = np.arange(len(sizes)) * per_page
    (lowest,), (highest,) = (pages.take(["values"], at) for at in (starts, starts + sizes - 1))
    begins, ends = (as_numpy(values.is_null()) for values in (lowest, highest))
    nulls = np.where(ends, sizes, 0)
    for at in np.flatnonzero(begins & ~ends)[:1]:
        rows = (int(starts[at]), int(starts[at] + sizes[at]))
        nulls[at] = pages.read_ranges([(["values"], [rows])])[0][0].null_count
    return lowest, highest, nulls


def _page_rows(segment: Segment) -> int:
    file = segment.open(LOOKUP)
    rows = file.number("batch_size", _PAGE_ROWS, least=1)
    if rows > _MAX_PAGE_ROWS:
        raise file.corrupt("metadata 'batch_size'", f"at most {_MAX_PAGE_ROWS}", f"{rows}")
    return rows


def _open_pages(segment: Segment) -> IndexFile:
    pages = segment.open(PAGES)
    if "row_ids" in pages.schema.names and "ids" not in pages.schema.names:
        raise UnsupportedFeatureError(
            f"{pages.path}: B-trees of old releases are not read; drop the index and "
            "create it again"
        )
    pages.check(values=None, ids=pa.uint64())
    return pages


def _type_of(segments: Sequence[Segment]) -> pa.DataType:
    files = [_open_pages(segment) for segment in segments]
    kinds = [file.schema.field("values").type for file in files]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise file.corrupt_column("values", f"type {kinds[0]}", f"{kind}")
    shared: pa.DataType = kinds[0]
    return shared


@dataclass(frozen=True, eq=False)
class _StoredRun:
    """The values of a segment, which are sorted."""

    pages: IndexFile
    nulls: int
    nbytes: int

    @classmethod
    def of(cls, segment: Segment) -> _StoredRun:
        opened = BTree().open(segment)
        size = segment.sizes().get(PAGES, 0)
        return cls(_open_pages(segment), opened.null_rows, size)

    @property
    def num_rows(self) -> int:
        return self.pages.num_rows

    def read(self, start: int, stop: int) -> ValueBatch:
        from glaive.index.scalar.ordering import ascends

        values, ids = self.pages.read_ranges([(("values", "ids"), [(start, stop)])])[0]
        self.pages.check_present(ids)
        nulls = min(max(self.nulls - start, 0), len(values))
        # Merging goes on to the last value of what it has read: one below others would stop it.
        if values[:nulls].null_count != nulls or not ascends(values[nulls:]):
            raise self.pages.corrupt_column("values", "values in ascending order", "others")
        return ValueBatch(values, np.asarray(ids))


# --- writing ------------------------------------------------------------------------------


def _write(
    runs: Sequence[SortedRun],
    kind: pa.DataType,
    per_page: int,
    memory_limit: int,
    out: SegmentWriter,
) -> None:
    """Write the rows of some runs in order, and the bounds of their pages."""
    from glaive.index.scalar.sorting import merged

    schema = pa.schema([pa.field("values", kind), pa.field("ids", pa.uint64(), nullable=False)])
    file = out.create(PAGES, schema)
    lookup = _LookupBuilder(_lookup_schema(kind), per_page)
    for values, rows in merged(runs, memory_limit):
        file.write(pa.record_batch([values, pa.array(rows)], schema=schema))
        lookup.add(values)
    file.finish()
    metadata = {"batch_size": str(per_page), _RANGE_PARTITIONED: "false"}
    out.write(LOOKUP, lookup.table(), metadata=metadata)


class _LookupBuilder:
    """Collects the bounds of pages from sorted values, nulls first."""

    def __init__(self, schema: pa.Schema, per_page: int) -> None:
        self._schema, self._kind = schema, schema.field("min").type
        self._per_page = per_page
        self._rows = self._nulls = 0
        self._firsts: list[Any] = []
        self._lasts: list[Any] = []
        self._end: Any = pa.nulls(0, self._kind)

    def add(self, values: Any) -> None:
        """Append values."""
        if not len(values):
            return
        before, self._rows = self._rows, self._rows + len(values)
        first = np.arange(-before % self._per_page, len(values), self._per_page)
        last = np.arange(-(before + 1) % self._per_page, len(values), self._per_page)
        self._firsts.append(values.take(pa.array(first)))
        self._lasts.append(values.take(pa.array(last)))
        # A copy, so that the other values are not kept.
        self._end = values.take(pa.array([len(values) - 1]))
        self._nulls += values.null_count

    def table(self) -> pa.Table:
        """One row per page."""
        if self._rows % self._per_page:
            self._lasts.append(self._end)
        starts = np.arange(0, self._rows, self._per_page)
        nulls = np.clip(self._nulls - starts, 0, np.minimum(self._per_page, self._rows - starts))
        columns: dict[str, Any] = {
            "min": _joined(self._firsts, self._kind),
            "max": _joined(self._lasts, self._kind),
            "null_count": pa.array(nulls.astype(np.uint32)),
            "page_idx": pa.array(np.arange(len(starts), dtype=np.uint32)),
        }
        schema = pa.schema([self._schema.field(name) for name in columns])
        return pa.table(list(columns.values()), schema=schema)


def _joined(parts: list[Any], kind: Any) -> Any:
    return pa.chunked_array(parts, kind)


def _lookup_schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("min", kind),
            pa.field("max", kind),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("page_idx", pa.uint32(), nullable=False),
        ]
    )
