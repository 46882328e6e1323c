"""Arrow schemas as values that JSON can represent, in the form of Lance's REST interface.

A type is ``{"type": name}`` with the name of the logical type; lists, structs and maps have
``fields``, types of a fixed size a ``length``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from glaive.arrow.nesting import check_schema
from glaive.errors import GlaiveError, SchemaError
from glaive.format.extension import field_metadata, storage_type
from glaive.format.extension_metadata import without_unfit
from glaive.format.logical_types import ACTED_ON, READ_BY_OTHERS, leaf_type, logical_type
from glaive.format.schema_metadata import safe_for_others

__all__ = ["json_to_schema", "schema_to_json"]

_NESTED = ("struct", "list", "large_list", "fixed_size_list", "map")
_MAX_LENGTH = 2**31 - 1


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """Convert a schema to dictionaries, lists, texts and numbers.

    Extension types become their storage types, with their names in the metadata.

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

    Extension types are given to Arrow as those in files are: their parameters only as text or JSON.

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
        metadata = _entries(given)
        if metadata and not READ_BY_OTHERS.isdisjoint(metadata):
            metadata = safe_for_others(metadata, fields)
        schema = pa.schema(fields, metadata)  # type: ignore[arg-type]  # bytes are fine
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
    name, metadata = given["name"], _entries(given)
    kind = _to_type(given["type"], name)
    if metadata and not ACTED_ON.isdisjoint(metadata):
        metadata = without_unfit(metadata, kind)
    return pa.field(name, kind, given["nullable"], metadata)


def _entries(given: Mapping[str, Any]) -> dict[str, bytes] | None:
    """The metadata, with its texts as bytes.

    Not as a list of pairs, of which Arrow would make metadata, too.
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
