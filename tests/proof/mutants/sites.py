"""Small changes of the source that a test should notice, each at one place."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

SWAPPED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
"""Operators, and what each is replaced by."""

UNHEARD = ("warn", "warning", "debug", "info", "error", "log")
"""Methods that write a log."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: the characters from ``start`` to ``end`` become ``text``."""

    path: str
    scope: str
    """Function or class, dotted."""
    line: int
    kind: str
    start: int
    end: int
    text: str
    before: str
    nth: int
    """How many equal changes the scope has before it."""

    @property
    def key(self) -> str:
        """Names the mutant as long as its function says the same, wherever in the file it is."""
        return f"{self.path}:{self.scope}: {self.before} -> {self.text} ({self.nth})"

    @property
    def rank(self) -> str:
        """Where it comes in the sample: neither its neighbours nor time move it."""
        return hashlib.sha256(self.key.encode()).hexdigest()

    def applied(self, source: str) -> str:
        """The source with the change."""
        return source[: self.start] + self.text + source[self.end :]


class _Sites(ast.NodeVisitor):
    """Collects the places of one file."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.lines = lines
        self.scopes: list[ast.AST] = []
        self.found: list[Mutant] = []
        self.seen: Counter[tuple[str, str, str]] = Counter()

    def at(self, line: int, column: int) -> int:
        """The character of a line and a column in bytes."""
        text = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(text)

    def begin(self, node: ast.AST) -> int:
        return self.at(node.lineno, node.col_offset)  # type: ignore[attr-defined]  # has a place

    def end(self, node: ast.AST) -> int:
        return self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]  # same

    def add(self, node: ast.AST, kind: str, start: int, end: int, text: str) -> None:
        if not self.scopes:  # constants of modules are what tests compare with
            return
        scope = ".".join(one.name for one in self.scopes)  # type: ignore[attr-defined]  # has a name
        before = self.source[start:end]
        same = (scope, before, text)
        line = self.source.count("\n", 0, start) + 1
        self.found.append(
            Mutant(self.path, scope, line, kind, start, end, text, before, self.seen[same])
        )
        self.seen[same] += 1

    # ------------------------------------------------------------------ where

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == "__repr__":
            return
        self.scopes.append(node)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scopes.append(node)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self.visit(statement)
        self.scopes.pop()

    def visit_Raise(self, node: ast.Raise) -> None:
        """The error is dropped; what it says is not changed."""
        self.add(node, "no error", self.begin(node), self.end(node), "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Says something to type checkers."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are not changed."""

    # ------------------------------------------------------------------- what

    def between(self, left: ast.AST, right: ast.AST, operator: ast.AST, kind: str) -> None:
        """Replace the operator between two operands."""
        old, new = SWAPPED.get(type(operator), ("", ""))
        if not old:
            return
        first, last = self.end(left), self.begin(right)
        gap = self.source[first:last]
        if gap.count(old) != 1 or "#" in gap:
            return
        start = first + gap.index(old)
        self.add(left, kind, start, start + len(old), new)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self.between(left, right, operator, "comparison")
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)):
            self.between(node.left, node.right, node.op, "arithmetic")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if len(node.values) == 2:
            self.between(node.values[0], node.values[1], node.op, "and, or")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.add(node, "not", self.begin(node), self.begin(node.operand), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add(node, "constant", self.begin(node), self.end(node), str(not value))
        elif isinstance(value, int):
            self.add(node, "constant", self.begin(node), self.end(node), str(value + 1))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.between(node.target, node.value, node.op, "arithmetic")
        self.drop(node)
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        call = node.value
        method = call.func if isinstance(call, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in UNHEARD:
            return
        self.drop(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Subscript | ast.Attribute) for target in node.targets):
            self.drop(node)
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        start, end = self.begin(test), self.end(test)
        if not isinstance(test, ast.Compare | ast.UnaryOp):  # those are changed themselves
            self.add(node, "condition", start, end, f"not ({self.source[start:end]})")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.add(node, "loop", self.begin(node), self.end(node), "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "loop", self.begin(node), self.end(node), "break")

    def drop(self, node: ast.stmt) -> None:
        self.add(node, "statement", self.begin(node), self.end(node), "pass")


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a module, in order.

    Parameters
    ----------
    path
        Its name, as the keys of the mutants have it.
    source
        Its text.
    """
    sites = _Sites(path, source)
    sites.visit(ast.parse(source))
    return sites.found


def sample(root: Path, folders: Sequence[str], size: int) -> list[Mutant]:
    """The mutants of lowest rank: always the same ones, equally many of each folder.

    Sorted so that the first ones are a fair sample, too.
    """
    found = []
    for folder in folders:
        paths = sorted(path for path in (root / folder).rglob("*.py") if "_pb2" not in path.name)
        mutants = [
            mutant
            for path in paths
            for mutant in mutants_of(path.relative_to(root).as_posix(), path.read_text("utf-8"))
        ]
        found.append(sorted(mutants, key=lambda mutant: mutant.rank))
    rounds = zip_longest(*(each[: -(-size // len(folders))] for each in found))
    return [mutant for each in rounds for mutant in each if mutant is not None][:size]
