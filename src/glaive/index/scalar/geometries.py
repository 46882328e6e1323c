"""Bounding boxes of geometries, in the layouts of GeoArrow.

Points are structs of ``x``, ``y`` and more axes; lines, polygons and sets of these are lists of
them, one to three deep. A box is a struct of its bounds.

Specification: "RTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import UnsupportedFeatureError
from glaive.types import Flags

__all__ = ["BOUNDS", "Boxes", "bounding_boxes", "check_geometries"]

Boxes = NDArray[np.float64]
"""Of shape ``(n, 4)``: lowest x and y, highest x and y."""

BOUNDS: Final = ("xmin", "ymin", "xmax", "ymax")
_NAME: Final = b"ARROW:extension:name"
_DEPTHS: Final = {
    b"geoarrow.point": 0, b"geoarrow.linestring": 1, b"geoarrow.multipoint": 1,
    b"geoarrow.polygon": 2, b"geoarrow.multilinestring": 2, b"geoarrow.multipolygon": 3,
}  # fmt: skip
"""How deep the points lie in lists."""

_BOX: Final = b"geoarrow.box"


def check_geometries(field: pa.Field[Any]) -> None:
    """Raise an ``UnsupportedFeatureError`` if a column has no geometries that can be indexed."""
    name = (field.metadata or {}).get(_NAME, b"")
    kind: Any = field.type
    if name == _BOX and _has_axes(kind, BOUNDS):
        return
    for _ in range(_DEPTHS.get(name, 0)):
        kind = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
        if kind is None:
            break
    if name not in _DEPTHS or not _has_axes(kind, ("x", "y")):
        raise UnsupportedFeatureError(
            f"column {field.name!r} of type {field.type} cannot have an RTREE index. It is for "
            "geometries with separate coordinates: fields with the metadata "
            f"ARROW:extension:name={', '.join(known.decode() for known in (*_DEPTHS, _BOX))}. "
            "Convert WKB and WKT to one of these"
        )


def _has_axes(kind: Any, names: tuple[str, ...]) -> bool:
    if kind is None or not pa.types.is_struct(kind):
        return False
    found = {child.name: child.type for child in kind}
    return all(found.get(name) == pa.float64() for name in names)


def bounding_boxes(values: Any, field: pa.Field[Any]) -> tuple[Boxes, Flags]:
    """The box of each geometry, and which are there: neither null nor empty.

    Parameters
    ----------
    values
        Geometries, as :func:`check_geometries` accepts them.
    field
        Of the column, whose metadata says what they are.

    Returns
    -------
    tuple
        The boxes, undefined for those that are not there, and the flags.
    """
    name = (field.metadata or {}).get(_NAME, b"")
    there = np.asarray(values.is_valid())
    if name == _BOX:
        boxes = np.stack([_numbers(values, bound) for bound in BOUNDS], axis=1)
        return boxes, there & ~np.isnan(boxes).any(axis=1)
    # A list that is null has no items, whatever its offsets say.
    starts = np.arange(len(values) + 1, dtype=np.int64)
    for _ in range(_DEPTHS[name]):
        ends = np.concatenate([[0], np.cumsum(_sizes(values), dtype=np.int64)])
        starts, values = ends[starts], values.flatten()
    return _boxes_of_points(values, starts, there)


def _sizes(lists: Any) -> NDArray[np.int64]:
    return np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)


def _numbers(points: Any, axis: str) -> NDArray[np.float64]:
    """Coordinates of points, those of points that are null as NaN."""
    flattened = points.flatten()[points.type.get_field_index(axis)]
    return np.asarray(flattened.fill_null(np.nan), np.float64)


def _boxes_of_points(points: Any, starts: NDArray[np.int64], there: Flags) -> tuple[Boxes, Flags]:
    x, y = _numbers(points, "x"), _numbers(points, "y")
    boxes = np.full((len(there), 4), np.nan)
    filled = np.flatnonzero(starts[1:] > starts[:-1])
    if len(filled):
        first = starts[filled]
        # Neighbouring stretches: the first one of the next is the end of each.
        for at, (axis, reduced) in enumerate(
            ((x, np.fmin), (y, np.fmin), (x, np.fmax), (y, np.fmax))
        ):
            boxes[filled, at] = reduced.reduceat(axis, first)
    return boxes, there & ~np.isnan(boxes).any(axis=1)
