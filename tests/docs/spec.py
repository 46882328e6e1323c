"""Rules of ``docs/format``, promises of two pages, and the tests that cite them.

``make spec`` prints the others.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROMISES = [ROOT / "docs" / "reliability.md", ROOT / "SECURITY.md"]
PAGES = [*sorted((ROOT / "docs" / "format").glob("*.md")), *PROMISES]
RULE = re.compile(r"\{#([a-z]+(?:-[a-z]+)*-\d+)\}")


@cache
def rules() -> Counter[str]:
    """Return how often each id is given to a rule; once is right."""
    return Counter(found for page in PAGES for found in RULE.findall(page.read_text("utf-8")))


@cache
def citations() -> dict[str, list[str]]:
    """Return the files that cite an id through ``@pytest.mark.spec``, by id."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for mark in re.findall(r"mark\.spec\(((?:[^()]|\([^()]*\))*)\)", path.read_text("utf-8")):
            for rule in re.findall(r'"([^"]*)"', mark):
                found.setdefault(rule, []).append(path.name)
    return found


def main() -> None:
    """Print the rules that no test cites."""
    cited = citations()
    uncited = [rule for rule in rules() if rule not in cited]
    print(f"{len(cited)} rules are cited by tests, {len(uncited)} are not:")
    print(", ".join(uncited))


if __name__ == "__main__":
    main()
