"""Resolve names of a filter to columns of a schema.

The first part of a name ignores case unless it is quoted; struct members are case-sensitive.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.geometries import GeometryType, as_geometries, geometry_type
from glaive.errors import FilterColumnError, FilterError
from glaive.expr import tree
from glaive.expr.coerce import plain
from glaive.expr.parse import parse
from glaive.expr.source_position import close_names, failure, position_text
from glaive.expr.sqltypes import type_text
from glaive.expr.tree import Node
from glaive.format.column_path import quoted_name
from glaive.format.extension import storage_type
from glaive.format.fields import LanceSchema

__all__ = ["Names", "check_column_texts"]

_DOUBTFUL: Final = re.compile(
    r"""\"|'\s*(?:[=<>!]|(?:not|in|like|ilike|between|is)\b)""", re.IGNORECASE
)
"""A text in double quotes, or a text before an operator: few filters have either."""

_BY_KEY: Final = ("json_", "get_field", "map_extract", "element_at")
"""Beginnings of the names of functions whose later arguments are keys, paths and their like."""

_COMPARING: Final = (tree.Compare, tree.InList, tree.Between, tree.Like)


def check_column_texts(schema: LanceSchema, *sources: object, warn: bool = False) -> None:
    """Refuse expressions in which a text is the name of a column.

    ``"name" = 'x'`` compares two texts, as in pylance; in SQL it is a column. Expressions that are
    no text are left alone.

    Parameters
    ----------
    warn
        Warn the caller of glaive, once, rather than raise.

    Raises
    ------
    FilterError
        The message says how to write the column, and how the text.
    """
    doubt = next(filter(None, (_column_text(source, schema) for source in sources)), None)
    if doubt is not None and not warn:
        raise doubt
    if doubt is not None:
        frame, level = inspect.currentframe(), 1
        while frame and frame.f_globals.get("__name__", "").startswith("glaive."):
            frame, level = frame.f_back, level + 1
        warnings.warn(doubt.args[0], UserWarning, stacklevel=level)


def _column_text(source: object, schema: LanceSchema) -> FilterError | None:
    """What is to be said of the first text that is the name of a column."""
    if not isinstance(source, str) or not _DOUBTFUL.search(source):
        return None
    members, texts = set(), dict[int, tree.Literal]()
    for node in tree.walk(parse(source)):
        sides = tuple(tree.children(node))
        if isinstance(node, tree.Subscript):  # s["x"] is the member x
            members.add(node.index.at)
        elif isinstance(node, tree.Call) and node.name.startswith(_BY_KEY):
            members |= {side.at for side in sides[1:]}
        elif isinstance(node, _COMPARING) and all(isinstance(side, tree.Literal) for side in sides):
            texts |= {side.at: side for side in sides if isinstance(side, tree.Literal)}
        elif isinstance(node, tree.Literal) and source[node.at] == '"':
            texts[node.at] = node
    for at in sorted(texts.keys() - members):
        column = _column_named(texts[at].value, schema)
        if column is not None:
            problem = f"{texts[at].value!r} is a text, and a column has this name: write {column}"
            remedy = "for the column, and the text in single quotes beside a column for the text"
            return failure(f"{problem} {remedy}", source, at)
    return None


def _column_named(text: object, schema: LanceSchema) -> str | None:
    """The column or member that a text names, as an expression has it."""
    if not isinstance(text, str) or text.partition(".")[0].lower() not in schema.by_lower_name:
        return None
    try:
        column: Any = Names(schema, {}, "").bind(tree.Name(tuple(text.split("."))))[0]
    except FilterError:
        return None
    return quoted_name(column.path) if column.path in schema.by_name else column.path


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
            raise self._unknown("Columns", first, [*self.fields, *self.system], name.at)
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
            raise self._unknown("Members", name, [member.name for member in kind], at)
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

    def _unknown(self, listing: str, name: str, known: Sequence[str], at: int) -> FilterError:
        listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        hint = close_names(name, known) or "."
        position = position_text(self.text, at)
        return FilterColumnError(f"No field named {name}{hint} {listing}: {listed}{position}")
