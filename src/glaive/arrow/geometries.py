"""Columns of geometries: which layout of GeoArrow the metadata of a field says.

Coordinates that are separate are structs ``x``, ``y``; lines, polygons and sets of these are lists
of them, one to three deep. A box is a struct of its bounds. WKB and WKT are bytes and texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

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
