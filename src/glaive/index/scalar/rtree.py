"""RTREE: bounding boxes of geometries, in pages of neighbours, with boxes of the pages above.

Specification: "RTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.geometries import BOUNDS
from glaive.errors import OptionError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import BuiltSegment, IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.box_pages import BOXES, ROW, BoxCollector, SortedBoxes
from glaive.index.scalar.geometries import Boxes, bounding_boxes, check_geometries
from glaive.index.scalar.parameters import integer, known_parameters
from glaive.index.scalar.rowsets import encode_rowset, remap_rowsets, row_set_of, union_of_rowsets
from glaive.index.scalar.rtree_search import ITEMS, OpenedRTree, boxes_of, page_boxes, stored_items
from glaive.index.segment import IndexFile, IndexFileWriter, Segment, SegmentWriter
from glaive.index.source import IndexSource

__all__ = ["RTree"]

PAGES: Final = "page_data.lance"
NULLS: Final = "nulls.lance"
_BOX: Final = "bbox"
_PAGE_SIZE: Final = "page_size"
_DEFAULT_PAGE: Final = 4096
_READ_ROWS: Final = 1 << 16
_MERGE_BYTES: Final = 256 << 20
_SCHEMA: Final = pa.schema(
    [
        pa.field(
            _BOX,
            pa.struct([pa.field(name, pa.float64(), nullable=False) for name in BOUNDS]),
            nullable=False,
            metadata={"ARROW:extension:name": "geoarrow.box"},
        ),
        pa.field("id", pa.uint64(), nullable=False),
    ]
)


@index_kind
class RTree(IndexKind):
    """Bounding boxes of geometries, in a tree. No reader rebuilds them for relocated rows."""

    name: ClassVar[str] = "rtree"
    newest: ClassVar[int] = 0
    markers: ClassVar[tuple[str, ...]] = (NULLS,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Leave out rows that are dropped; None if rows move, as pylance does not follow them."""
        if address_map.moves:
            return None
        pages = _open_pages(segment)
        (nulls,) = remap_rowsets([_nulls_of(segment.open(NULLS))], address_map, segment.where)
        with BoxCollector(_MERGE_BYTES) as collected:
            for boxes, rows in _stored(pages):
                kept = address_map.apply(rows)[1]
                collected.add(boxes[kept], rows[kept])
            _write_pages(collected.sorted(), _stored_page_size(pages), out)
        _write_nulls(encode_rowset(np.empty(0, np.uint64)) if nulls is None else nulls, out)
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedRTree:
        """Read which rows are null, and the boxes of the pages."""
        file = _open_pages(segment)
        return OpenedRTree(file, page_boxes(file, _stored_page_size(file)), _stored_nulls(segment))

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Read the geometries once, and sort their boxes on disk.

        ``page_size`` is the number of boxes of a page, by default 4,096.
        """
        known_parameters("RTREE", parameters, (_PAGE_SIZE,))
        check_geometries(source.field)
        return _write([], source, _page_size(parameters), source.memory_limit, out)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The boxes of a page."""
        return {_PAGE_SIZE: _stored_page_size(_open_pages(segment))}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Its pages, boxes, and the box of all."""
        file = _open_pages(segment)
        said = file.metadata.get(_BOX, "")
        try:
            bounds = json.loads(said)
        except (ValueError, RecursionError) as error:
            raise file.corrupt(f"metadata {_BOX!r}", "JSON", f"{said!r:.80}") from error
        numbers = {name: file.number(name) for name in ("num_pages", ITEMS)}
        return {_PAGE_SIZE: _stored_page_size(file), **numbers, _BOX: bounds}

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Put the boxes of all segments, and of the source, in one tree."""
        page_size = _stored_page_size(_open_pages(segments[0]))
        limit = _MERGE_BYTES if source is None else source.memory_limit
        return _write(segments, source, page_size, limit, out)


def _page_size(parameters: Mapping[str, Any]) -> int:
    size = integer(parameters, _PAGE_SIZE, _DEFAULT_PAGE)
    if size < 2:
        raise OptionError(f"{_PAGE_SIZE}: expected at least 2, found {size}")
    return size


def _stored_page_size(file: IndexFile) -> int:
    return file.number(_PAGE_SIZE, _DEFAULT_PAGE, least=2)


