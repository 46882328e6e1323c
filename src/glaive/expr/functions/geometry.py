"""Functions of geometries: relations, measures, and conversions from strings, bytes, coordinates.

The package shapely computes them; it is the extra ``geo``. Functions that return a geometry return
WKB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.conditions import filled
from glaive.arrow.extensions import BOUNDS, BOX, DEPTHS, WKB, WKT, GeometryType, as_geometries
from glaive.errors import FilterError, MissingDependencyError
from glaive.expr.functions.coercion import BINARY, FLOAT, TEXT, check_count, is_string, refuse
from glaive.expr.functions.registry import Call, Resolve, Types, function
from glaive.expr.rows import broadcast, count_rows, is_constant, pa

# --- Convert arrays of geometries to shapely objects ------------------------------------
# Only this module imports shapely, the extra ``geo``. Bytes are checked before shapely sees them.


Shapes = NDArray[Any]
"""Objects of shapely; ``None`` for nulls."""


def library(name: str) -> Any:
    """Return the module shapely, for a function of this name.

    Raises
    ------
    MissingDependencyError
        shapely is missing.
    """
    try:
        import shapely
    except ImportError as error:
        raise MissingDependencyError(f"{name} needs shapely: pip install 'glaive[geo]'") from error
    return shapely


@contextmanager
def computing(name: str) -> Iterator[None]:
    """Run a block of shapely calls; silence warnings of NaN and infinite coordinates.

    Raises
    ------
    FilterError
        shapely raised an error: it refuses some of these coordinates.
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
    """Return the shapes of an array of a :class:`~glaive.arrow.extensions.GeometryType`.

    Parameters
    ----------
    name
        Name of the function that needs them, for errors.

    Raises
    ------
    FilterError
        A value is an invalid geometry; the message says which row, and what is wrong.
    """
    kind: GeometryType = values.type
    stored = values.storage
    shapes = np.full(len(stored), None, object)
    there = np.flatnonzero(np.asarray(stored.is_valid()))
    if not len(there):
        return shapes
    present = stored.drop_null() if stored.null_count else stored
    shapely = library(name)
    make = _MAKERS.get(kind.layout, _from_lists)
    try:
        shapes[there] = make(shapely, present, kind.layout)
    except (shapely.errors.ShapelyError, ValueError):
        for row, place in enumerate(there.tolist()):
            try:
                make(shapely, present[row : row + 1], kind.layout)
            except (shapely.errors.ShapelyError, ValueError) as error:
                raise _wrong(name, kind.path, place, str(error)) from None
        raise
    return shapes


def _wrong(name: str, path: str, row: int, problem: str) -> FilterError:
    if not path:
        return FilterError(f"{name}: {problem}: no geometry in WKT or WKB")
    return FilterError(
        f"{name}: column {path!r}: the value in row {row} of those tested is no geometry: "
        f"{problem}. Exclude it by another test, or replace it"
    )


def _from_bytes(shapely: Any, values: Any, _layout: str) -> Shapes:
    shapes: Shapes = shapely.from_wkb(values.to_numpy(zero_copy_only=False))
    return shapes


def _from_texts(shapely: Any, values: Any, _layout: str) -> Shapes:
    try:
        texts = values.to_numpy(zero_copy_only=False)
    except pa.ArrowException:  # only some of its kinds are a ValueError
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
    """Build geometries from their points outwards; skip empty parts."""
    owners = []
    count = len(values)
    for _ in range(DEPTHS[layout]):
        sizes = np.asarray(filled(values.value_lengths(), 0)).astype(np.int64)
        owners.append(np.repeat(np.arange(len(sizes)), sizes))
        values = values.flatten()
    parts: Any = _coordinates(values)
    *inner, outermost = _JOINED[layout]
    if layout == "multipoint":
        parts = shapely.points(parts)
    for make in inner:
        # Number only the parts that exist: an empty part lacks a shape.
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
"""Functions of shapely that build parts from points, and geometries from parts."""


def _coordinates(points: Any) -> NDArray[np.float64]:
    """Return coordinates as ``float64`` of shape ``(points, 2)``; NaN for a null point."""
    flattened = points.flatten()
    columns = [flattened[points.type.get_field_index(axis)].fill_null(np.nan) for axis in "xy"]
    return np.stack([np.asarray(column) for column in columns], axis=1)


_MAKERS = {WKB: _from_bytes, WKT: _from_texts, "point": _from_points, BOX: _from_boxes}


MEETING: Final = frozenset(
    {
        "st_contains", "st_coveredby", "st_covers", "st_crosses", "st_intersects", "st_overlaps",
        "st_touches", "st_within",
    }
)  # fmt: skip
"""Relations that hold only if the bounding boxes share a point."""

