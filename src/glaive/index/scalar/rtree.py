"""RTREE: bounding boxes of geometries in pages of neighbours, and a tree of page boxes.

Specification: "RTREE indices" in ``docs/format/rtree-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import IsNull, filled
from glaive.arrow.extensions import BOUNDS, BOX, DEPTHS, GeometryType, geometry_type
from glaive.dataclass import NamedTuple
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    Entries,
    IndexKind,
    IndexQuery,
    IndexSource,
    MeetsBox,
    RebuiltSegment,
    ScalarIndex,
    ValueBatch,
    index_kind,
    integer,
)
from glaive.index.row_sets import NO_ROWS, ROWSETS, AddressMap, RowNumbers, RowSet, row_set_of
from glaive.index.scalar.sorting import merged, sorted_runs
from glaive.index.segment import IndexFile, IndexFileWriter, Segment, SegmentWriter, rows_of_pages
from glaive.io.failures import spilling
from glaive.types import Flags

# --- Bounding boxes of geometries, in the layouts of GeoArrow ---------------------------
# Specification: "Columns with an RTREE index" in ``docs/format/rtree-indices.md``.

Boxes = NDArray[np.float64]
"""Shape ``(n, 4)``: lowest x and y, highest x and y."""


def check_geometries(field: pa.Field[Any]) -> GeometryType:
    """Return the geometry type of a column.

    Raises
    ------
    UnsupportedFeatureError
        The column has other values, or geometries of an unsupported layout.
    """
    kind = geometry_type(field)
    if kind is None or kind.layout not in (*DEPTHS, BOX):
        known = ", ".join(f"geoarrow.{layout}" for layout in (*DEPTHS, BOX))
        raise UnsupportedFeatureError(
            f"column {field.name!r} of type {field.type} cannot have an RTREE index. It is for "
            "geometries with separate coordinates: fields with the metadata "
            f"ARROW:extension:name={known}. Convert WKB and WKT to one of these"
        )
    return kind


def bounding_boxes(values: Any, field: pa.Field[Any]) -> tuple[Boxes, Flags]:
    """Return the box of each geometry, and flags that are ``False`` for null or empty geometries.

    Parameters
    ----------
    values
        Geometries of a type that :func:`check_geometries` accepts.
    field
        Field of the column; its metadata has the geometry type.

    Returns
    -------
    tuple
        Boxes (undefined where the flag is ``False``), and flags.
    """
    layout = check_geometries(field).layout
    there = np.asarray(values.is_valid())
    if layout == BOX:
        bounds = np.stack([_numbers(values, bound) for bound in BOUNDS], axis=1)
        # Spatial tests accept boxes whose bounds are swapped: order the bounds.
        corners = bounds[:, :2], bounds[:, 2:]
        boxes = np.concatenate((np.minimum(*corners), np.maximum(*corners)), axis=1)
        return boxes, there & ~np.isnan(boxes).any(axis=1)
    # Compute offsets from lengths: the offsets of a null list may span items.
    starts = np.arange(len(values) + 1, dtype=np.int64)
    for _ in range(DEPTHS[layout]):
        ends = np.concatenate([[0], np.cumsum(_sizes(values), dtype=np.int64)])
        starts, values = ends[starts], values.flatten()
    return _boxes_of_points(values, starts, there)


def _sizes(lists: Any) -> NDArray[np.int64]:
    return np.asarray(filled(lists.value_lengths(), 0)).astype(np.int64)


def _numbers(points: Any, axis: str) -> NDArray[np.float64]:
    """Return coordinates of points, with NaN for null points."""
    flattened = points.flatten()[points.type.get_field_index(axis)]
    return np.asarray(flattened.fill_null(np.nan), np.float64)


def _boxes_of_points(points: Any, starts: NDArray[np.int64], there: Flags) -> tuple[Boxes, Flags]:
    x, y = _numbers(points, "x"), _numbers(points, "y")
    boxes = np.full((len(there), 4), np.nan)
    filled = np.flatnonzero(starts[1:] > starts[:-1])
    if len(filled):
        first = starts[filled]
        # Points are adjacent: the start of a geometry's points is the end of the previous
        # geometry's.
        for at, (axis, reduced) in enumerate(
            ((x, np.fmin), (y, np.fmin), (x, np.fmax), (y, np.fmax))
        ):
            boxes[filled, at] = reduced.reduceat(axis, first)
    return boxes, there & ~np.isnan(boxes).any(axis=1)


# --- Sort boxes along a Hilbert curve, so that neighbours share a page ------------------
#
# glaive collects boxes in a temporary file, and sorts them by the position of their centres on a
# curve over the bounds of all boxes.
#
# Specification: "Files" in ``docs/format/rtree-indices.md``.

BOXES: Final = "boxes"
ROW: Final = "row"
_RECORD: Final = np.dtype([(BOXES, np.float64, 4), (ROW, np.uint64)])
_AXIS_BITS: Final = 16
_SORTED_BOXES: Final = 1 << 16
_SPILLED: Final = "boxes of an index"


class BoxCollector:
    """Collects boxes and row numbers in a temporary file (context manager).

    Parameters
    ----------
    memory_limit
        Maximum bytes of memory for sorting.

    Raises
    ------
    StoreError
        The system fails to create or write the temporary file.
    """

    def __init__(self, memory_limit: int) -> None:
        self._limit = memory_limit
        with spilling(_SPILLED):
            self._file: IO[bytes] = TemporaryFile(prefix="glaive-boxes-")  # noqa: SIM115  # closed by __exit__
        self._bounds = np.array([np.inf, np.inf, -np.inf, -np.inf])
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # close may flush boxes that nobody reads
            self._file.close()

    def add(self, boxes: Boxes, rows: RowNumbers) -> None:
        """Add boxes of numbers; NaN is invalid."""
        if not len(boxes):
            return
        records = np.empty(len(boxes), _RECORD)
        records[BOXES], records[ROW] = boxes, rows
        with spilling(_SPILLED):
            self._file.write(records.tobytes())
            self._file.flush()  # or a child forked later would write the rest again when it exits
        self._count += len(records)
        self._bounds[:2] = np.minimum(self._bounds[:2], boxes[:, :2].min(axis=0))
        self._bounds[2:] = np.maximum(self._bounds[2:], boxes[:, 2:].max(axis=0))

    def sorted(self) -> SortedBoxes:
        """Return all boxes for reading in order, before this object is closed."""
        records: Any = np.empty(0, _RECORD)
        with spilling(_SPILLED):
            self._file.flush()
            if self._count:
                records = np.memmap(self._file, _RECORD, "r")
        return SortedBoxes(records, self._bounds, self._limit)


class SortedBoxes:
    """Boxes in the order of the curve.

    Parameters
    ----------
    records
        Boxes and rows, in any order.
    bounds
        Bounds of all boxes.
    memory_limit
        Maximum bytes of memory for sorting.
    """

    def __init__(self, records: Any, bounds: NDArray[np.float64], memory_limit: int) -> None:
        self._records, self._bounds, self._limit = records, bounds, memory_limit

    def __len__(self) -> int:
        return len(self._records)

    def batches(self, multiple: int) -> Iterator[Any]:
        """Yield all records in order, in arrays of a multiple of rows; the last may be shorter."""
        rows = max(1, _SORTED_BOXES // multiple) * multiple
        waiting = np.empty(0, np.uint64)
        with sorted_runs(self._places(), self._limit) as runs:
            for _, numbers in merged(runs, self._limit):
                waiting = np.concatenate([waiting, numbers])
                while len(waiting) >= rows:
                    yield self._records[waiting[:rows].astype(np.int64)]
                    waiting = waiting[rows:]
        if len(waiting):
            yield self._records[waiting.astype(np.int64)]

    def _places(self) -> Iterator[ValueBatch]:
        """Yield the position of each box on the curve, and its number."""
        for start in range(0, len(self), _SORTED_BOXES):
            boxes = np.asarray(self._records[start : start + _SORTED_BOXES][BOXES])
            places = pa.array(hilbert_order(boxes, self._bounds))
            yield ValueBatch(places, np.arange(start, start + len(boxes), dtype=np.uint64))


def hilbert_order(boxes: Boxes, bounds: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Return positions of the boxes' centres on a Hilbert curve of 2^16 by 2^16 cells.

    Parameters
    ----------
    boxes
        Boxes of numbers; infinite coordinates count as the border.
    bounds
        Bounds of the curve: lowest x and y, highest x and y.
    """
    largest = (1 << _AXIS_BITS) - 1
    # Use halves: sums and differences of large numbers would be infinite.
    low, high = bounds[:2] / 2, bounds[2:] / 2
    with np.errstate(all="ignore"):
        middle = boxes[:, :2] / 4 + boxes[:, 2:] / 4
        share = (middle - low) / (high - low)
    share = np.clip(np.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
    cells = (share * largest).astype(np.uint32)
    x, y = cells[:, 0].copy(), cells[:, 1].copy()
    places = np.zeros(len(boxes), np.uint32)
    side = np.uint32(1 << (_AXIS_BITS - 1))
    while side:
        right, upper = (x & side) > 0, (y & side) > 0
        quarter = np.where(right, np.uint32(3), np.uint32(0)) ^ upper
        places = (places << np.uint32(2)) | quarter.astype(np.uint32)
        # Within a lower quarter, the curve is mirrored or turned.
        turned = ~upper & right
        x[turned], y[turned] = largest - x[turned], largest - y[turned]
        swapped = ~upper
        x[swapped], y[swapped] = y[swapped], x[swapped].copy()
        side >>= np.uint32(1)
    return places


# --- RTREE, searched: geometries whose boxes meet a box, and null geometries ------------
# The boxes of the lowest pages are in memory, 40 bytes per 4,096 geometries. A search therefore
# needs one read, of the pages that meet the box.
#
# Specification: "Searching" in ``docs/format/rtree-indices.md``.

ITEMS: Final = "num_items"
_BOX, _ROW = "bbox", "id"
_BATCH_ROWS: Final = 1 << 20
"""Boxes to read and compare at a time."""

_SMALL_FILE_BOXES: Final = 1 << 20
_BOXES_PER_BYTE: Final = 8
"""Maximum geometries of a small file, and per byte of a larger file: equal boxes compress well,
but row numbers compress badly."""

_TEST_BYTES: Final = 4096
"""Approximate bytes that a scan reads in the time of a geometry test."""


class PageBoxes(NamedTuple):
    """The lowest pages of a tree.

    Parameters
    ----------
    boxes
        Box of each page; empty with at most one page.
    page_size
        Geometries of each page except the last.
    items
        Number of all geometries.
    """

    boxes: Boxes
    page_size: int
    items: int


def stored_items(file: IndexFile) -> int:
    """Read the number of geometries; they come before the boxes of pages.

    Raises
    ------
    CorruptFileError
        The file has fewer rows, or too few bytes for so many geometries.
    """
    items = file.number(ITEMS)
    limit = min(file.num_rows, max(_SMALL_FILE_BOXES, _BOXES_PER_BYTE * file.size))
    if items > limit:
        raise file.corrupt(f"metadata {ITEMS!r}", f"at most {limit}", f"{items}")
    return items


def page_boxes(file: IndexFile, page_size: int) -> PageBoxes:
    """Read the boxes of the lowest pages; they follow the boxes of geometries.

    Raises
    ------
    CorruptFileError
        The file has too few rows, or a bound is null.
    """
    items = stored_items(file)
    pages = -(-items // page_size)
    if pages <= 1:
        return PageBoxes(np.empty((0, 4)), page_size, items)
    if items + pages > file.num_rows:
        expected = f"{items} geometries and {pages} pages"
        raise file.corrupt("rows of a tree", expected, f"{file.num_rows} rows")
    rows = file.read([_BOX], items, items + pages)
    return PageBoxes(boxes_of(file, rows[_BOX].combine_chunks()), page_size, items)


def boxes_of(file: IndexFile, stored: Any) -> Boxes:
    """Return a column of boxes as an array of shape ``(n, 4)``."""
    bounds = stored.flatten()
    for column in (stored, *bounds):
        file.check_present(column)
    return np.stack([np.asarray(column) for column in bounds], axis=1)


class OpenedRTree(ScalarIndex):
    """The boxes of the lowest pages, and the rows with a null geometry.

    Parameters
    ----------
    file
        File of the boxes.
    pages
        The lowest pages.
    nulls
        Rows with a null geometry.
    """

    def __init__(self, file: IndexFile, pages: PageBoxes, nulls: RowSet) -> None:
        self._file, self._pages, self._nulls = file, pages, nulls

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._nulls.nbytes + int(self._pages.boxes.nbytes) + self._file.nbytes

    @property
    def value_bytes(self) -> int:
        """Bytes that a scan reads in the time of a geometry test."""
        return _TEST_BYTES

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query asks for geometries that may meet a box, or for nulls."""
        return isinstance(query, MeetsBox) or (isinstance(query, IsNull) and not query.negated)

    def estimate(self, query: IndexQuery) -> int:
        """Return the number of nulls, or estimate rows from the share of pages within the box."""
        if not isinstance(query, MeetsBox):
            return self._nulls.count
        boxes, size, items = self._pages
        if not len(boxes):
            return items
        low, high = _cut(boxes, query)
        with np.errstate(all="ignore"):  # bounds may be infinite or very large
            extents = np.maximum(boxes[:, 2:] - boxes[:, :2], np.finfo(np.float64).tiny)
            shares = np.clip((high - low) / extents, 0.0, 1.0).prod(axis=1)
        # Boxes of points and of axis-parallel lines have extent 0: assume one row per page.
        shares = np.where(_overlaps(boxes, query), np.maximum(np.nan_to_num(shares), 1 / size), 0.0)
        return min(items, int(np.ceil(shares.sum() * size)))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Return the null rows exactly, or the rows whose box meets the box, to be tested."""
        if not isinstance(query, MeetsBox):
            return Candidates(self._nulls, NO_ROWS if nulls else None, exact=True)
        found = [rows for ranges in self._ranges(query) for rows in self._find(query, ranges)]
        rows = RowSet.of(np.concatenate([np.empty(0, np.uint64), *found]))
        return Candidates(rows, self._nulls if nulls else None, exact=False)

    def _ranges(self, query: MeetsBox) -> Sequence[Sequence[tuple[int, int]]]:
        """Return ranges of geometries in pages that meet the box, grouped by read."""
        boxes, size, items = self._pages
        if not items:
            return []
        pages = np.flatnonzero(_overlaps(boxes, query)) if len(boxes) else np.zeros(1, np.int64)
        if not len(pages):
            return []
        step = max(1, _BATCH_ROWS // size)
        return [
            rows_of_pages(pages[start : start + step], size, items)
            for start in range(0, len(pages), step)
        ]

    def _find(self, query: MeetsBox, ranges: Sequence[tuple[int, int]]) -> Iterator[RowNumbers]:
        for stored, rows in self._file.read_ranges([((_BOX, _ROW), ranges)]):
            self._file.check_present(rows)
            yield np.asarray(rows)[_overlaps(boxes_of(self._file, stored), query)]


def _overlaps(boxes: Boxes, query: MeetsBox) -> Flags:
    """Return flags of boxes that share a point with the query's box."""
    x, y, right, top = query.bounds
    flags: Flags = (boxes[:, 0] <= right) & (boxes[:, 2] >= x)
    flags &= (boxes[:, 1] <= top) & (boxes[:, 3] >= y)
    return flags


def _cut(boxes: Boxes, query: MeetsBox) -> tuple[Boxes, Boxes]:
    """Return the lowest and highest corners of intersections with the query's box."""
    low, high = np.array(query.bounds[:2]), np.array(query.bounds[2:])
    return np.maximum(boxes[:, :2], low), np.minimum(boxes[:, 2:], high)


PAGES: Final = "page_data.lance"
NULLS: Final = "nulls.lance"
_BOX_COLUMNS: Final = "bbox"
_PAGE_SIZE: Final = "page_size"
_DEFAULT_PAGE_SIZE: Final = 4096
_READ_ROWS: Final = 1 << 16
_MERGE_BYTES: Final = 256 << 20
_SCHEMA: Final = pa.schema(
    [
        pa.field(
            _BOX_COLUMNS,
            pa.struct([pa.field(name, pa.float64(), nullable=False) for name in BOUNDS]),
            nullable=False,
            metadata={"ARROW:extension:name": "geoarrow.box"},
        ),
        pa.field("id", pa.uint64(), nullable=False),
    ]
)


@index_kind
class RTree(IndexKind):
    """Bounding boxes of geometries, in a tree. After rows moved, it has to be built again."""

    name: ClassVar[str] = "rtree"
    title: ClassVar[str] = "RTREE"
    options: ClassVar[tuple[str, ...]] = (_PAGE_SIZE,)
    newest: ClassVar[int] = 0
    markers: ClassVar[tuple[str, ...]] = (NULLS,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Drop deleted rows; return ``None`` if rows move, as pylance does."""
        if address_map.moves:
            return None
        pages = _open_pages(segment)
        (nulls,) = ROWSETS.remap([_nulls_of(segment.open(NULLS))], address_map, segment.where)
        with BoxCollector(_MERGE_BYTES) as collected:
            for boxes, rows in _stored(pages):
                kept = address_map.apply(rows)[1]
                collected.add(boxes[kept], rows[kept])
            _write_pages(collected.sorted(), _stored_page_size(pages), out)
        _write_nulls(nulls, out)
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedRTree:
        """Read null rows, and the boxes of the pages."""
        file = _open_pages(segment)
        return OpenedRTree(file, page_boxes(file, _stored_page_size(file)), _stored_nulls(segment))

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the boxes per page."""
        return {_PAGE_SIZE: _stored_page_size(_open_pages(segment))}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the numbers of pages and boxes, and the bounds of all boxes."""
        file = _open_pages(segment)
        text = file.metadata.get(_BOX_COLUMNS, "")
        try:
            bounds = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise file.corrupt(f"metadata {_BOX_COLUMNS!r}", "JSON", f"{text!r:.80}") from error
        numbers = {name: file.number(name) for name in ("num_pages", ITEMS)}
        return {_PAGE_SIZE: _stored_page_size(file), **numbers, _BOX_COLUMNS: bounds}

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Build one tree from the boxes of all segments and of the source; sorts on disk.

        The parameter ``page_size`` is the number of boxes of a page; default: 4,096.
        """
        source, page_size = given.source, _page_size(given.parameters)
        if source is not None:
            check_geometries(source.field)
        absent = [_nulls_of(segment.open(NULLS)) for segment in given.segments]
        with BoxCollector(given.memory_limit) as collected:
            for segment in given.segments:
                for boxes, rows in _stored(_open_pages(segment)):
                    collected.add(boxes, rows)
            if source is not None:
                absent.append(_collect(source, collected))
            _write_pages(collected.sorted(), page_size, out)
        _write_nulls(ROWSETS.union(absent), out)
        return BuiltSegment("/lance.index.pb.RTreeIndexDetails")


def _page_size(parameters: Mapping[str, Any]) -> int:
    size = integer(parameters, _PAGE_SIZE, _DEFAULT_PAGE_SIZE)
    if size < 2:
        raise OptionError(f"{_PAGE_SIZE}: expected at least 2, found {size}")
    return size


def _stored_page_size(file: IndexFile) -> int:
    return file.number(_PAGE_SIZE, _DEFAULT_PAGE_SIZE, minimum=2)


def _open_pages(segment: Segment) -> IndexFile:
    file = segment.open(PAGES)
    file.check(bbox=None, id=pa.uint64())
    stored: Any = file.schema.field(_BOX_COLUMNS).type
    bounds = [(name, pa.float64()) for name in BOUNDS]
    # Check for a struct first: only structs can be iterated.
    if not pa.types.is_struct(stored) or [(one.name, one.type) for one in stored] != bounds:
        raise file.corrupt_column(_BOX_COLUMNS, f"bounds {', '.join(BOUNDS)}", f"{stored}")
    return file


# --- writing ------------------------------------------------------------------------------


def _write_nulls(absent: bytes, out: SegmentWriter) -> None:
    schema = pa.schema([pa.field("nulls", pa.binary(), nullable=False)])
    out.write(NULLS, pa.table([pa.array([absent])], schema=schema))


def _stored_nulls(segment: Segment) -> RowSet:
    """Return the rows with a null geometry."""
    file = segment.open(NULLS)
    return row_set_of(pa.array([_nulls_of(file)], pa.binary()), file.path, file.size)


def _nulls_of(file: IndexFile) -> bytes:
    """Return the null rows as one encoded set."""
    file.check(nulls=pa.binary())
    sets: Any = file.read(["nulls"])["nulls"]
    file.check_present(sets)
    # Deduplicate first: a few bytes may encode very many equal sets.
    return ROWSETS.union(sets.unique().to_pylist())


def _stored(file: IndexFile) -> Iterator[tuple[Boxes, RowNumbers]]:
    """Yield the boxes of geometries, and their rows; they come before the boxes of pages."""
    items = stored_items(file)
    for start in range(0, items, _READ_ROWS):
        rows = file.read([_BOX_COLUMNS, "id"], start, min(items, start + _READ_ROWS))
        file.check_present(rows["id"])
        yield boxes_of(file, rows[_BOX_COLUMNS].combine_chunks()), rows["id"].to_numpy()


def _collect(source: IndexSource, collected: BoxCollector) -> bytes:
    """Collect the boxes of a source; return the null rows, encoded."""
    absent = [np.empty(0, np.uint64)]
    for values, rows in source.batches():
        boxes, there = bounding_boxes(values, source.field)
        collected.add(boxes[there], rows[there])
        if values.null_count:
            absent.append(rows[np.asarray(values.is_null())])
    return ROWSETS.of(np.sort(np.concatenate(absent)))


def _write_pages(boxes: SortedBoxes, page_size: int, out: SegmentWriter) -> None:
    """Write the boxes in order, then levels of page boxes, until a level has one page."""
    file = out.create(PAGES, _SCHEMA)
    above = []
    for records in boxes.batches(page_size):
        _append(file, records[BOXES], records[ROW])
        above.append(_around(records[BOXES], page_size))
    level = np.concatenate([np.empty((0, 4)), *above])
    pages = len(level)
    first = 0  # number of the first page in the level below
    while len(level) > 1:
        numbers = np.arange(first, first + len(level), dtype=np.uint64)
        _append(file, level, numbers)
        first += len(level)
        level = _around(level, page_size)
        pages += len(level)
    bounds = level[0].tolist() if len(level) else [None] * 4
    named = dict(zip(("minx", "miny", "maxx", "maxy"), bounds, strict=True))
    file.add_metadata(
        {
            _PAGE_SIZE: str(page_size),
            "num_pages": str(pages),
            ITEMS: str(len(boxes)),
            _BOX_COLUMNS: json.dumps(named, separators=(",", ":")),
        }
    )
    file.finish()


def _append(file: IndexFileWriter, boxes: Any, numbers: Any) -> None:
    columns: Any = [pa.array(np.ascontiguousarray(boxes[:, at])) for at in range(4)]
    kind: Any = _SCHEMA.field(_BOX_COLUMNS).type
    boxed: Any = pa.StructArray.from_arrays(columns, fields=list(kind))
    ids = pa.array(np.ascontiguousarray(numbers))
    file.write(pa.record_batch([boxed, ids], schema=_SCHEMA))


def _around(boxes: Any, page_size: int) -> Any:
    """Return the box around each page of boxes."""
    starts = np.arange(0, len(boxes), page_size)
    low = np.minimum.reduceat(boxes[:, :2], starts, axis=0)
    high = np.maximum.reduceat(boxes[:, 2:], starts, axis=0)
    return np.concatenate([low, high], axis=1)
