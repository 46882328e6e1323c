"""Extension types: JSON and geometries, and arrays as another type."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa


def is_json(kind: pa.DataType) -> bool:
    """Return whether this is Arrow's JSON type."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def to_type(array: Any, kind: Any, where: object) -> Any:
    """Return the array as ``kind``, which differs in extension types, or which Arrow can cast to.

    Copies only JSON and cast values.

    Parameters
    ----------
    array
        An array or a chunked array.
    where
        Named in errors about JSONB.

    Raises
    ------
    SchemaError
        A string is invalid JSON.
    CorruptFileError
        Bytes are invalid JSONB.
    pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError
        Arrow lacks the cast, or it would lose something.
    """
    from glaive.arrow.jsonb import decode_jsonb, encode_jsonb

    if isinstance(array, pa.ChunkedArray):
        chunks: list[Any] = [to_type(chunk, kind, where) for chunk in array.chunks]
        return pa.chunked_array(chunks, kind)
    stored = array.type
    if stored.equals(kind):
        return array
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if is_json(kind) and types.is_large_binary(stored):
            array = decode_jsonb(array, where)
        return pa.ExtensionArray.from_storage(kind, to_type(array, kind.storage_type, where))
    if isinstance(stored, pa.BaseExtensionType):
        if is_json(stored) and types.is_large_binary(kind):
            return encode_jsonb(array.storage)
        return to_type(array.storage, kind, where)
    if types.is_struct(stored) and types.is_struct(kind) and _same_names(stored, kind):
        members = [
            to_type(array.field(at), kind.field(at).type, where) for at in range(kind.num_fields)
        ]
        return _rebuilt(array, kind, members, buffers=1)
    if types.is_map(stored) and types.is_map(kind):
        pair = [kind.key_field, kind.item_field]
        both = [
            to_type(child, field.type, where)
            for child, field in zip((array.keys, array.items), pair, strict=True)
        ]
        entries = pa.StructArray.from_arrays(both, fields=pair)
        return _rebuilt(array, kind, [entries], buffers=2)
    if types.is_fixed_size_list(stored) and types.is_fixed_size_list(kind):
        if stored.list_size == kind.list_size:
            return _rebuilt(array, kind, [to_type(array.values, kind.value_type, where)], buffers=1)
    elif (types.is_list(stored) and types.is_list(kind)) or (
        types.is_large_list(stored) and types.is_large_list(kind)
    ):
        return _rebuilt(array, kind, [to_type(array.values, kind.value_type, where)], buffers=2)
    return array.cast(kind)


def _same_names(first: Any, second: Any) -> bool:
    return [field.name for field in first] == [field.name for field in second]


def _rebuilt(array: Any, kind: Any, children: list[Any], *, buffers: int) -> Any:
    """Return the same nesting over other children."""
    if pa.types.is_struct(kind):
        # The members of a slice are slices; its bitmap is whole.
        mask = array.is_null() if array.null_count else None
        if not children:
            return array.cast(kind)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    own = array.buffers()[:buffers]
    return pa.Array.from_buffers(
        kind, len(array), own, array.null_count, array.offset, children=children
    )


# --- Columns of geometries: which layout of GeoArrow the metadata of a field says -------
#
# Separate coordinates are structs ``x``, ``y``. Lines, polygons and sets of these are lists of
# coordinates, one to three deep. A box is a struct of its bounds. WKB and WKT are bytes and texts.

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
    """Geometries as functions of filters see them; Arrow's registry lacks this type.

    Parameters
    ----------
    layout
        Name in GeoArrow: ``"point"``, ``"wkb"``.
    storage
        Type of the column.
    path
        Path of the column, for errors; empty for other values.
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
        """Return empty bytes: parameters stay in memory."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _serialized: bytes) -> GeometryType:
        """Return the type of binary values in WKB."""
        return cls(WKB, storage)


def geometry_type(field: pa.Field[Any], path: str = "") -> GeometryType | None:
    """Return the type of a column that has geometries by its metadata, ``None`` for others.

    The storage must fit the layout, too.
    """
    name = (field.metadata or {}).get(_NAME, b"").decode("utf-8", "replace")
    layout, kind = name.removeprefix(_PREFIX), field.type
    if not name.startswith(_PREFIX) or not _fits(layout, kind):
        return None
    return GeometryType(layout, kind, path)


def as_geometries(kind: pa.DataType, path: str = "") -> GeometryType | None:
    """Return the type of texts in WKT, or of bytes in WKB, ``None`` for other values."""
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
    """Return whether it is a struct with these members, of double precision."""
    if not pa.types.is_struct(kind):
        return False
    found = {child.name: child.type for child in kind}
    return all(found.get(name) == pa.float64() for name in names)
