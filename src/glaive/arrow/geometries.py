"""Columns of geometries: which layout of GeoArrow the metadata of a field says.

Coordinates that are separate are structs ``x``, ``y``; lines, polygons and sets of these are lists
of them, one to three deep. A box is a struct of its bounds. WKB and WKT are bytes and texts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.memory import as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt8s

BOUNDS: Final = ("xmin", "ymin", "xmax", "ymax")
"""Members of a box."""

DEPTHS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "point": 0, "linestring": 1, "multipoint": 1, "polygon": 2, "multilinestring": 2,
        "multipolygon": 3,
    }
)  # fmt: skip
"""How deep the points of a layout lie in lists."""

BOX, WKB, WKT = "box", "wkb", "wkt"

_PREFIX: Final = "geoarrow."
_NAME: Final = b"ARROW:extension:name"


class GeometryType(pa.ExtensionType):
    """Geometries as functions of filters see them; not registered with Arrow.

    Parameters
    ----------
    layout
        Name in GeoArrow: ``"point"``, ``"wkb"``.
    storage
        Type of the column.
    path
        Of the column, for errors; empty for what is none.
    """

    def __init__(self, layout: str, storage: pa.DataType, path: str = "") -> None:
        self.layout, self.path = layout, path
        super().__init__(storage, f"{_PREFIX}{layout}")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, GeometryType)
            and self.layout == other.layout
            and self.storage_type == other.storage_type
        )

    def __hash__(self) -> int:
        return hash((self.layout, self.storage_type))

    def __arrow_ext_serialize__(self) -> bytes:
        """No parameters."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _serialized: bytes) -> GeometryType:
        """Bytes in memory: the layout is not stored with them."""
        return cls(WKB, storage)


def geometry_type(field: pa.Field[Any], path: str = "") -> GeometryType | None:
    """The type of a column that its metadata says has geometries; None if it has others.

    Whether the storage fits the layout is looked at as well.
    """
    name = (field.metadata or {}).get(_NAME, b"").decode("utf-8", "replace")
    layout, kind = name.removeprefix(_PREFIX), field.type
    if not name.startswith(_PREFIX) or not _fits(layout, kind):
        return None
    return GeometryType(layout, kind, path)


def as_geometries(kind: pa.DataType, path: str = "") -> GeometryType | None:
    """The type of texts in WKT, or of bytes in WKB; None for other values."""
    for layout in (WKB, WKT):
        if _fits(layout, kind):
            return GeometryType(layout, kind, path)
    return None


def _fits(layout: str, kind: Any) -> bool:
    types = pa.types
    if layout == WKB:
        return types.is_binary(kind) or types.is_large_binary(kind)
    if layout == WKT:
        return types.is_string(kind) or types.is_large_string(kind)
    if layout == BOX:
        return _has_axes(kind, BOUNDS)
    if layout not in DEPTHS:
        return False
    for _ in range(DEPTHS[layout]):
        if not (types.is_list(kind) or types.is_large_list(kind)):
            return False
        kind = kind.value_type
    return _has_axes(kind, ("x", "y"))


