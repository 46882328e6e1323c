"""Extension types in files: a storage type and two metadata entries.

Arrow's JSON type is called ``lance.json`` in files, because its values are encoded differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.blocks import fields_of, with_fields
from glaive.arrow.validation import check_schema
from glaive.errors import GlaiveError, SchemaError
from glaive.format.logical_types import (
    EXTENSION_METADATA,
    EXTENSION_NAME,
    ZONE_FILE,
    leaf_type,
    logical_type,
)

JSON = "lance.json"
_ARROW_JSON = "arrow.json"
_NAME = EXTENSION_NAME.encode()
_PANDAS = b"pandas"


def storage_type(data_type: pa.DataType) -> Any:
    """Return the type itself, or the storage type of an extension type (JSON: large binary)."""
    stored: Any = data_type
    if getattr(data_type, "extension_name", None) == _ARROW_JSON:
        return pa.large_binary()
    while isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    return stored


def field_metadata(field: pa.Field[Any]) -> dict[str, bytes]:
    """Return the metadata of a field, with the entries for its extension type."""
    metadata = {
        key.decode("utf-8", "replace"): value for key, value in (field.metadata or {}).items()
    }
    data_type: Any = field.type
    if getattr(data_type, "extension_name", None) == _ARROW_JSON:
        metadata |= {EXTENSION_NAME: JSON.encode(), EXTENSION_METADATA: b""}
    elif isinstance(data_type, pa.BaseExtensionType):
        from glaive.arrow.validation import exported_metadata

        parameters = dict(exported_metadata(field)).get(EXTENSION_METADATA.encode(), b"")
        metadata[EXTENSION_NAME] = data_type.extension_name.encode()
        metadata[EXTENSION_METADATA] = parameters
    return metadata


def with_metadata(fields: Sequence[pa.Field[Any]], schema: pa.Schema, *, same: bool) -> pa.Schema:
    """Return columns with the metadata of a schema, and pandas' notes of unchanged columns.

    ``same`` if all columns are columns of the schema, with their names.
    """
    metadata: Any = schema.metadata
    if metadata and not same and _PANDAS in metadata:
        metadata[_PANDAS] = fitting(metadata[_PANDAS], fields)
    return pa.schema(fields, metadata)


def extended(schema: pa.Schema, *, json: bool = True) -> pa.Schema:
    """Return the schema with extension types instead of their metadata entries.

    A type remains a storage type if pyarrow lacks its extension type or the metadata is invalid.
    ``json`` specifies whether JSONB becomes Arrow's JSON type.
    """
    if not any(map(_is_extended, schema)):
        return schema
    import_module("glaive.format.blobs")  # registers the blob type
    fields = [with_json(field) for field in schema] if json else list(schema)
    given = pa.schema(fields, schema.metadata)  # type: ignore[arg-type]  # bytes are fine
    whole = _imported(given)
    if whole is not None:
        return whole
    some = [_imported(pa.schema([field])) for field in given]
    fields = [one.field(0) if one else fields[at] for at, one in enumerate(some)]
    return pa.schema(fields, schema.metadata)  # type: ignore[arg-type]  # as above


def _imported(schema: pa.Schema) -> pa.Schema | None:
    """Return the schema by Arrow's C interface, which converts metadata to types.

    Return ``None`` if a known name has an invalid storage type or invalid metadata. The file
    chooses both, and the class of the type may be of any package and raise anything.
    """
    try:
        made = pa.schema(_Exported(schema))  # type: ignore[arg-type]  # anything with a capsule
    except Exception:
        return None
    pairs = zip(made, schema, strict=True)
    return made if all(_stored(one.type).equals(_stored(two.type)) for one, two in pairs) else None


def _stored(data_type: Any) -> Any:
    """Return the type without extension types at any depth."""
    plain = storage_type(data_type) if isinstance(data_type, pa.BaseExtensionType) else data_type
    return with_fields(plain, [field.with_type(_stored(field.type)) for field in fields_of(plain)])


def _is_extended(field: pa.Field[Any]) -> bool:
    if field.metadata and _NAME in field.metadata:
        return True
    return any(map(_is_extended, fields_of(field.type)))


def with_json(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return the field with Arrow's JSON type at any depth."""
    metadata, data_type = dict(field.metadata or {}), field.type
    if metadata.get(_NAME) == JSON.encode() and pa.types.is_large_binary(data_type):
        for key in (EXTENSION_NAME, EXTENSION_METADATA):
            metadata.pop(key.encode(), None)
        return pa.field(field.name, pa.json_(), field.nullable, metadata or None)
    stored = fields_of(data_type)
    below = [with_json(field) for field in stored]
    if all(field is other for field, other in zip(below, stored, strict=True)):
        return field
    return field.with_type(with_fields(data_type, below))


