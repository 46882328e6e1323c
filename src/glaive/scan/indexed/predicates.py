"""The tests of a filter that an index may answer, as a tree of queries on single columns.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from glaive.arrow.conditions import HasText
from glaive.arrow.geometries import GeometryType
from glaive.dataclass import dataclass
from glaive.expr import tree
from glaive.expr.split import Test, merged, one_column
from glaive.expr.tree import Literal, Node
from glaive.index.queries import HasLabels, HasTokens, IndexQuery, MatchesPattern, MeetsBox

__all__ = ["AllOf", "AnyOf", "Leaf", "Negated", "Predicate", "leaves", "predicate_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A query on the values of a column.

    Parameters
    ----------
    path
        Of the column.
    query
        In the type of the column's values.
    json_path
        For a value within a JSON column: where it is, as the filter says it.
    """

    path: str
    query: IndexQuery
    json_path: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AllOf:
    """Operands of AND that an index may answer.

    Parameters
    ----------
    complete
        Whether these are all operands; else more rows pass these than pass all.
    """

    operands: tuple[Predicate, ...]
    complete: bool


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf:
    """Operands of OR."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negated:
    """The opposite of a test; null where that is null."""

    operand: Predicate


Predicate: TypeAlias = Leaf | AllOf | AnyOf | Negated


def predicate_of(node: Node, test: Test | None = None) -> Predicate | None:
    """What an index may answer of an expression, and the test it is, if any; None for nothing."""
    leaf = _leaf(node) if test is None else Leaf(*test)
    if leaf is not None:
        return leaf
    match node:
        case tree.And(operands):
            tests = merged([(operand, one_column(operand)) for operand in operands])
            known = [predicate_of(*operand) for operand in tests]
            kept = tuple(operand for operand in known if operand is not None)
            return AllOf(kept, len(kept) == len(known)) if kept else None
        case tree.Or(operands):
            parts = [predicate_of(operand) for operand in operands]
            kept = tuple(part for part in parts if part is not None)
            return AnyOf(kept) if len(kept) == len(parts) else None
        case tree.Not(operand):
            negated = predicate_of(operand)
            return None if negated is None or not _is_complete(negated) else Negated(negated)
    return None


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """All queries of a predicate."""
    match predicate:
        case Leaf():
            yield predicate
        case Negated(operand):
            yield from leaves(operand)
        case AllOf(operands) | AnyOf(operands):
            for operand in operands:
                yield from leaves(operand)


def _is_complete(predicate: Predicate) -> bool:
    """Whether no operand was left out, so that the opposite can be known."""
    match predicate:
        case Leaf(_, query):
            return not isinstance(query, MeetsBox)
        case Negated(operand):
            return _is_complete(operand)
        case AllOf(operands, complete):
            return complete and all(map(_is_complete, operands))
        case AnyOf(operands):
            return all(map(_is_complete, operands))


def _leaf(node: Node) -> Leaf | None:
    test = one_column(node)
    if test is not None:
        return Leaf(*test)
    match node:
        case tree.Call(name, (tree.Column(path), Literal() as other)) if not other.is_null:
            query = _call(name, other.scalar())
            return None if query is None else Leaf(path, query)
        case tree.IsNull(
            tree.Call("regexp_match", (tree.Column(path), Literal(str() as pattern))), negated=True
        ):
            return Leaf(path, MatchesPattern(pattern))
        case tree.Like(
            tree.Column(path), Literal(str() as pattern), escape, negated=False, ignore_case=False
        ):
            return Leaf(path, MatchesPattern(_expression_of(pattern, escape)))
        case tree.Call(name, (left, right)) if name.startswith("st_"):
            return _box_leaf(name, left, right)
        case tree.Compare() | tree.InList() | tree.IsNull():
            return _json_leaf(node)
    return None


def _call(name: str, operand: Any) -> IndexQuery | None:
    """The query of a function of a column and a constant."""
    match name:
        case name if name in tree.HAS_ITEM:
            return HasLabels(pa.array([operand.as_py()], operand.type))
        case "array_has_any" | "list_has_any" | "arrays_overlap":
            return _labels(operand.values, every=False)
        case "array_has_all" | "list_has_all":
            return _labels(operand.values, every=True)
        case "contains" | "starts_with" | "ends_with" if isinstance(operand.as_py(), str):
            return HasText(
                word=operand.as_py(), begins=name == "starts_with", ends=name == "ends_with"
            )
        case "contains_tokens":
            return HasTokens(operand.as_py())
        case "regexp_like" | "regexp_match":
            return MatchesPattern(operand.as_py())
    return None


def _expression_of(pattern: str, escape: str) -> str:
    """A regular expression for the texts between the wildcards of a pattern of LIKE."""
    pieces = re.findall(rf"(?s){re.escape(escape)}.|." if escape else "(?s).", pattern)
    parts = [".*" if piece in ("%", "_") else re.escape(piece[-1]) for piece in pieces]
    return "".join(parts)


def _box_leaf(name: str, left: Node, right: Node) -> Leaf | None:
    """A test of a column of geometries against a constant, as one of their boxes."""
    from glaive.expr.functions.geometry import MEETING, bounds_of

    if name not in MEETING:
        return None
    for column, other in ((left, right), (right, left)):
        match column, other:
            case tree.Cast(tree.Column(path), GeometryType()), Literal() if not other.is_null:
                bounds = bounds_of(other.scalar(), name)
                return None if bounds is None else Leaf(path, MeetsBox(bounds))
    return None


def _labels(values: Any, *, every: bool) -> HasLabels | None:
    known = len(values) > 0 and not values.null_count and not pa.types.is_nested(values.type)
    return HasLabels(values, every) if known else None


def _json_leaf(node: Node) -> Leaf | None:
    """A test on ``json_get_int(column, 'path')`` and its like."""
    for part in tree.walk(node):
        match part:
            case tree.Call(name, (tree.Column(path), Literal(str() as json_path)), kind) if (
                name.startswith("json_get_") and kind is not None
            ):
                test = one_column(_replaced(node, part, tree.Column(path, kind)))
                return None if test is None else Leaf(*test, json_path)
    return None


def _replaced(node: Any, part: Node, column: tree.Column) -> Node:
    """A comparison with the column in place of one of its operands."""
    from dataclasses import fields, replace

    values = {field.name: getattr(node, field.name) for field in fields(node)}
    changed = {name: column for name, value in values.items() if value is part}
    result: Node = replace(node, **changed) if changed else node
    return result
