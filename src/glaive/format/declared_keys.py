"""Columns that a schema declares to be a key, in their metadata; nothing enforces it.

Specification: "Fields" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from glaive.errors import SchemaError
from glaive.format.field import Field

__all__ = [
    "CLUSTERING_KEY",
    "CLUSTERING_KEY_POSITION",
    "PRIMARY_KEY",
    "PRIMARY_KEY_POSITION",
    "check_primary_key",
    "clustering_key",
    "is_clustering_key",
    "is_primary_key",
    "key_position",
    "primary_key",
]

PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION: Final = "lance-schema:unenforced-primary-key:position"
CLUSTERING_KEY: Final = "lance-schema:unenforced-clustering-key"
CLUSTERING_KEY_POSITION: Final = "lance-schema:unenforced-clustering-key:position"

_TRUE: Final = ("true", "1", "yes")
_HIGHEST: Final = (1 << 32) - 1


def _stored_position(field: Field, option: str) -> int | None:
    text = (field.option(option) or "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_HIGHEST))):
        return None
    return int(text) if int(text) <= _HIGHEST else None


def key_position(field: Field, option: str) -> int | None:
    """The place of a column within its key, from 1 on; None if none is given."""
    return _stored_position(field, option) or None


def is_primary_key(field: Field) -> bool:
    """Whether the column is of the primary key: it says so, or has a place in it."""
    flagged = (field.option(PRIMARY_KEY) or "").lower() in _TRUE
    return flagged or _stored_position(field, PRIMARY_KEY_POSITION) is not None


def is_clustering_key(field: Field) -> bool:
    """Whether the column has a place in the clustering key."""
    return _stored_position(field, CLUSTERING_KEY_POSITION) is not None


def primary_key(fields: Iterable[Field]) -> list[Field]:
    """Columns of the primary key: those with a place by place, then the others in their order."""
    declared = [field for field in fields if is_primary_key(field)]
    return sorted(declared, key=lambda one: key_position(one, PRIMARY_KEY_POSITION) or _HIGHEST + 1)


def check_primary_key(fields: Iterable[Field]) -> None:
    """Refuse a schema in which a column of the primary key, or a struct around it, may be null.

    Other readers refuse the whole table then.

    Raises
    ------
    SchemaError
        There is one.
    """
    for field in fields:
        _check_below(field, field.name, None)


def _check_below(field: Field, path: str, outer: str | None) -> None:
    """``outer`` is the path of what is around the field, and may be null; None if nothing is."""
    nullable = outer or (path if field.nullable else None)
    if nullable is not None and is_primary_key(field):
        raise SchemaError(
            f"column {nullable!r} is of the primary key, or around a column of it, and may be "
            "null, which other readers of the table refuse. Declare it with nullable=False."
        )
    for child in field.children:
        _check_below(child, f"{path}.{child.name}", nullable)


def clustering_key(fields: Iterable[Field]) -> list[Field]:
    """Columns of the clustering key, by place."""
    declared = [field for field in fields if is_clustering_key(field)]
    return sorted(declared, key=lambda one: _stored_position(one, CLUSTERING_KEY_POSITION) or 0)