class _Exported:
    """A schema with the method of Arrow's C interface."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        """Return the capsule."""
        return self._schema.__arrow_c_schema__()


# --- pandas' notes in the metadata of a schema: types and index of a frame --------------
#
# Arrow makes types of pandas from them when a table becomes a frame, also by its own methods.

_PANDAS_SUFFIX: Final = "[pyarrow]"
"""The end of the name of an Arrow type in pandas, which would convert values to it."""

_TEXTS: Final = re.compile(r"str(?:ing)?(?:\[\w+\])?").fullmatch
"""Types of pandas for texts, which both types of Arrow for these may have."""

_EXTENSIONS: Final = ("period[", "interval[")
"""Types of pandas that are extension types of Arrow: other types would pass for their storage."""


_PLAIN: Final[dict[Any, Any]] = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def fitting(noted: bytes, fields: Iterable[pa.Field[Any]]) -> bytes:
    """Remove the types of changed or recreated columns from a note.

    Arrow and pandas would convert the values to the old type of the column: numbers to booleans or
    to texts, times to days. Keep bytes that are an invalid note. A note with a time zone of
    dateutil, which opens any path, becomes an empty text.
    """
    import json

    try:
        note = json.loads(noted)
        if ZONE_FILE in str(note):
            return b""
        by_name = {field.name: field for field in fields}
        found = False
        for one in note.get("columns", ()):
            field = by_name.get(str(one.get("field_name", one.get("name"))))
            if field is not None and not _matches_note(one, field):
                one |= {"pandas_type": _kind(field), "numpy_type": "object", "metadata": None}
                found = True
    except (AttributeError, RecursionError, TypeError, ValueError):
        return noted
    return json.dumps(note).encode() if found else noted


def _matches_note(one: dict[str, Any], field: pa.Field[Any]) -> bool:
    """Return whether the classes that a column's note names can have values of its type."""
    kind, of_numpy = str(one.get("pandas_type")), str(one.get("numpy_type"))
    if of_numpy.endswith(_PANDAS_SUFFIX) and not _TEXTS(of_numpy):
        return of_numpy == f"{field.type}{_PANDAS_SUFFIX}"
    if of_numpy.startswith(_EXTENSIONS) and _NAME not in (field.metadata or ()):
        return False
    if kind == "object" and _TEXTS(of_numpy):
        kind = "unicode"
    return _kind(field) == ("object" if kind.startswith("list[") else kind)


def _kind(field: pa.Field[Any]) -> str:
    """Return a note's name for the type of a column; notes call lists objects, too."""
    from pyarrow.pandas_compat import get_logical_type

    if _NAME in (field.metadata or ()):
        return "object"
    kind: str = get_logical_type(_PLAIN.get(field.type, field.type))
    return "object" if kind.startswith("list[") else kind


# --- Arrow schemas as values that JSON can represent, in the form of Lance's REST interface
#
# A type is ``{"type": name}`` with the name of the logical type. Lists, structs and maps have
# ``fields``, types of a fixed size a ``length``.

_NESTED = ("struct", "list", "large_list", "fixed_size_list", "map")
_MAX_LENGTH = 2**31 - 1


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """Convert a schema to dictionaries, lists, strings and numbers.

    Extension types become their storage types, with their names in the metadata.

    Parameters
    ----------
    schema
        A schema of Arrow.

    Raises
    ------
    SchemaError
        Lance has no such type.
    """
    if not isinstance(schema, pa.Schema):
        raise SchemaError(f"schema_to_json: expected a pyarrow.Schema, found {schema!r:.60}")
    check_schema(schema)
    result: dict[str, Any] = {"fields": [_from_field(field) for field in schema]}
    if schema.metadata:
        result["metadata"] = _texts(schema.metadata)
    return result


def json_to_schema(schema_json: Mapping[str, Any]) -> pa.Schema:
    """Convert the result of :func:`schema_to_json` back.

    Parameters
    ----------
    schema_json
        A mapping with the key ``fields``.

    Raises
    ------
    SchemaError
        Something is missing, or of another kind than it should be; the message names the field.
    """
    given: Any = schema_json
    if not isinstance(given, Mapping) or not isinstance(given.get("fields"), list):
        raise SchemaError("json_to_schema: missing field `fields`: expected a list of fields")
    try:
        fields = [_to_field(one, "schema") for one in given["fields"]]
        schema = pa.schema(fields, _entries(given))  # type: ignore[arg-type]  # bytes are fine
    except RecursionError as error:
        raise SchemaError("json_to_schema: fields are nested too deeply") from error
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, GlaiveError):
            raise
        raise SchemaError(f"json_to_schema: {error}") from error
    check_schema(schema)
    return schema


