"""The Python blocks of README, start page and guide run, in order, in an empty folder.

After ``python`` the opening line may say ``spark`` (runs with the Spark tests) or
``no-run: reason``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]
FIRST = ("README.md", "spark.md")
"""Pages whose examples on Spark run for every pull request: ``tests/spark/test_first_steps.py``."""
BLOCK = re.compile(r"^```(\w+)?[ ]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    page: Path
    line: int
    mark: str
    code: str


def examples(page: Path) -> list[Example]:
    text = page.read_text("utf-8")
    return [
        Example(page, text[: match.start()].count("\n") + 2, match[2].strip(), match[3])
        for match in BLOCK.finditer(text)
        if match[1] == "python"
    ]


def run(page: Path, mark: str) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for example in examples(page):
        if example.mark == mark:
            # Empty lines in front: a traceback shows the line of the page.
            code = compile("\n" * (example.line - 1) + example.code, str(page), "exec")
            exec(code, names)


def pages(mark: str) -> list[Path]:
    return [page for page in PAGES if any(one.mark == mark for one in examples(page))]


def run_on_spark(chosen: list[Path], folder: Path) -> None:
    """Run the examples of pages on Spark, which starts in the folder."""
    # In a process of their own: relative paths count from where Spark was started.
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom tests.docs import test_examples as t\n"
    )
    script += "for page in sys.argv[2:]: t.run(t.Path(page), 'spark')"
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT), *map(str, chosen)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("page", pages(""), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, "")


@pytest.mark.spark
@pytest.mark.nightly(reason="starts Spark for its pages")
@pytest.mark.parametrize("first", [True, False], ids=["first-pages", "others"])
def test_spark_examples_run(tmp_path: Path, first: bool) -> None:
    chosen = [page for page in pages("spark") if (page.name in FIRST) == first]
    assert chosen
    run_on_spark(chosen, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_that_do_not_run_say_why(page: Path) -> None:
    for example in examples(page):
        assert example.mark in {"", "spark"} or re.match(r"no-run: \w+", example.mark), (
            f"{page.name}:{example.line}: write ```python, ```python spark or "
            "```python no-run: reason"
        )