def _open_pages(segment: Segment) -> IndexFile:
    file = segment.open(PAGES)
    file.check(bbox=None, id=pa.uint64())
    stored: Any = file.schema.field(_BOX).type
    bounds = [(name, pa.float64()) for name in BOUNDS]
    # Types that are no struct have no children to go through.
    if not pa.types.is_struct(stored) or [(one.name, one.type) for one in stored] != bounds:
        raise file.corrupt_column(_BOX, f"bounds {', '.join(BOUNDS)}", f"{stored}")
    return file


# --- writing ------------------------------------------------------------------------------


def _write(
    segments: Sequence[Segment],
    source: IndexSource | None,
    page_size: int,
    memory_limit: int,
    out: SegmentWriter,
) -> BuiltSegment:
    """Write a tree of the boxes of segments, and of the geometries of a source."""
    absent = [_nulls_of(segment.open(NULLS)) for segment in segments]
    with BoxCollector(memory_limit) as collected:
        for segment in segments:
            for boxes, rows in _stored(_open_pages(segment)):
                collected.add(boxes, rows)
        if source is not None:
            absent.append(_collect(source, collected))
        _write_pages(collected.sorted(), page_size, out)
    _write_nulls(union_of_rowsets(absent), out)
    return BuiltSegment("/lance.index.pb.RTreeIndexDetails")


def _write_nulls(absent: bytes, out: SegmentWriter) -> None:
    schema = pa.schema([pa.field("nulls", pa.binary(), nullable=False)])
    out.write(NULLS, pa.table([pa.array([absent])], schema=schema))


def _stored_nulls(segment: Segment) -> RowSet:
    """The rows whose geometry is null."""
    file = segment.open(NULLS)
    return row_set_of(pa.array([_nulls_of(file)], pa.binary()), file.path, file.size)


def _nulls_of(file: IndexFile) -> bytes:
    """The same as one set, as it is stored."""
    file.check(nulls=pa.binary())
    sets: Any = file.read(["nulls"])["nulls"]
    file.check_present(sets)
    # Equal ones are a few bytes, however many they are.
    return union_of_rowsets(sets.unique().to_pylist())


def _stored(file: IndexFile) -> Iterator[tuple[Boxes, RowNumbers]]:
    """The boxes of rows in a file, and the rows: they come before the boxes of pages."""
    items = stored_items(file)
    for start in range(0, items, _READ_ROWS):
        rows = file.read([_BOX, "id"], start, min(items, start + _READ_ROWS))
        file.check_present(rows["id"])
        yield boxes_of(file, rows[_BOX].combine_chunks()), rows["id"].to_numpy()


def _collect(source: IndexSource, collected: BoxCollector) -> bytes:
    """The boxes of a source; returns the rows that are null, encoded."""
    absent = [np.empty(0, np.uint64)]
    for values, rows in source.batches():
        boxes, there = bounding_boxes(values, source.field)
        collected.add(boxes[there], rows[there])
        if values.null_count:
            absent.append(rows[np.asarray(values.is_null())])
    return encode_rowset(np.sort(np.concatenate(absent)))


def _write_pages(boxes: SortedBoxes, page_size: int, out: SegmentWriter) -> None:
    """Write the boxes in their order, then levels of boxes of pages, until there is one page."""
    file = out.create(PAGES, _SCHEMA)
    above = []
    for records in boxes.batches(page_size):
        _append(file, records[BOXES], records[ROW])
        above.append(_around(records[BOXES], page_size))
    level = np.concatenate([np.empty((0, 4)), *above])
    pages = len(level)
    first = 0  # number of the first page of the level below
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
            _BOX: json.dumps(named, separators=(",", ":")),
        }
    )
    file.finish()


def _append(file: IndexFileWriter, boxes: Any, numbers: Any) -> None:
    columns: Any = [pa.array(np.ascontiguousarray(boxes[:, at])) for at in range(4)]
    kind: Any = _SCHEMA.field(_BOX).type
    boxed: Any = pa.StructArray.from_arrays(columns, fields=list(kind))
    ids = pa.array(np.ascontiguousarray(numbers))
    file.write(pa.record_batch([boxed, ids], schema=_SCHEMA))


def _around(boxes: Any, page_size: int) -> Any:
    """The box of each page of boxes."""
    starts = np.arange(0, len(boxes), page_size)
    low = np.minimum.reduceat(boxes[:, :2], starts, axis=0)
    high = np.maximum.reduceat(boxes[:, 2:], starts, axis=0)
    return np.concatenate([low, high], axis=1)