_TURNED: Final = {
    "contains": "within", "within": "contains", "covers": "covered_by", "covered_by": "covers",
}  # fmt: skip
"""Relations that change when the two geometries are swapped."""

_BOX_NUMBERS: Final = 4
"""Bounds of a box."""


_MIN_COLLECTION_TYPE: Final = 4
"""Smallest shapely type number of geometries with parts."""


_C = TypeVar("_C", bound=Callable[..., Any])


def _function(*names: str, takes: Resolve, geometries: bool = True) -> Callable[[_C], _C]:
    """Register a function that shapely computes (decorator)."""

    def register(compute: _C) -> _C:
        def computed(*arguments: Any) -> Any:
            with computing(names[0]):
                return compute(*arguments)

        function(*names, takes=takes, geometries=geometries)(computed)
        return compute

    return register


def _geometry(call: Call, number: int) -> Any:
    """Return the type of a geometry argument: of a column, or of a string (WKT) or bytes (WKB)."""
    library(call.name)
    kind = call.types[number]
    if isinstance(kind, GeometryType):
        return kind
    if pa.types.is_null(kind):
        return GeometryType(WKB, pa.binary())
    if is_string(kind):
        return GeometryType(WKT, TEXT(call, number)[0])
    known = as_geometries(kind)
    if known is not None:
        return known
    raise refuse(
        call, number, "a geometry (a column with the metadata ARROW:extension:name=geoarrow.…), "
        "WKB or WKT"
    )  # fmt: skip


def _two(result: Any) -> Any:
    def takes(call: Call) -> Types:
        check_count(call, 2, 2)
        return (_geometry(call, 0), _geometry(call, 1)), result

    return takes


def _one(result: Any) -> Any:
    def takes(call: Call) -> Types:
        check_count(call, 1, 1)
        return (_geometry(call, 0),), result

    return takes


def _shapes(argument: Any, name: str) -> Shapes:
    """Return the shapes of an argument; a constant is prepared for many comparisons."""
    if not is_constant(argument):
        return shapes_of(argument, name)
    kind: GeometryType = argument.type
    stored = broadcast(
        argument.value if argument.is_valid else pa.scalar(None, kind.storage_type), 1
    )
    shapes = shapes_of(pa.ExtensionArray.from_storage(kind, stored.cast(kind.storage_type)), name)
    library(name).prepare(shapes)
    return shapes


def _related(name: str, relation: str, left: Any, right: Any) -> Any:
    shapely = library(name)
    first, second = _shapes(left, name), _shapes(right, name)
    if is_constant(right) and not is_constant(left):
        # The prepared geometry must come first.
        first, second, relation = second, first, _TURNED.get(relation, relation)
    compare = getattr(shapely, relation)
    partly_empty = _partly_empty(shapely, second) if relation == "contains" else []
    if len(partly_empty) and len(first) == 1:
        others = second.copy()
        others[partly_empty] = None
        found = compare(first, others)
        found[partly_empty] = compare(shapely.from_wkb(shapely.to_wkb(first)), second[partly_empty])
    else:
        found = compare(first, second)
    missing = shapely.is_missing(first) | shapely.is_missing(second)
    return pa.array(np.broadcast_to(found, missing.shape), pa.bool_(), mask=missing)


def _partly_empty(shapely: Any, shapes: Shapes) -> Any:
    """Return positions of collections with an empty part, at any depth.

    GEOS 3.14 crashes if it tests whether a prepared polygon contains such a collection.
    """
    found = []
    owners = np.flatnonzero(shapely.get_type_id(shapes) >= _MIN_COLLECTION_TYPE)
    shapes = shapes[owners]
    while len(shapes):
        shapes, parents = shapely.get_parts(shapes, return_index=True)
        owners = owners[parents]
        found.append(owners[shapely.is_empty(shapes)])
        nested = shapely.get_type_id(shapes) >= _MIN_COLLECTION_TYPE
        shapes, owners = shapes[nested], owners[nested]
    return np.unique(np.concatenate(found)) if found else []


def _relation(name: str, relation: str) -> None:
    """Register a relation of two geometries."""

    @_function(name, takes=_two(pa.bool_()))
    def compute(left: Any, right: Any) -> Any:
        return _related(name, relation, left, right)


for _name, _relation_name in {
    "st_contains": "contains", "st_coveredby": "covered_by", "st_covers": "covers",
    "st_crosses": "crosses", "st_disjoint": "disjoint", "st_equals": "equals",
    "st_intersects": "intersects", "st_overlaps": "overlaps", "st_touches": "touches",
    "st_within": "within",
}.items():  # fmt: skip
    _relation(_name, _relation_name)


@_function("st_distance", takes=_two(pa.float64()))
def _distance(left: Any, right: Any) -> Any:
    shapely = library("st_distance")
    first, second = _shapes(left, "st_distance"), _shapes(right, "st_distance")
    missing = shapely.is_missing(first) | shapely.is_missing(second)
    distances = shapely.distance(first, second)
    distances = np.where(np.isnan(distances), 0.0, distances)  # an empty geometry has distance 0
    return pa.array(distances, pa.float64(), mask=missing)


