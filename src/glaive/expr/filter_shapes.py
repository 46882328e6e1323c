"""Filters that differ in their constants only: names are bound and trees simplified once.

The shape of a text is the text with a mark in place of each integer and each string. Texts
of one shape have the same tokens but for the values of these, and so the same tree. A shape is
kept if each of its constants is compared with a column, as it is written: then other constants
take their place in the simplified tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from glaive.expr import tree
from glaive.expr.constants import as_column
from glaive.expr.tree import Literal, Node
from glaive.named_tuple import NamedTuple

__all__ = ["FilterShapes"]

_CONSTANT: Final = re.compile(r"'[^']*'|(?<![\w.])[0-9]{1,18}(?![\w.])")
"""A string without quotes in it, or an integer that is no part of another token."""

_MAX_SHAPES: Final = 64
"""Shapes kept; beyond, all are let go."""

_MAX_TEXT: Final = 4096
"""Characters of a text whose shape is looked for."""

_MARK: Final = "\0"
"""Begins what stands for a constant. A text that has it, as in a name of a column, has no shape."""


class _Shape(NamedTuple):
    """A text without its constants, and these: their places, and values by place."""

    text: str
    places: tuple[int, ...]
    constants: Mapping[int, Literal]


class _Template(NamedTuple):
    """A simplified tree, and the places of its constants in the text that it was made of."""

    node: Node
    places: tuple[int, ...]


class FilterShapes:
    """Simplified trees of filters of one schema, by the shape of their text. Bounded.

    Threads may share one.
    """

    def __init__(self) -> None:
        self._templates: dict[str, _Template | None] = {}

    def filled(self, text: str) -> Node | None:
        """The bound and simplified tree of a text; None if no like of it is kept."""
        if not self._templates or not _has_shape(text):
            return None
        shape = _shape_of(text)
        template = self._templates.get(shape.text)
        if template is None:
            return None
        constants = shape.constants
        by_place = {
            old: constants[new] for old, new in zip(template.places, shape.places, strict=True)
        }
        return _filled(template.node, by_place)

    def keep(self, text: str, node: Node) -> None:
        """Keep the simplified tree of a text, if other constants can take the place of its own."""
        if not _has_shape(text):
            return
        shape = _shape_of(text)
        if len(self._templates) >= _MAX_SHAPES:
            self._templates.clear()
        written = [
            (literal.at, type(literal.value), literal.value) for literal in _compared(node) or ()
        ]
        wanted = [(at, type(one.value), one.value) for at, one in shape.constants.items()]
        same = bool(written) and sorted(written, key=_place) == wanted
        self._templates[shape.text] = _Template(node, shape.places) if same else None


def _place(constant: tuple[int, type, object]) -> int:
    return constant[0]


def _has_shape(text: str) -> bool:
    return len(text) <= _MAX_TEXT and _MARK not in text


def _shape_of(text: str) -> _Shape:
    constants: dict[int, Literal] = {}
    parts, end = [], 0
    for match in _CONSTANT.finditer(text):
        raw, at = match.group(), match.start()
        is_text = raw[0] == "'"
        parts += [text[end:at], _MARK, "s" if is_text else "n"]
        constants[at] = (
            Literal(raw[1:-1], pa.string(), at=at)
            if is_text
            else Literal(int(raw), pa.int64(), at=at)
        )
        end = match.end()
    return _Shape("".join([*parts, text[end:]]), tuple(constants), constants)


def _compared(node: Node) -> list[Literal] | None:
    """The constants of tests that compare columns with them; None if there are others."""
    match node:
        case tree.And(operands):
            found = [_compared(operand) for operand in operands]
            known = [literals for literals in found if literals is not None]
            if len(known) == len(found):
                return [literal for literals in known for literal in literals]
        case tree.Compare(_, tree.Column(), Literal() as right):
            return [right]
        case tree.InList(tree.Column(), tuple() as items):
            literals = [item for item in items if isinstance(item, Literal)]
            return literals if len(literals) == len(items) else None
    return [] if _is_without_constants(node) else None


def _is_without_constants(node: Node) -> bool:
    return not any(isinstance(part, Literal) for part in tree.walk(node))


def _filled(node: Node, constants: Mapping[int, Literal]) -> Node | None:
    """A tree with other constants; None if one does not fit its column, or is there twice."""
    match node:
        case tree.And(operands):
            found = [_filled(operand, constants) for operand in operands]
            kept = tuple(operand for operand in found if operand is not None)
            return tree.And(kept, at=node.at) if len(kept) == len(found) else None
        case tree.Compare(op, tree.Column() as left, Literal() as right):
            fitted = as_column(constants[right.at], right.type)
            return None if fitted is None else tree.Compare(op, left, fitted, at=node.at)
        case tree.InList(operand, items, negated):
            fitting = tuple(_fitting(items, constants))
            if len({literal.value for literal in fitting}) == len(items):
                return tree.InList(operand, fitting, negated, at=node.at)
            return None
    return node


def _fitting(items: object, constants: Mapping[int, Literal]) -> Iterator[Literal]:
    for item in items if isinstance(items, tuple) else ():
        fitted = as_column(constants[item.at], item.type)
        if fitted is not None:
            yield fitted
