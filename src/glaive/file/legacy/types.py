"""Which types files of format 0.1 can hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.format.fields import Field, LanceSchema

__all__ = ["check_legacy_types"]


def check_legacy_types(schema: LanceSchema) -> None:
    """Refuse a schema that format 0.1 cannot hold.

    Raises
    ------
    SchemaError
        Names the column, its type and the version that takes it.
    """
    for top in schema.fields:
        _check(top, top.name)


def _check(one: Field, path: str) -> None:
    reason = _reason(one)
    if reason is not None:
        takes, rule = reason
        raise SchemaError(
            f"column {path!r} has type {one.arrow_type}, which format 0.1 cannot hold: {rule}. "
            f"Use data_storage_version {takes} or newer, or cast the column."
        )
    for child in one.children:
        _check(child, f"{path}.{child.name}")


def _reason(one: Field) -> tuple[str, str] | None:
    """The version that takes a field that 0.1 does not, and why it does not."""
    logical, kind = one.logical_type, _type(one)
    if logical == "map":
        return "2.2", "it has no maps"
    if logical.startswith("fixed_size_list:struct"):
        return "2.2", "lists of fixed size are of numbers there"
    if logical == "struct" and not one.children:
        return "2.1", "a struct needs members"
    if one.is_blob_v2:
        return "2.2", "it has no such columns"
    if logical == "blob" or "lance-encoding:blob" in one.metadata:
        return "2.0", "it has no such columns"
    if logical in ("list", "large_list"):
        item = one.children[0]
        if not item.nullable or item.name != "item" or item.metadata:
            return "2.0", "items of lists are called 'item', nullable and without metadata there"
    if kind is None:
        return None
    if pa.types.is_dictionary(kind):
        values: Any = kind.value_type
        if not (pa.types.is_integer(values) or _is_bytes(values)):
            return "2.0", "dictionaries are of strings, binary or integers there"
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 0:
        return "2.1", "values need at least one byte"
    return _fixed_list_reason(kind)


def _fixed_list_reason(kind: Any) -> tuple[str, str] | None:
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
        if _is_bytes(kind) or pa.types.is_null(kind) or pa.types.is_dictionary(kind):
            return "2.1", "lists of fixed size are of numbers there"
    return None


def _type(one: Field) -> Any:
    return None if one.children else one.arrow_type


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )
