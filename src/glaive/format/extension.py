"""Extension types in files: a storage type and two metadata entries.

Arrow's JSON type is called ``lance.json`` in files, because its values are encoded differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from glaive.format.logical_types import CATEGORIES, EXTENSION_METADATA, EXTENSION_NAME, WITHHELD

__all__ = [
    "JSON",
    "as_written",
    "extended",
    "field_metadata",
    "storage_type",
    "with_json",
    "with_metadata",
]

JSON = "lance.json"
_ARROW_JSON = "arrow.json"
_NAME = EXTENSION_NAME.encode()
_PANDAS = b"pandas"
_READ_INSTEAD = frozenset({WITHHELD[EXTENSION_NAME], *CATEGORIES.values()})
_WITHHELD = {key.encode(): other.encode() for key, other in WITHHELD.items()}


def storage_type(data_type: pa.DataType) -> Any:
    """The type itself, or the storage type of an extension type (JSON: large binary)."""
    stored: Any = data_type
    if getattr(data_type, "extension_name", None) == _ARROW_JSON:
        return pa.large_binary()
    while isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    return stored


def field_metadata(field: pa.Field[Any]) -> dict[str, bytes]:
    """Metadata of a field, with the entries for its extension type."""
    metadata = {
        key.decode("utf-8", "replace"): value for key, value in (field.metadata or {}).items()
    }
    data_type: Any = field.type
    if getattr(data_type, "extension_name", None) == _ARROW_JSON:
        metadata |= {EXTENSION_NAME: JSON.encode(), EXTENSION_METADATA: b""}
    elif isinstance(data_type, pa.BaseExtensionType):
        from glaive.arrow.exported import exported_metadata

        parameters = dict(exported_metadata(field)).get(EXTENSION_METADATA.encode(), b"")
        metadata[EXTENSION_NAME] = data_type.extension_name.encode()
        metadata[EXTENSION_METADATA] = parameters
    return metadata


def as_written(metadata: dict[str, bytes]) -> dict[str, bytes]:
    """Metadata with entries that were withheld in reading under their own keys."""
    if _READ_INSTEAD.isdisjoint(metadata):
        return metadata
    from glaive.format.extension_metadata import restored

    return restored(metadata)


def with_metadata(fields: Sequence[pa.Field[Any]], schema: pa.Schema, *, same: bool) -> pa.Schema:
    """Columns with the metadata of a schema, and what pandas notes of those that are as there.

    ``same`` if none was computed or has another name.
    """
    metadata: Any = schema.metadata
    if metadata and not same and _PANDAS in metadata:
        from glaive.format.pandas_metadata import fitting

        metadata[_PANDAS] = fitting(metadata[_PANDAS], fields)
    return pa.schema(fields, metadata)


def extended(schema: pa.Schema, *, json: bool = True) -> pa.Schema:
    """The schema with extension types instead of their metadata entries.

    Types that pyarrow does not know remain storage types. The names of those that do not fit them,
    or whose class cannot be made, are withheld: what takes Arrow data by its C interface, such as
    DuckDB, believes them, and reads memory that is not there. ``json`` specifies whether JSONB
    becomes Arrow's JSON type.
    """
    if not any(map(_is_extended, schema)):
        return schema
    import_module("glaive.format.blob_type")  # registers the blob type
    fields = [with_json(field) for field in schema] if json else list(schema)
    given = pa.schema(fields, schema.metadata)  # type: ignore[arg-type]  # bytes are fine
    whole = _imported(given)
    if whole is not None:
        return whole
    some = [_imported(pa.schema([field])) for field in given]
    fields = [one.field(0) if one else _unnamed(schema.field(at)) for at, one in enumerate(some)]
    return pa.schema(fields, schema.metadata)  # type: ignore[arg-type]  # as above


def _unnamed(field: pa.Field[Any]) -> pa.Field[Any]:
    """The field with names of extension types withheld at any depth."""
    given = field.metadata or {}
    metadata: Any = {_WITHHELD.get(key, key): value for key, value in given.items()}
    plain = field.with_type(_nested(field.type, list(map(_unnamed, _below(field.type)))))
    return plain.with_metadata(metadata) if metadata else plain.remove_metadata()


def _imported(schema: pa.Schema) -> pa.Schema | None:
    """The schema by Arrow's C interface, which converts metadata to types.

    None if a known name has metadata, or a storage type, that does not fit it: they are those of a
    file, and the class of the type may be that of any package, and raise anything.
    """
    try:
        made = pa.schema(_Exported(schema))  # type: ignore[arg-type]  # anything with a capsule
    except Exception:
        return None
    pairs = zip(made, schema, strict=True)
    return made if all(_stored(one.type).equals(_stored(two.type)) for one, two in pairs) else None


def _stored(data_type: Any) -> Any:
    """The type without extension types at any depth."""
    plain = storage_type(data_type) if isinstance(data_type, pa.BaseExtensionType) else data_type
    return _nested(plain, [field.with_type(_stored(field.type)) for field in _below(plain)])


def _is_extended(field: pa.Field[Any]) -> bool:
    if field.metadata and _NAME in field.metadata:
        return True
    return any(map(_is_extended, _below(field.type)))


def _below(data_type: Any) -> list[pa.Field[Any]]:
    if isinstance(data_type, pa.MapType):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(at) for at in range(data_type.num_fields)]


def with_json(field: pa.Field[Any]) -> pa.Field[Any]:
    """The field with Arrow's JSON type at any depth."""
    metadata, data_type = dict(field.metadata or {}), field.type
    if metadata.get(_NAME) == JSON.encode() and pa.types.is_large_binary(data_type):
        for key in (EXTENSION_NAME, EXTENSION_METADATA):
            metadata.pop(key.encode(), None)
        return pa.field(field.name, pa.json_(), field.nullable, metadata or None)
    stored = _below(data_type)
    below = [with_json(field) for field in stored]
    if all(field is other for field, other in zip(below, stored, strict=True)):
        return field
    return field.with_type(_nested(data_type, below))


def _nested(data_type: Any, below: list[pa.Field[Any]]) -> Any:
    """The type with other fields in it."""
    if pa.types.is_struct(data_type):
        return pa.struct(below)
    if isinstance(data_type, pa.MapType):
        return pa.map_(*below)
    if pa.types.is_large_list(data_type):
        return pa.large_list(below[0])
    if pa.types.is_list(data_type):
        return pa.list_(below[0])
    if isinstance(data_type, pa.FixedSizeListType):
        return pa.list_(below[0], data_type.list_size)
    return data_type


class _Exported:
    """A schema with the method of Arrow's C interface."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        """The capsule."""
        return self._schema.__arrow_c_schema__()
