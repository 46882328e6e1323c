"""BTREE: all values with their rows, sorted by value, in pages; and the bounds of each page.

Specification: "BTREE" in ``docs/format/scalar-indices.md``.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import number_array, spread
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import (
    Condition,
    InRange,
    IsNull,
    IsOneOf,
    comparable_decimals,
    constants,
)
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import IndexKindError, UnsupportedFeatureError
from glaive.format.extension import JSON
from glaive.format.logical_types import EXTENSION_NAME
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    Entries,
    IndexKind,
    IndexQuery,
    RebuiltSegment,
    ScalarIndex,
    ValueBatch,
    check_same_type,
    check_type,
    index_kind,
    integer,
    shared_type,
)
from glaive.index.row_sets import NO_ROWS, AddressMap, RowNumbers, RowSet
from glaive.index.scalar.ordering import (
    SortKeys,
    accepts,
    bytes_of,
    distinct_keys,
    is_number,
    is_sortable,
    key_of,
    prefix_range,
    sort_keys,
)
from glaive.index.segment import IndexFile, Keep, Segment, SegmentWriter, load_uncached
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.index.scalar.sorting import SortedRun


PAGES = "page_data.lance"
LOOKUP = "page_lookup.lance"
_PAGE_ROWS = 4096
_MAX_PAGE_ROWS = 2**31 - 1
_ZONE_SIZE = "zone_size"
_RANGE_PARTITIONED = "range_partitioned"


@index_kind
class BTree(IndexKind):
    """Values sorted in pages."""

    name: ClassVar[str] = "btree"
    title: ClassVar[str] = "BTREE"
    options: ClassVar[tuple[str, ...]] = (_ZONE_SIZE,)
    newest: ClassVar[int] = 1
    indexes_dictionaries: ClassVar[bool] = False
    stores_addresses: ClassVar[bool] = True
    markers: ClassVar[tuple[str, ...]] = (LOOKUP,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the pages with the surviving rows, and their bounds."""
        lookup, pages = _open_lookup(segment, "rebuild"), _open_pages(segment)
        kind = pages.schema.field("values").type
        lookup.check(min=kind, max=kind, null_count=pa.uint32(), page_idx=pa.uint32())

        def surviving() -> Iterator[ValueBatch]:
            for rows in pages.windows(["values", "ids"]):
                pages.check_present(rows["ids"])
                for batch in address_map.remap_rows(rows, "ids")[0].to_batches():
                    yield ValueBatch(batch.column(0), as_numpy(batch.column(1)))

        fields = [pages.schema.field(name) for name in ("values", "ids")]
        schemas = pa.schema(fields).with_metadata(pages.schema.metadata), lookup.schema
        per_page = lookup.number("batch_size", _PAGE_ROWS, minimum=1)
        _write(surviving(), schemas, per_page, lookup.metadata, out)
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedBTree:
        """Read the bounds of all pages."""
        lookup, pages = _open_lookup(segment, "search"), _open_pages(segment)
        per_page = lookup.number("batch_size", _PAGE_ROWS, minimum=1)
        kind = pages.schema.field("values").type
        lookup.check(min=kind, max=kind, null_count=pa.uint32(), page_idx=pa.uint32())
        if not is_sortable(kind):
            raise UnsupportedFeatureError(f"{pages.path}: values of type {kind} are not searched")
        rows = lookup.read(["min", "max", "null_count", "page_idx"])
        for name in ("null_count", "page_idx"):
            lookup.check_present(rows[name])
        count = -(-pages.num_rows // per_page)
        # Compactions of pylance before 2.0 dropped rows from the pages and kept the old bounds.
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

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the rows per page."""
        return {_ZONE_SIZE: _page_rows(segment)}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the number of pages, and the first and the last value."""
        lookup = _open_lookup(segment, "read")
        lookup.check(min=None, max=None)
        rows = lookup.read(["min", "max"])
        ends = [rows["min"][0], rows["max"][-1]] if len(rows) else [None, None]
        lowest, highest = map(_shown, ends)
        return {"min": lowest, "max": highest, "num_pages": len(rows)}

    def value_type(self, segment: Segment) -> pa.DataType:
        """Return the type of the values."""
        return _type_of([segment])

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Sort the values of the source within its memory limit, and merge them with the segments.

        The parameter ``zone_size`` is the number of rows of a page; default: 4,096.
        """
        from glaive.index.scalar.sorting import merged, sorted_runs

        segments, source = given.segments, given.source
        per_page = integer(given.parameters, _ZONE_SIZE, _PAGE_ROWS)
        runs: list[SortedRun] = [_StoredRun.of(segment) for segment in segments]
        version = max((one.entry.index_version for one in segments), default=0)
        kind: Any = _type_of(segments) if segments else None
        if source is not None and segments:
            check_same_type(_open_pages(segments[0]), "values", source.field.type)
        elif source is not None:
            kind, version = _sortable_type(source.field), int(source.stable_row_ids)
        with sorted_runs(given.batches(), given.memory_limit) as new:
            metadata = {"batch_size": str(per_page), _RANGE_PARTITIONED: "false"}
            batches = merged([*runs, *new], given.memory_limit)
            ids = pa.field("ids", pa.uint64(), nullable=False)
            schemas = pa.schema([pa.field("values", kind), ids]), _lookup_schema(kind)
            _write(batches, schemas, per_page, metadata, out)
        return BuiltSegment(_DETAILS, version=version)


def _sortable_type(field: pa.Field[Any]) -> pa.DataType:
    """Return the type of a column to index."""
    name = field.name
    if (field.metadata or {}).get(EXTENSION_NAME.encode()) == JSON.encode():
        raise IndexKindError(
            f"BTREE index column {name}: JSON documents have no order. Index a member of them: "
            f"create_scalar_index({name!r}, IndexConfig('json', {{'path': 'a', "
            "'target_index_type': 'btree'}))"
        )
    check_type("BTREE", field, supported=is_sortable(field.type))
    kind: pa.DataType = field.type
    return kind


_DETAILS = "/lance.table.BTreeIndexDetails"


def _shown(value: Any) -> str:
    """Format a value as pylance does."""
    from glaive.arrow.conditions import python_values

    if value is None or not value.is_valid:
        return "NULL"
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).lower()
    if pa.types.is_floating(value.type):
        return str(value.as_py()).removesuffix(".0")
    if pa.types.is_temporal(value.type) and not pa.types.is_date(value.type):
        return str(value.value)
    return str(python_values(pa.repeat(value, 1))[0])


def _open_lookup(segment: Segment, purpose: str) -> IndexFile:
    lookup = segment.open(LOOKUP)
    if lookup.metadata.get(_RANGE_PARTITIONED, "false") != "false":
        raise UnsupportedFeatureError(
            f"{lookup.path}: this version of glaive does not {purpose} range-partitioned "
            "B-trees; drop the index and create it again"
        )
    return lookup


def _bounds_in(pages: IndexFile, per_page: int, sizes: Int64s) -> tuple[Any, Any, Int64s]:
    """Read the first value, the last value and the number of nulls of each page."""
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
    rows = file.number("batch_size", _PAGE_ROWS, minimum=1)
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
    return shared_type([_open_pages(segment) for segment in segments], "values")


@dataclass(frozen=True, eq=False)
class _StoredRun:
    """The sorted values of a segment."""

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
        # The merge reads up to the last value of a window: a smaller value within would break it.
        if values[:nulls].null_count != nulls or not ascends(values[nulls:]):
            raise self.pages.corrupt_column("values", "values in ascending order", "others")
        return ValueBatch(values, as_numpy(ids))


# --- writing ------------------------------------------------------------------------------


def _write(
    batches: Iterable[ValueBatch],
    schemas: tuple[pa.Schema, pa.Schema],
    per_page: int,
    metadata: Mapping[str, str],
    out: SegmentWriter,
) -> None:
    """Write sorted rows to the file of pages, and page bounds to the lookup file."""
    file = out.create(PAGES, schemas[0])
    lookup = _LookupBuilder(schemas[1], per_page)
    for values, rows in batches:
        file.write(pa.record_batch([values, number_array(rows)], schema=schemas[0]))
        lookup.add(values)
    file.finish()
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
        self._firsts.append(values.take(number_array(first)))
        self._lasts.append(values.take(number_array(last)))
        # Copy the last value, so that the rest of the array can be freed.
        self._end = values.take(number_array(np.array([len(values) - 1])))
        self._nulls += values.null_count

    def table(self) -> pa.Table:
        """Return a row per page."""
        if self._rows % self._per_page:
            self._lasts.append(self._end)
        starts = np.arange(0, self._rows, self._per_page)
        nulls = np.clip(self._nulls - starts, 0, np.minimum(self._per_page, self._rows - starts))
        columns: dict[str, Any] = {
            "min": pa.chunked_array(self._firsts, self._kind),
            "max": pa.chunked_array(self._lasts, self._kind),
            "null_count": number_array(nulls.astype(np.uint32)),
            "page_idx": number_array(np.arange(len(starts), dtype=np.uint32)),
        }
        schema = pa.schema([self._schema.field(name) for name in columns])
        return pa.table(list(columns.values()), schema=schema)


def _lookup_schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("min", kind),
            pa.field("max", kind),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("page_idx", pa.uint32(), nullable=False),
        ]
    )


# --- BTREE, searched: read the pages that a condition needs, and test their values ------
# Specification: "BTREE" in ``docs/format/scalar-indices.md``.


class PageSelection(NamedTuple):
    """Pages that may have rows for a condition.

    Parameters
    ----------
    whole
        Ranges of pages whose rows all pass: half-open, ascending, with gaps between them.
    partly
        Pages with some rows that may pass, so that their values must be tested; ascending.
    """

    whole: list[tuple[int, int]]
    partly: Int64s

    @classmethod
    def of(cls, whole: Flags, partly: Flags) -> Self:
        """Build a selection from flags per page."""
        edges = np.flatnonzero(np.diff(whole, prepend=False, append=False)).tolist()
        return cls(list(zip(edges[::2], edges[1::2], strict=True)), np.flatnonzero(partly))


@dataclass(frozen=True, eq=False)
class PageBounds:
    """Smallest and largest value of each page of sorted values, nulls first.

    Parameters
    ----------
    kind
        Type of the values.
    lows, highs
        Keys of the first and the last value of each page that has values. For a page that begins
        with nulls, the low key is undefined.
    null_rows
        Number of null rows; they come first.
    all_null
        Number of pages with nulls only; they come first.
    straddles
        The first page with values begins with nulls.
    rows
        Number of rows of each page.
    nbytes
        Approximate bytes of memory.
    """

    kind: pa.DataType
    lows: SortKeys
    highs: SortKeys
    null_rows: int
    all_null: int
    straddles: bool
    rows: Int64s
    nbytes: int

    @classmethod
    def of(cls, lowest: pa.Array, highest: pa.Array, nulls: Int64s, rows: Int64s) -> Self | None:
        """Build bounds from the first and the last value and the number of nulls of each page.

        Return ``None`` if the bounds contradict sorted pages.
        """
        null_rows, all_null = int(nulls.sum()), int((nulls == rows).sum())
        before = np.cumsum(rows) - rows
        straddles = bool(((nulls > 0) & (nulls < rows)).any())
        if not bool((nulls == np.clip(null_rows - before, 0, rows)).all()):
            return None
        if lowest.null_count != all_null + straddles or highest.null_count != all_null:
            return None
        lows, highs = sort_keys(lowest[all_null:]), sort_keys(highest[all_null:])
        present = int(straddles)
        if bool((highs[present:] < lows[present:]).any()) or bool((lows[1:] < highs[:-1]).any()):
            return None
        nbytes = lows.nbytes + highs.nbytes + rows.nbytes
        if lows.dtype == np.object_:
            nbytes += lowest.nbytes + highest.nbytes + _OBJECT_BYTES * 2 * len(lows)
        return cls(lowest.type, lows, highs, null_rows, all_null, straddles, rows, int(nbytes))

    def select(self, condition: Condition) -> PageSelection:
        """Return the pages for a condition that ``accepts`` allows."""
        if isinstance(condition, IsNull):
            return self._nulls(condition)
        if isinstance(condition, IsOneOf):
            selection = self._one_of(condition.values)
            return self._without(selection, condition) if condition.negated else selection
        if isinstance(condition, InRange):
            low = _Bound(_keys_of(condition.low), condition.low_included)
            return self._range(low, _Bound(_keys_of(condition.high), condition.high_included))
        if condition.ends:
            return self._one_of(constants([condition.word], self.kind))
        first, after = prefix_range(condition.word)
        return self._range(_Bound(first, True), _Bound(after, False))

    def keys_by_page(self, values: Any, pages: Int64s) -> list[SortKeys]:
        """Return, for each of some pages, the distinct keys of ``values`` within its bounds."""
        keys = distinct_keys(values)
        at = pages - self.all_null
        first = np.searchsorted(keys, self.lows[at], "left")
        if self.straddles:
            first[at == 0] = 0
        last = np.searchsorted(keys, self.highs[at], "right")
        bounds = zip(first.tolist(), last.tolist(), strict=True)
        return [keys[start:stop] for start, stop in bounds]

    # ------------------------------------------------------------------ by condition

    def _nulls(self, condition: IsNull) -> PageSelection:
        first, count = self.all_null + self.straddles, len(self.rows)
        start, stop = (first, count) if condition.negated else (0, self.all_null)
        whole = [(start, stop)] if start < stop else []
        return PageSelection(whole, np.arange(self.all_null, first))

    def _range(self, low: _Bound, high: _Bound) -> PageSelection:
        first = inner_first = _FIRST
        last = inner_last = np.array([len(self.lows)])
        if low.key is not None:
            side = "left" if low.included else "right"
            first, inner_first = self._search_highs(low.key, side), self._search_lows(low.key, side)
        if high.key is not None:
            side = "right" if high.included else "left"
            last, inner_last = self._search_lows(high.key, side), self._search_highs(high.key, side)
        return self._selection(first, last, inner_first, inner_last)

    def _one_of(self, values: Any) -> PageSelection:
        keys = sort_keys(values.drop_null() if values.null_count else values)
        return self._selection(
            self._search_highs(keys, "left"),
            self._search_lows(keys, "right"),
            self._search_lows(keys, "left"),
            self._search_highs(keys, "right"),
        )

    def _without(self, found: PageSelection, condition: IsOneOf) -> PageSelection:
        """Return all pages with values, except the pages found whole."""
        if condition.values.null_count:
            return PageSelection([], _NO_PAGES)
        whole = np.ones(len(self.rows), np.bool_)
        partly = np.zeros(len(self.rows), np.bool_)
        for start, stop in found.whole:
            whole[start:stop] = False
        whole[found.partly] = False
        partly[found.partly] = True
        whole[: self.all_null] = False
        if self.straddles:
            partly[self.all_null] |= whole[self.all_null]
            whole[self.all_null] = False
        return PageSelection.of(whole, partly)

    # ------------------------------------------------------------------ ranges of pages

    def _search_highs(self, keys: SortKeys, side: Any) -> Int64s:
        return self.highs.searchsorted(keys, side)

    def _search_lows(self, keys: SortKeys, side: Any) -> Int64s:
        """Search the low keys; the key of a page that begins with nulls counts as the lowest."""
        skipped = int(self.straddles)
        found = self.lows[skipped:].searchsorted(keys, side)
        return found + 1 if skipped else found

    def _selection(
        self, first: Int64s, last: Int64s, inner_first: Int64s, inner_last: Int64s
    ) -> PageSelection:
        """Return the union of ranges of pages, numbered among the pages with values.

        All rows of the pages from ``inner_first`` to ``inner_last`` pass, unless they are null.
        """
        if len(first) == 1:
            inner = max(inner_first.item(), int(self.straddles))
            return self._single(first.item(), last.item(), inner, inner_last.item())
        inner_first = np.maximum(inner_first, int(self.straddles))
        found, whole = self._union(first, last), self._union(inner_first, inner_last)
        return PageSelection.of(whole, found & ~whole)

    def _single(self, first: int, last: int, inner_first: int, inner_last: int) -> PageSelection:
        """Select one range of pages; the pages at its ends may pass partly."""
        before = self.all_null
        inner_first, inner_last = max(first, inner_first), min(last, inner_last)
        if inner_first >= inner_last:
            return PageSelection([], np.arange(before + first, before + last))
        edges = [*range(first, inner_first), *range(inner_last, last)]
        return PageSelection(
            [(before + inner_first, before + inner_last)], np.array(edges, np.int64) + before
        )

    def _union(self, first: Int64s, last: Int64s) -> Flags:
        last = np.maximum(first, last)
        depth = np.zeros(len(self.lows) + 1, np.int64)
        np.add.at(depth, first, 1)
        np.subtract.at(depth, last, 1)
        flags = np.zeros(len(self.rows), np.bool_)
        flags[self.all_null :] = np.cumsum(depth[:-1]) > 0
        return flags

    # ------------------------------------------------------------------ numbers of rows

    def rows_of(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Return the number of rows in ranges of pages."""
        return sum(int(self.rows[start:stop].sum()) for start, stop in ranges)

    @cached_property
    def rows_per_value(self) -> float:
        """Estimated number of rows with the same value.

        Two adjacent pages with an equal bound share a value. The more pages share values, the more
        rows have the same value.
        """
        pages = max(1, len(self.lows))
        changes = int(np.count_nonzero(self.lows[1:] != self.highs[:-1]))
        return pages / (changes + 1)

    @cached_property
    def are_disjoint(self) -> bool:
        """Whether each value is in one page only."""
        return self.rows_per_value == 1 and not self.null_rows

    def rows_of_values(self, condition: IsOneOf) -> int:
        """Estimate the rows that have one of some values, by the number of values."""
        return math.ceil(len(condition.values) * self.rows_per_value)

    def estimate(self, condition: Condition, selection: PageSelection) -> int:
        """Estimate the rows that pass a condition, given the pages selected for it."""
        whole, partly = selection
        tested = (
            self.rows.item(partly.item()) if len(partly) == 1 else self.rows[partly].sum().item()
        )
        if isinstance(condition, IsOneOf) and not condition.negated:
            single = self.rows_of_values(condition)
            # A value that continues on the next page has about half of each page.
            continues = len(whole) > 0 or len(partly) > len(condition.values)
            tested = max(tested // 2, single) if continues else min(tested, single)
        elif isinstance(condition, InRange) and self.lows.dtype != np.object_:
            tested = math.ceil(sum(self._share(condition, page) for page in partly.tolist()))
        else:
            tested = -(-tested // 2)
        return self.rows_of(whole) + tested

    def _share(self, condition: InRange, page: int) -> float:
        """Estimate the rows of a page in a range; assumes evenly spread values."""
        at = page - self.all_null
        low, high = int(self.lows[at]), int(self.highs[at])
        first = low if condition.low is None else int(_first(condition.low))
        last = high if condition.high is None else int(_first(condition.high))
        if not low < high or (self.straddles and at == 0):
            return int(self.rows[page]) / 2
        share = (min(last, high) - max(first, low) + 1) / (high - low + 1)
        return int(self.rows[page]) * max(0.0, share)


def _first(bound: Any) -> Any:
    return key_of(bound)[0]


_NO_PAGES = np.empty(0, np.int64)
_FIRST = np.zeros(1, np.int64)

_OBJECT_BYTES = 33
"""Bytes of memory of an empty ``bytes`` object."""


class _Bound(NamedTuple):
    """An end of a range: its key in an array of one; ``None`` for an open end."""

    key: SortKeys | None
    included: bool


def _keys_of(bound: Any) -> SortKeys | None:
    return None if bound is None else key_of(bound)


_MAX_CACHED_PAGES = 16
"""Maximum pages to test per search that are cached individually."""

_MAX_CACHED_ROWS, _MAX_CACHED_BYTES = 1 << 21, 1 << 25
"""Maximum rows and bytes of a file that is cached whole, once searches tested as many pages."""

_BISECTION_VALUES = 200
"""Values per key for which a binary search is faster than testing all values."""


class OpenedBTree(ScalarIndex):
    """The bounds of all pages, and the file of the pages.

    Parameters
    ----------
    pages
        File of sorted values with row numbers.
    bounds
        Bounds of each page.
    per_page
        Rows of each page except the last.
    keep
        Cache for the pages read.
    """

    def __init__(
        self, pages: IndexFile, bounds: PageBounds, per_page: int, keep: Keep = load_uncached
    ) -> None:
        self._pages, self._bounds, self._per_page = pages, bounds, per_page
        self._keep = keep
        self._last: tuple[Condition, PageSelection] | None = None
        self._fits = pages.num_rows <= _MAX_CACHED_ROWS and pages.size <= _MAX_CACHED_BYTES
        self._tested = 0  # pages read singly since the whole file was read

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._bounds.nbytes + self._pages.nbytes

    @property
    def null_rows(self) -> int:
        """Number of null rows."""
        return self._bounds.null_rows

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query is a condition on this type; for strings, also a prefix."""
        return accepts(self._bounds.kind, query)

    def estimate(self, query: IndexQuery) -> int:
        """Return the rows of pages that pass, and an estimate for pages that pass partly."""
        condition: Any = query
        if isinstance(condition, IsOneOf) and not condition.negated and self._bounds.are_disjoint:
            return self._bounds.rows_of_values(condition)
        return self._bounds.estimate(condition, self._select(condition))

    def compared(self, query: IndexQuery) -> int:
        """Return the number of bounds and values to compare."""
        condition: Any = query
        pages = len(self._bounds.rows)
        return pages + min(len(self._select(condition)[1]) * self._per_page, self._pages.num_rows)

    def count(self, query: IndexQuery) -> tuple[int, int] | None:
        """Count the entries in a range. Cost: the pages of its two ends; they are cached."""
        condition: Any = query
        if not isinstance(condition, InRange):
            return None
        whole, partly = self._select(condition)
        ends = self._cached_pages(partly, [])[0]
        passing = self._bounds.rows_of(whole) + sum(len(page.find(condition)) for page in ends)
        return passing, self._pages.num_rows

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows exactly.

        Cost: one read, of values and rows of the pages to test, and of rows of the pages that pass.
        """
        condition: Any = query
        rows = self._find(condition)
        return Candidates(rows, self._unknown(condition) if nulls else None, exact=True)

    def _unknown(self, condition: Condition) -> RowSet:
        """Return the rows for which a condition is null."""
        if isinstance(condition, IsNull):
            return NO_ROWS
        if isinstance(condition, IsOneOf) and condition.values.null_count:
            # With a null among the values, a row that differs from all values may equal the null.
            found = self._find(IsOneOf(condition.values.drop_null()))
            return self._row_set([self._rows(0, self._pages.num_rows)]).difference(found)
        return self._row_set([self._rows(0, self._bounds.null_rows)])

    def _rows(self, start: int, stop: int) -> RowNumbers:
        return self._numbers(self._pages.read_ranges([(("ids",), [(start, stop)])])[0][0])

    def _find(self, condition: Condition) -> RowSet:
        if isinstance(condition, IsNull):
            # Nulls come first: their number determines their rows.
            nulls, end = self._bounds.null_rows, self._pages.num_rows
            return self._row_set([self._rows(*((nulls, end) if condition.negated else (0, nulls)))])
        places = _has_places(condition)
        if places and self._fits and self._tested >= len(self._bounds.rows):
            # Single pages read so far amount to the whole file: read and search it whole.
            return self._row_set([self._keep("pages", self._load_all).find(condition)])
        whole, partly = self._select(condition)
        self._tested += len(partly)
        if len(partly) <= _MAX_CACHED_PAGES:
            pages, rest = self._cached_pages(partly, self._ranges(whole))
            if len(pages) > 1 and places and isinstance(condition, IsOneOf):
                keys = self._bounds.keys_by_page(condition.values, partly)
                found = [
                    page.find_keys(some, condition) for page, some in zip(pages, keys, strict=True)
                ]
            else:
                found = [page.find(condition) for page in pages]
            return self._row_set([*rest, *found])
        if self._fits:
            return self._row_set([self._keep("pages", self._load_all).find(condition)])
        edges = np.flatnonzero(np.diff(partly) != 1) + 1
        runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(partly, edges)]
        pages, rest = self._read(runs, self._ranges(whole))
        return self._row_set([*rest, *(page.find(condition) for page in pages)])

    def _load_all(self) -> tuple[_Page, int]:
        """Read all pages as one."""
        self._tested = 0  # the cache may evict the pages again
        rows = [(0, self._pages.num_rows)]
        ((values, ids),) = self._pages.read_ranges([(("values", "ids"), rows)])
        page = _Page.of(values, self._numbers(ids))
        return page, page.nbytes

    def _select(self, condition: Condition) -> PageSelection:
        """Return the pages for a condition; caches the result for the last condition."""
        last = self._last  # another thread may replace it
        if last is None or last[0] is not condition:
            self._last = last = (condition, self._bounds.select(condition))
        return last[1]

    def _cached_pages(
        self, at: Int64s, others: list[tuple[int, int]]
    ) -> tuple[list[_Page], list[RowNumbers]]:
        """Return some pages, and the rows of other ranges.

        If a page is missing in the cache, one read fetches all pages and ranges.
        """
        fetched: dict[int, _Page] = {}
        rest: list[RowNumbers] = []

        def load(number: int) -> tuple[_Page, int]:
            if number not in fetched:
                pages, rest[:] = self._read([(one, one + 1) for one in at.tolist()], others)
                fetched.update(zip(at.tolist(), pages, strict=True))
            page = fetched[number]
            return page, page.nbytes

        found = [self._keep(("page", number), partial(load, number)) for number in at.tolist()]
        if others and not rest:
            _, rest = self._read([], others)
        return found, rest

    def _read(
        self, runs: list[tuple[int, int]], others: list[tuple[int, int]]
    ) -> tuple[list[_Page], list[RowNumbers]]:
        """Read runs of pages, each run as one page, and the rows of other ranges; one read."""
        ranges = self._ranges(runs)
        columns = self._pages.read_ranges([(("values", "ids"), ranges), (("ids",), others)])
        pages = [_Page.of(values, self._numbers(ids)) for values, ids in columns[: len(ranges)]]
        return pages, [self._numbers(ids) for (ids,) in columns[len(ranges) :]]

    def _ranges(self, pages: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Convert ranges of pages to ranges of rows."""
        size = self._per_page
        return [(start * size, min(stop * size, self._pages.num_rows)) for start, stop in pages]

    def _numbers(self, ids: Any) -> RowNumbers:
        self._pages.check_present(ids)
        return as_numpy(ids)

    def _row_set(self, found: list[RowNumbers]) -> RowSet:
        rows = np.sort(np.concatenate([NO_ROWS.starts, *found]))
        if len(rows) and rows[-1] == _NO_ROW:
            raise self._pages.corrupt("rows of an index", "a number below 2^64 - 1", f"{_NO_ROW}")
        return RowSet.of(rows)


class _Page(NamedTuple):
    """Values of adjacent pages, and their rows.

    Parameters
    ----------
    present
        The valid values, which follow the nulls; keys for numbers, binary values for strings.
    is_ascending
        The values are sorted, as they should be: they can be searched by bisection.
    """

    values: Any
    rows: RowNumbers
    present: Any
    is_ascending: bool

    @classmethod
    def of(cls, values: Any, rows: RowNumbers) -> _Page:
        """Build a page from the columns read."""
        present = values[values.null_count :]
        if present.null_count:
            return cls(values, rows, present, is_ascending=False)
        if is_number(values.type):
            present = sort_keys(present)
            descends = present[1:] < present[:-1]
        else:
            import pyarrow.compute as pc

            present = bytes_of(present)
            ordered = comparable_decimals(present)
            descends = as_numpy(pc.less(ordered[1:], ordered[:-1]))
        return cls(values, rows, present, is_ascending=not bool(descends.any()))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.values.nbytes + self.rows.nbytes + self.present.nbytes)

    def find(self, condition: Condition) -> RowNumbers:
        """Return the rows that pass a condition."""
        if self.is_ascending and isinstance(condition, InRange):
            first, last = 0, len(self.present)
            if condition.low is not None:
                first = self._place(key_of(condition.low), _SIDES[not condition.low_included])
            if condition.high is not None:
                last = self._place(key_of(condition.high), _SIDES[condition.high_included])
            return self.rows[len(self.rows) - len(self.present) :][first:last]
        if self.is_ascending and isinstance(condition, IsOneOf) and _has_places(condition):
            return self.find_keys(distinct_keys(condition.values), condition)
        return self.rows[_passing(condition, self.values)]

    def find_keys(self, keys: SortKeys, condition: Condition) -> RowNumbers:
        """Return the rows with one of some distinct keys; ``condition`` is an equivalent test."""
        rows = self.rows[len(self.rows) - len(self.present) :]
        if not self.is_ascending:
            return self.rows[_passing(condition, self.values)]
        if isinstance(self.present, np.ndarray):
            starts, stops = (np.searchsorted(self.present, keys, side) for side in _SIDES)
            return rows[spread(starts, stops - starts)]
        if len(keys) * _BISECTION_VALUES > len(self.present):
            return self.rows[_passing(condition, self.values)]
        parts = [rows[self._place([key], "left") : self._place([key], "right")] for key in keys]
        return np.concatenate([rows[:0], *parts])

    def _place(self, key: Sequence[Any] | SortKeys, side: _Side) -> int:
        """Return the index at which a key sorts among the valid values."""
        if isinstance(self.present, np.ndarray):
            return int(self.present.searchsorted(key, side)[0])
        bisect = bisect_left if side == "left" else bisect_right
        values, places = self.present, range(len(self.present))
        return bisect(places, key[0], key=lambda at: values[at].as_py())


_Side: TypeAlias = Literal["left", "right"]
_SIDES: tuple[_Side, _Side] = ("left", "right")

_NO_ROW = np.iinfo(np.uint64).max


def _has_places(condition: Condition) -> bool:
    """Return whether the passing values are in one or a few ranges of the sorted values."""
    return isinstance(condition, InRange) or (
        isinstance(condition, IsOneOf) and not condition.negated
    )


def _passing(condition: Condition, values: pa.Array) -> Flags:
    return as_numpy(condition.mask(values))
