"""Arrays of geometries as shapes of shapely, which computes with them.

shapely is the extra ``geo``; nothing else imports it. Bytes are checked before it sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.geometries import BOUNDS, BOX, DEPTHS, WKB, WKT, GeometryType
from glaive.arrow.wkb import MAX_DEPTH, find_damage
from glaive.errors import FilterError, MissingDependencyError
from glaive.expr.functions.untyped import pa, pc

__all__ = ["Shapes", "computing", "library", "shapes_of"]

_OPEN, _CLOSED = b"()"

Shapes = NDArray[Any]
"""Objects of shapely; None for nulls."""


def library(name: str) -> Any:
    """The module shapely, for a function of this name.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        import shapely
    except ImportError as error:
        raise MissingDependencyError(f"{name} needs shapely: pip install 'glaive[geo]'") from error
    return shapely


@contextmanager
def computing(name: str) -> Iterator[None]:
    """While shapely computes for a function: no warnings of NaN and infinite coordinates.

    Raises
    ------
    FilterError
        In place of an error of shapely, which refuses some of these coordinates.
    """
    errors = library(name).errors
    try:
        with np.errstate(all="ignore"):
            yield
    except errors.ShapelyError as error:
        raise FilterError(
            f"{name} cannot be computed: {error}. Exclude such geometries by another test"
        ) from None


def shapes_of(values: Any, name: str) -> Shapes:
    """The shapes of an array of a :class:`~glaive.arrow.geometries.GeometryType`.

    Parameters
    ----------
    name
        Of the function that needs them, for errors.

    Raises
    ------
    FilterError
        A value is no geometry; the message says which row, and what is wrong.
    """
    kind: GeometryType = values.type
    stored = values.storage
    shapes = np.full(len(stored), None, object)
    there = np.flatnonzero(np.asarray(stored.is_valid()))
    if not len(there):
        return shapes
    present = stored.drop_null() if stored.null_count else stored
    shapely = library(name)
    if kind.layout == WKB:
        damage = find_damage(present)
        if damage is not None:
            raise _wrong(name, kind.path, int(there[damage.row]), damage.problem)
    make = _MAKERS.get(kind.layout, _from_lists)
    try:
        shapes[there] = make(shapely, present, kind.layout)
    except (shapely.errors.ShapelyError, ValueError) as error:
        row, problem = _first_failure(make, shapely, present, kind.layout) or (0, str(error))
        raise _wrong(name, kind.path, int(there[row]), problem) from None
    return shapes


def _wrong(name: str, path: str, row: int, problem: str) -> FilterError:
    if not path:
        return FilterError(f"{name}: {problem}: no geometry in WKT or WKB")
    return FilterError(
        f"{name}: column {path!r}: the value in row {row} of those tested is no geometry: "
        f"{problem}. Exclude it by another test, or replace it"
    )


def _first_failure(make: Any, shapely: Any, values: Any, layout: str) -> tuple[int, str] | None:
    """The first value of which no shape can be made, and why; by halves."""
    start, stop, problem = 0, len(values), ""
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            make(shapely, values[start:middle], layout)
        except (shapely.errors.ShapelyError, ValueError) as error:
            stop, problem = middle, str(error)
        else:
            start = middle
    try:
        make(shapely, values[start:stop], layout)
    except (shapely.errors.ShapelyError, ValueError) as error:
        problem = str(error)
    return (start, problem) if problem else None


def _from_bytes(shapely: Any, values: Any, _layout: str) -> Shapes:
    shapes: Shapes = shapely.from_wkb(values.to_numpy(zero_copy_only=False))
    return shapes


def _from_texts(shapely: Any, values: Any, _layout: str) -> Shapes:
    many = np.asarray(pc.count_substring(values, "(")) > MAX_DEPTH
    for row in np.flatnonzero(many).tolist():
        raw = np.frombuffer(values[row].as_py().encode(), np.uint8)
        if np.cumsum((raw == _OPEN).astype(np.int64) - (raw == _CLOSED)).max() > MAX_DEPTH:
            raise ValueError(f"collections lie deeper than {MAX_DEPTH} in each other")
    try:
        texts = values.to_numpy(zero_copy_only=False)
    except pa.ArrowException:  # of a kind that is no ValueError
        raise ValueError("a text is not UTF-8") from None
    shapes: Shapes = shapely.from_wkt(texts)
    return shapes


def _from_points(shapely: Any, values: Any, _layout: str) -> Shapes:
    points = _coordinates(values)
    shapes: Shapes = shapely.points(points)
    empty = np.isnan(points).all(axis=1)
    if empty.any():
        shapes[empty] = shapely.from_wkt("POINT EMPTY")
    return shapes


def _from_boxes(shapely: Any, values: Any, _layout: str) -> Shapes:
    members = {child.name: values.field(at) for at, child in enumerate(values.type)}
    shapes: Shapes = shapely.box(*(np.asarray(members[bound]) for bound in BOUNDS))
    return shapes


def _from_lists(shapely: Any, values: Any, layout: str) -> Shapes:
    """From the points inwards out; parts without points are left out."""
    owners = []
    count = len(values)
    for _ in range(DEPTHS[layout]):
        sizes = np.asarray(values.value_lengths().fill_null(0)).astype(np.int64)
        owners.append(np.repeat(np.arange(len(sizes)), sizes))
        values = values.flatten()
    parts: Any = _coordinates(values)
    *inner, outermost = _JOINED[layout]
    if layout == "multipoint":
        parts = shapely.points(parts)
    for make in inner:
        # Numbers of the parts that there are: those without points have none.
        owner = owners.pop()
        there, place = np.unique(owner, return_inverse=True)
        parts = getattr(shapely, make)(parts, indices=place) if len(there) else parts[:0]
        owners[-1] = owners[-1][there]
    shapes = np.full(count, shapely.from_wkt(f"{layout.upper()} EMPTY"), object)
    if len(parts):
        getattr(shapely, outermost)(parts, indices=owners[0], out=shapes)
    return shapes


_JOINED: Final = {
    "linestring": ("linestrings",),
    "multipoint": ("multipoints",),
    "polygon": ("linearrings", "polygons"),
    "multilinestring": ("linestrings", "multilinestrings"),
    "multipolygon": ("linearrings", "polygons", "multipolygons"),
}
"""Functions of shapely that make parts of points, and then geometries of these."""


def _coordinates(points: Any) -> NDArray[np.float64]:
    """``float64`` of shape ``(points, 2)``; of a point that is null NaN."""
    flattened = points.flatten()
    columns = [flattened[points.type.get_field_index(axis)].fill_null(np.nan) for axis in "xy"]
    return np.stack([np.asarray(column) for column in columns], axis=1)


_MAKERS = {WKB: _from_bytes, WKT: _from_texts, "point": _from_points, BOX: _from_boxes}
