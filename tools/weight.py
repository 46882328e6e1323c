"""Count the code lines of each package of glaive, as the budgets in ``weight.toml`` count them.

A code line has a token other than comments, blanks and docstrings. Modules that protoc wrote do
not count. ``python tools/weight.py`` prints the table.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "glaive"

TEXT_OR_COMMENT = re.compile(
    r"""('{3}|"{3})(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*""", re.DOTALL
)
"""A comment is what begins with # outside of a text. ``tokenize`` takes ten times as long."""

_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def code_lines(source: str) -> int:
    """Return the number of lines with code."""
    without = TEXT_OR_COMMENT.sub(_as_code, source).split("\n")
    found = {number for number, line in enumerate(without, 1) if line.strip()}
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    statements: list[ast.AST] = [ast.parse(source)]
    for node in statements:
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            found -= set(range(first.lineno, (first.end_lineno or 0) + 1))
        for name in _BODIES:
            statements += getattr(node, name, ())
    return len(found)


def _as_code(found: re.Match[str]) -> str:
    """Return nothing for a comment, and a name in each line of a text."""
    return "" if found[0].startswith("#") else "x\n" * found[0].count("\n") + "x"


@cache
def modules() -> dict[Path, int]:
    """Return the code lines of each module."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)
    return {path: code_lines(path.read_text("utf-8")) for path in paths}


def packages() -> Counter[str]:
    """Return the code lines of each package; modules of the root are one, ``root``."""
    found: Counter[str] = Counter()
    for path, lines in modules().items():
        parts = path.relative_to(PACKAGE).parts
        found[parts[0] if len(parts) > 1 else "root"] += lines
    return found


def main() -> None:
    """Print packages, then modules."""
    lines = packages()
    for name, count in lines.most_common():
        print(f"{name:12} {count:7}")
    sizes = modules().values()
    print(f"{sum(sizes)} code lines, {len(sizes)} modules, {sum(n < 40 for n in sizes)} below 40")


if __name__ == "__main__":
    main()