# --- of one geometry ------------------------------------------------------------------------


_LINES: Final = (1, 5)
"""Types of lines and multilines, as shapely numbers them."""


def _length(shapely: Any, shapes: Shapes) -> Any:
    """Return the lengths of lines; 0 for other geometries."""
    return np.where(np.isin(shapely.get_type_id(shapes), _LINES), shapely.length(shapes), 0.0)


def _bound(shapely: Any, shapes: Shapes, place: int) -> Any:
    """Return one of lowest x and y, highest x and y; infinite for an empty geometry."""
    bounds = shapely.bounds(shapes)[:, place]
    return np.where(np.isnan(bounds), np.inf if place < _BOX_NUMBERS // 2 else -np.inf, bounds)


def _of_one(names: str, kind: Any, compute: Callable[[Any, Shapes], Any]) -> None:
    """Register a function of one geometry; aliases follow a slash."""
    name = names.partition("/")[0]

    @_function(*names.split("/"), takes=_one(kind))
    def computed(geometry: Any) -> Any:
        shapely, shapes = library(name), shapes_of(geometry, name)
        return pa.array(compute(shapely, shapes), kind, mask=shapely.is_missing(shapes))


_of_one("st_area", pa.float64(), lambda shapely, shapes: shapely.area(shapes))
_of_one("st_length/st_length2d", pa.float64(), _length)
for _place, _name in enumerate(("st_xmin", "st_ymin", "st_xmax", "st_ymax")):
    _of_one(_name, pa.float64(), partial(_bound, place=_place))
_of_one("st_isempty", pa.bool_(), lambda shapely, shapes: shapely.is_empty(shapes))
_of_one("st_isvalid", pa.bool_(), lambda shapely, shapes: shapely.is_valid(shapes))
_of_one(
    "st_npoints/st_numpoints",
    pa.uint32(),
    lambda shapely, shapes: shapely.get_num_coordinates(shapes).astype(np.uint32),
)


_TYPE_NAMES: Final = (
    "Point", "LineString", "LineString", "Polygon", "MultiPoint", "MultilineString",
    "MultiPolygon", "GeometryCollection",
)  # fmt: skip
"""Type names by shapely's number, with pylance's spelling."""


def _geometry_type(shapely: Any, shapes: Shapes) -> Any:
    return np.array([f"ST_{name}" for name in _TYPE_NAMES])[shapely.get_type_id(shapes)]


_of_one("st_geometrytype", pa.string_view(), _geometry_type)


# --- making geometries ----------------------------------------------------------------------

_MADE: Final = GeometryType(WKB, pa.binary())


def _made(name: str, rule: Any, layout: str, *others: str) -> None:
    """Register a function that makes geometries from strings or bytes."""

    def takes(call: Call) -> Types:
        library(call.name)
        check_count(call, 1, 1)
        return (rule(call, 0)[0],), _MADE

    @_function(name, *others, takes=takes, geometries=False)
    def computed(values: Any) -> Any:
        typed = pa.ExtensionArray.from_storage(GeometryType(layout, values.type), values)
        return pa.array(library(name).to_wkb(shapes_of(typed, name)), pa.binary())


_made("st_geomfromtext", TEXT, WKT, "st_geometryfromtext", "st_wkttosql")
_made("st_geomfromwkb", BINARY, WKB, "st_wkbtosql")


def _of_coordinates(call: Call) -> Types:
    library(call.name)
    check_count(call, 2, 2)
    for number in range(2):
        FLOAT(call, number)
    return (pa.float64(), pa.float64()), _MADE


@_function("st_point", "st_makepoint", takes=_of_coordinates, geometries=False)
def _point(x: Any, y: Any) -> Any:
    rows = count_rows((x, y))
    x, y = broadcast(x, rows), broadcast(y, rows)
    missing = np.asarray(x.is_null()) | np.asarray(y.is_null())
    shapely = library("st_point")
    points = shapely.points(np.asarray(filled(x, 0.0)), np.asarray(filled(y, 0.0)))
    return pa.array(shapely.to_wkb(points), pa.binary(), mask=missing)


def bounds_of(constant: Any, name: str) -> tuple[float, float, float, float] | None:
    """Return lowest x and y, highest x and y of a constant; ``None`` for an empty geometry.

    Raises
    ------
    FilterError
        The constant is an invalid geometry.
    """
    with computing(name):
        found = library(name).bounds(_shapes(constant, name))[0].tolist()
    if any(bound != bound for bound in found):  # noqa: PLR0124  # NaN
        return None
    return found[0], found[1], found[2], found[3]
