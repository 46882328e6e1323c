"""Rules of ``docs/format``, promises of two pages, and the tests that cite them.

``make spec`` prints the others.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROMISES = [ROOT / "docs" / "reliability.md", ROOT / "SECURITY.md"]
PAGES = [*sorted((ROOT / "docs" / "format").glob("*.md")), *PROMISES]
RULE = re.compile(r"\{#([a-z]+(?:-[a-z]+)*-\d+)\}")


def rules() -> Counter[str]:
    """Return how often each id is given to a rule; once is right."""
    return Counter(found for page in PAGES for found in RULE.findall(page.read_text("utf-8")))


def citations() -> dict[str, list[str]]:
    """Return the files that cite an id through ``@pytest.mark.spec``, by id."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "spec" and ast.unparse(node.func).endswith("mark.spec"):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        found.setdefault(part.value, []).append(path.name)
    return found


def main() -> None:
    """Print the rules that no test cites."""
    cited = citations()
    uncited = [rule for rule in rules() if rule not in cited]
    print(f"{len(cited)} rules are cited by tests, {len(uncited)} are not:")
    print(", ".join(uncited))


if __name__ == "__main__":
    main()
