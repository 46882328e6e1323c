"""Bounding boxes of geometries, in the layouts of GeoArrow.

Specification: "RTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.geometries import BOUNDS, BOX, DEPTHS, GeometryType, geometry_type
from glaive.errors import UnsupportedFeatureError
from glaive.types import Flags

__all__ = ["Boxes", "bounding_boxes", "check_geometries"]

Boxes = NDArray[np.float64]
"""Of shape ``(n, 4)``: lowest x and y, highest x and y."""


def check_geometries(field: pa.Field[Any]) -> GeometryType:
    """The type of a column with geometries.

    Raises
    ------
    UnsupportedFeatureError
        It has none that can be indexed.
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
    layout = check_geometries(field).layout
    there = np.asarray(values.is_valid())
    if layout == BOX:
        bounds = np.stack([_numbers(values, bound) for bound in BOUNDS], axis=1)
        # A test takes what lies between two bounds, whichever is the lower one.
        corners = bounds[:, :2], bounds[:, 2:]
        boxes = np.concatenate((np.minimum(*corners), np.maximum(*corners)), axis=1)
        return boxes, there & ~np.isnan(boxes).any(axis=1)
    # A list that is null has no items, whatever its offsets say.
    starts = np.arange(len(values) + 1, dtype=np.int64)
    for _ in range(DEPTHS[layout]):
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