def _has_axes(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether it is a struct with these members, of double precision."""
    if not pa.types.is_struct(kind):
        return False
    found = {child.name: child.type for child in kind}
    return all(found.get(name) == pa.float64() for name in names)


# --- Geometries in Well-Known Binary: checked before a library parses them --------------
# What a value says of its counts is compared with its bytes, and how deep collections lie in each
# other is limited: parsers recurse. Points, lines and polygons of one ring are checked many at a
# time, others one by one.

MAX_DEPTH: Final = 32
"""Collections within collections, at most."""

_HEAD: Final = 5
_COUNT: Final = 4
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7
_LITTLE: Final = 1
_WITH_Z, _WITH_M, _WITH_SRID = 0x80000000, 0x40000000, 0x20000000


class Damage(NamedTuple):
    """A value that is no geometry: its place in the array, and what is wrong."""

    row: int
    problem: str


def find_damage(values: Any) -> Damage | None:
    """The first of an array of binary values that is no geometry; nulls are passed over.

    Cost: some steps of NumPy for all; of Python for each part of a geometry with several parts.
    """
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offsets, content = values.buffers()
    if not len(values):
        return None
    ends = as_array(offsets, width)[values.offset : values.offset + len(values) + 1]
    ends = ends.astype(np.int64)
    data = np.empty(0, np.uint8) if content is None else as_array(content)
    rows = np.flatnonzero(np.asarray(values.is_valid()))
    starts, sizes = ends[:-1][rows], np.diff(ends)[rows]
    memory = memoryview(data)  # type: ignore[arg-type]  # arrays have memory
    for at in np.flatnonzero(~_are_simple(data, starts, sizes)).tolist():
        start = int(starts[at])
        problem = _walked(memory[start : start + int(sizes[at])])
        if problem is not None:
            return Damage(int(rows[at]), problem)
    return None


def _are_simple(data: UInt8s, starts: Int64s, sizes: Int64s) -> NDArray[np.bool_]:
    """Which are little-endian points, lines or polygons of one ring, as long as they say."""
    simple = np.zeros(len(starts), np.bool_)
    long = np.flatnonzero(sizes >= _HEAD + 2 * _COUNT)
    begin, size = starts[long], sizes[long]
    code, first, second = (_numbers(data, begin + skip) for skip in (1, _HEAD, _HEAD + _COUNT))
    fits = (code == _POINT) & (size == _HEAD + 16)
    fits |= (code == _LINE) & (size == _HEAD + _COUNT + 16 * first)
    fits |= (code == _POLYGON) & (first == 1) & (size == _HEAD + 2 * _COUNT + 16 * second)
    simple[long] = fits & (data[begin] == _LITTLE)
    return simple


def _numbers(data: UInt8s, places: Int64s) -> Int64s:
    """Little-endian words of 32 bits."""
    parts = data[places[:, None] + np.arange(_COUNT)]
    return np.ascontiguousarray(parts).view("<u4")[:, 0].astype(np.int64)


def _walked(value: memoryview) -> str | None:
    """What is wrong with a value, if anything."""
    at, end = 0, len(value)
    left = [1]  # geometries to come, within each collection
    while left:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        if end - at < _HEAD:
            return "it ends where a geometry begins"
        order = value[at]
        if order > _LITTLE:
            return f"byte order {order}, which is 0 or 1"
        word = "<I" if order == _LITTLE else ">I"
        (code,) = struct.unpack_from(word, value, at + 1)
        at += _HEAD + (_COUNT if code & _WITH_SRID else 0)
        kind, width = _kind_of(code)
        if not _POINT <= kind <= _COLLECTION:
            return f"type {code}, which no geometry has"
        if kind == _POINT:
            at += width
        elif end - at < _COUNT:
            return "it ends before a count"
        else:
            (count,) = struct.unpack_from(word, value, at)
            at += _COUNT
            least = {_LINE: width, _POLYGON: _COUNT}.get(kind, _HEAD + _COUNT)
            if count > (end - at) // least:
                return f"{count} parts are said to follow in {end - at} bytes"
            if kind == _LINE:
                at += count * width
            elif kind == _POLYGON:
                at = _behind_rings(value, at, count, word, width)
            elif len(left) > MAX_DEPTH:
                return f"collections lie deeper than {MAX_DEPTH} in each other"
            else:
                left.append(count)
        if at > end:
            return f"{at - end} bytes are missing"
    return None


def _kind_of(code: int) -> tuple[int, int]:
    """The kind of geometry, and the bytes of a point of it."""
    plain = code & 0xFFFF
    # Either way to say that there is a third or fourth axis; a value may say it both ways.
    third = bool(code & _WITH_Z) or plain // 1000 in (1, 3)
    fourth = bool(code & _WITH_M) or plain // 1000 in (2, 3)
    return plain % 1000, 8 * (2 + third + fourth)


def _behind_rings(value: memoryview, at: int, count: int, word: str, width: int) -> int:
    """Where rings end; beyond the value if one of them does not fit."""
    end = len(value)
    for _ in range(count):
        if end - at < _COUNT:
            return end + _COUNT
        (points,) = struct.unpack_from(word, value, at)
        at += _COUNT + points * width
        if at > end:
            return at
    return at
