"""Syntax trees and comments of sources: the tests of rules look at all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from tools.weight import TEXT_OR_COMMENT


@lru_cache(maxsize=2)
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source, as ``ast.walk`` does, which takes three times as long."""
    return tuple(walk(ast.parse(source)))


def walk(node: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, without the contexts of names."""
    found = [node]
    for one in found:
        for value in vars(one).values():
            if isinstance(value, list):
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                found.append(value)
    return found


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a source with their lines."""
    line, at = 1, 0
    for found in TEXT_OR_COMMENT.finditer(source):
        if found[0].startswith("#"):
            line += source.count("\n", at, found.start())
            at = found.start()
            yield line, found[0]
