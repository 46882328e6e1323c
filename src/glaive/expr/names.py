"""Resolve names of a filter to columns of a schema.

The first part of a name ignores case unless it is quoted; struct members are case-sensitive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from glaive.arrow.geometries import GeometryType, as_geometries, geometry_type
from glaive.errors import FilterColumnError, FilterError
from glaive.expr import tree
from glaive.expr.coerce import plain
from glaive.expr.source_position import close_names, failure, position_text
from glaive.expr.sqltypes import type_text
from glaive.expr.tree import Node
from glaive.format.column_path import quoted_name
from glaive.format.extension import storage_type
from glaive.format.fields import LanceSchema

__all__ = ["Names"]


class Names:
    """The columns of a schema and the system columns, by name."""

    def __init__(self, schema: LanceSchema, system: Mapping[str, pa.DataType], text: str) -> None:
        # Lookups are those of the schema: a scan may bind an expression for each of its columns.
        self.schema, self.fields = schema, schema.by_name
        self.system, self.text = system, text

    def is_top(self, name: tree.Name) -> bool:
        """Whether it names a column, not a struct member."""
        return len(name.parts) == 1

    def bind(self, name: tree.Name) -> tuple[Node, Any]:
        """The column, and its type."""
        first, *members = name.parts
        column = self._first(first, exact=name.exact)
        if column is None:
            raise self._unknown("column", first, [*self.fields, *self.system], name.at)
        field = self.fields.get(column)
        if field is None:
            bound: Node = tree.Column(column, self.system[column], at=name.at)
            kind: Any = self.system[column]
        else:
            kind = storage_type(field.to_arrow().type)
            bound = tree.Column(column, kind, field.id, at=name.at)
        for member in members:
            bound, kind = self.member(bound, kind, member, name.at)
        return bound, plain(kind)

    def _first(self, name: str, *, exact: bool) -> str | None:
        if name in self.fields or name in self.system:
            return name
        if exact:
            return None
        lower = name.lower()
        field = self.schema.by_lower_name.get(lower)
        if field is not None:
            return field.name
        return next((other for other in self.system if other.lower() == lower), None)

    def member(self, operand: Node, kind: Any, name: str, at: int) -> tuple[Node, Any]:
        """A member of a struct: a column if the struct is one, else a ``Member``."""
        if not pa.types.is_struct(kind):
            raise failure(f"{type_text(kind)} has no members; only structs do", self.text, at)
        index = kind.get_field_index(name)
        if index < 0:
            raise self._unknown("member", name, [member.name for member in kind], at)
        member_type = storage_type(kind.field(index).type)
        if not isinstance(operand, tree.Column):
            return tree.Member(operand, name, at=at), plain(member_type)
        path = f"{self._above(operand.path)}.{self._quoted(operand.path, name)}"
        column = tree.Column(path, member_type, self._id(operand.field_id, name), at=at)
        return column, plain(member_type)

    def geometry_type(self, column: tree.Column) -> GeometryType | None:
        """The type of a column with geometries: by its metadata, or as texts or bytes."""
        for field in self.fields.values():
            for node in field.walk():
                if node.id == column.field_id:
                    said = geometry_type(node.to_arrow(), column.path)
                    return said or as_geometries(column.type, column.path)
        return None

    def _above(self, path: str) -> str:
        """The path of a struct, before that of a member; the path of a column is its name."""
        return quoted_name(path) if "`" in path and path in self.fields else path

    def _quoted(self, above: str, name: str) -> str:
        plain = "." not in name and "`" not in name and f"{above}.{name}" not in self.fields
        return name if plain else quoted_name(name)

    def _id(self, above: int, name: str) -> int:
        for field in self.fields.values():
            for node in field.walk():
                if node.id == above:
                    return next(child.id for child in node.children if child.name == name)
        return -1

    def _unknown(self, noun: str, name: str, known: Sequence[str], at: int) -> FilterError:
        listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        hint = close_names(name, known) or "."
        plural = "Columns" if noun == "column" else "Members"
        position = position_text(self.text, at)
        return FilterColumnError(
            f"No field named {name}: unknown {noun} {name!r}{hint} {plural}: {listed}{position}"
        )
