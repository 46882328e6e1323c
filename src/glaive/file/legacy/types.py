"""Which types files of format 0.1 can hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.arrow.build import offset_bits
from glaive.errors import SchemaError
from glaive.format.fields import Field, LanceSchema

__all__ = ["check_legacy_types"]


def check_legacy_types(schema: LanceSchema) -> None:
    """Refuse a schema that format 0.1 cannot hold.

    Raises
    ------
    SchemaError
        Names the column, its type and the version that supports it.
    """
    for top in schema.fields:
        _check(top, top.name)


def _check(field: Field, path: str) -> None:
    reason = _reason(field)
    if reason is not None:
        version, rule = reason
        raise SchemaError(
            f"column {path!r} has type {field.arrow_type}, which format 0.1 cannot hold: {rule}. "
            f"Use data_storage_version {version} or newer, or cast the column."
        )
    for child in field.children:
        _check(child, f"{path}.{child.name}")


def _reason(field: Field) -> tuple[str, str] | None:
    """The version that supports a field that 0.1 does not, and why 0.1 does not."""
    logical = field.logical_type
    kind: Any = None if field.children else field.arrow_type
    if logical == "map":
        return "2.2", "it has no maps"
    if logical.startswith("fixed_size_list:struct"):
        return "2.2", "its fixed-size lists have items that are numbers"
    if logical == "struct" and not field.children:
        return "2.1", "a struct needs members"
    if field.is_blob_v2:
        return "2.2", "it has no such columns"
    if logical == "blob" or "lance-encoding:blob" in field.metadata:
        return "2.0", "it has no such columns"
    if logical in ("list", "large_list"):
        item = field.children[0]
        if not item.nullable or item.name != "item" or item.metadata:
            return "2.0", "its list items are named 'item', nullable and without metadata"
    if kind is None:
        return None
    if pa.types.is_dictionary(kind):
        values: Any = kind.value_type
        if not (pa.types.is_integer(values) or offset_bits(values)):
            return "2.0", "its dictionaries have items that are strings, binary or integers"
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 0:
        return "2.2", "values need at least one byte"
    return _fixed_list_reason(kind)


def _fixed_list_reason(kind: Any) -> tuple[str, str] | None:
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
        other = pa.types.is_null(kind) or pa.types.is_dictionary(kind) or kind == pa.binary(0)
        if other or offset_bits(kind):
            return "2.1", "its fixed-size lists have items that are numbers"
    return None
