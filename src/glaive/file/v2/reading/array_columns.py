"""The physical columns of a field in format 2.0.

Every struct and every list owns a column, before those of its children. A fixed-size list and
a packed struct own a single column, which includes their children.

Specification: "Columns of format 2.0" in ``docs/format/arrays.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from glaive.errors import UnsupportedFeatureError
from glaive.file.v2.reading.columns import Kind, Node
from glaive.format.fields import Field

__all__ = ["array_tree", "column_owners", "number_array_columns"]

_LISTS = ("list", "list.struct", "large_list", "large_list.struct")


def column_owners(fields: Sequence[Field]) -> Iterator[Field]:
    """Fields at or below these that own a column, in column order."""
    for field in fields:
        yield field
        if _kind(field) != "leaf":
            yield from column_owners(field.children)


def number_array_columns(
    fields: Sequence[Field], width: Callable[[Field, int], int] | None = None
) -> dict[int, int]:
    """Column by field id when a file numbers the fields of its own schema.

    ``width`` returns the number of columns of a field without children, given its first column:
    Lance before 0.14 wrote two for strings.
    """
    columns: dict[int, int] = {}
    at = 0
    for field in column_owners(fields):
        columns[field.id] = at
        at += 1 if width is None else width(field, at)
    return columns


def array_tree(field: Field, column_of: Mapping[int, int]) -> Node:
    """The node of a top-level field; columns the file does not have are None.

    Raises
    ------
    UnsupportedFeatureError
        Format 2.0 has no such type.
    """
    kind = _kind(field)
    column = column_of.get(field.id)
    if column is not None and column < 0:
        column = None
    children: tuple[Node, ...] = ()
    if kind != "leaf":
        children = tuple(array_tree(child, column_of) for child in field.children)
    return Node(
        kind, field.name, field.arrow_type, field.nullable, field, children, (), (), (), column
    )


def _kind(field: Field) -> Kind:
    logical = field.logical_type
    if logical == "map":
        raise UnsupportedFeatureError(
            f"field {field.name!r} is a map, which format 2.0 does not support; 2.2 does"
        )
    if logical in _LISTS:
        return "list"
    if logical == "struct" and not field.is_packed:
        return "struct"
    return "leaf"