def _from_field(field: pa.Field[Any]) -> dict[str, Any]:
    metadata = field_metadata(field)
    stored = storage_type(field.type)
    result = {
        "name": field.name,
        "type": _from_type(stored, field.name),
        "nullable": field.nullable,
    }
    if metadata:
        result["metadata"] = _texts(metadata)
    return result


def _from_type(kind: Any, name: str) -> dict[str, Any]:
    types = pa.types
    if types.is_struct(kind):
        return {
            "type": "struct",
            "fields": [_from_field(kind.field(at)) for at in range(kind.num_fields)],
        }
    if types.is_map(kind):
        return {
            "type": "map",
            "fields": [_from_field(kind.key_field), _from_field(kind.item_field)],
        }
    if types.is_fixed_size_list(kind):
        fields = [_from_field(kind.value_field)]
        return {"type": "fixed_size_list", "fields": fields, "length": kind.list_size}
    if types.is_list(kind) or types.is_large_list(kind):
        text = "list" if types.is_list(kind) else "large_list"
        return {"type": text, "fields": [_from_field(kind.value_field)]}
    if types.is_fixed_size_binary(kind):
        return {"type": "fixed_size_binary", "length": kind.byte_width}
    return {"type": logical_type(kind, name)}


def _texts(metadata: Mapping[Any, Any]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in metadata.items()}


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _to_field(given: Any, parent: str) -> pa.Field[Any]:
    if not isinstance(given, Mapping):
        raise SchemaError(f"json_to_schema: {parent}: expected a field, found {given!r:.60}")
    for key, kind in (("name", str), ("type", Mapping), ("nullable", bool)):
        if key not in given:
            raise SchemaError(f"json_to_schema: missing field `{key}` in a field of {parent}")
        if not isinstance(given[key], kind):
            raise SchemaError(
                f"json_to_schema: {key} of a field of {parent}: expected "
                f"{'an object' if kind is Mapping else kind.__name__}, found {given[key]!r:.60}"
            )
    name = given["name"]
    return pa.field(name, _to_type(given["type"], name), given["nullable"], _entries(given))


def _entries(given: Mapping[str, Any]) -> dict[str, bytes] | None:
    """Return the metadata, with its texts as bytes.

    A list of pairs is refused, although Arrow would make metadata of it, too.
    """
    metadata = given.get("metadata")
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata: expected an object, found {metadata!r:.60}")
    texts = [one for pair in metadata.items() for one in pair]
    for text in texts:
        if not isinstance(text, str | bytes):
            raise TypeError(f"metadata: expected texts, found {text!r:.60}")
    stored = [text.encode() if isinstance(text, str) else text for text in texts]
    return {key.decode(): value for key, value in zip(stored[::2], stored[1::2], strict=True)}


def _to_type(given: Mapping[str, Any], name: str) -> Any:
    text = given.get("type")
    if not isinstance(text, str):
        raise SchemaError(f"json_to_schema: missing field `type` in the type of {name!r}")
    if text == "fixed_size_binary":
        return pa.binary(_length(given, name))
    if text not in _NESTED:
        return leaf_type(text)
    below = given.get("fields")
    count = {"struct": None, "map": 2}.get(text, 1)
    if not isinstance(below, list) or (count is not None and len(below) != count):
        wanted = "fields" if count is None else f"{count} field(s)"
        raise SchemaError(f"json_to_schema: {text} type of {name!r} requires {wanted}")
    fields: list[Any] = [_to_field(one, name) for one in below]
    if text == "struct":
        return pa.struct(fields)
    if text == "map":
        return pa.map_(*fields)
    if text == "fixed_size_list":
        return pa.list_(fields[0], _length(given, name))
    return pa.list_(fields[0]) if text == "list" else pa.large_list(fields[0])


def _length(given: Mapping[str, Any], name: str) -> int:
    length = given.get("length")
    if isinstance(length, bool) or not isinstance(length, int) or not 0 < length <= _MAX_LENGTH:
        raise SchemaError(f"json_to_schema: length of {name!r}: expected an integer from 1 on")
    return length
