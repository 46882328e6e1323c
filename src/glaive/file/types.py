"""Which types a format version can hold."""

from __future__ import annotations

from collections.abc import Iterator

from glaive.errors import SchemaError
from glaive.file.profile import FormatProfile
from glaive.format.fields import Field, LanceSchema

__all__ = ["check_types"]

_GATED = ("map", "fixed_size_list:struct")
"""Logical types that only some versions take; others are common to all."""

_PENDING = {
    "layouts": ("dict:", "json", "blob", "fixed_size_list:struct", "map"),
    "arrays": ("json", "blob"),
    "planes": ("dict:", "json", "blob", "fixed_size_list:struct", "map"),
}
"""Logical types that the writer of a kind of pages does not write yet."""


def check_types(schema: LanceSchema, profile: FormatProfile) -> None:
    """Refuse a schema that the version cannot hold.

    Raises
    ------
    SchemaError
        Names the column, its type and the version.
    """
    for path, field in _walk(schema.fields, ""):
        logical = field.logical_type
        gate = next((name for name in _GATED if logical.startswith(name)), None)
        if gate is not None and gate not in profile.types:
            raise SchemaError(
                f"column {path!r} has type {field.arrow_type}, which format {profile.version} "
                "cannot hold; use data_storage_version 2.2 or newer, or cast the column"
            )
        packed = field.is_packed and profile.pages != "arrays"
        if logical.startswith(_PENDING[profile.pages]) or packed:
            raise SchemaError(
                f"column {path!r} has type {field.arrow_type}, which this version of glaive "
                "does not write yet; cast the column to a plain type"
            )


def _walk(fields: tuple[Field, ...], prefix: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path, field
        yield from _walk(field.children, path + ".")
