"""Figures of trust: kept by the runs that measure them, shown on one page of the documentation.

A run keeps its figures in ``.cache/figures``. ``make figures`` takes them into ``docs/figures``,
with those of ``make coverage`` and ``make fuzz``, and writes ``docs/figures.md`` of all that is
there. What no run has measured is said to be missing.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
RUNS = ROOT / ".cache" / "figures"
TAKEN = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "figures.md"
TARGET = "fuzz-"
"""What names of runs begin with that fuzz one target."""

Figures = Mapping[str, Any]
HEAD = """# Figures

This page shows the results of runs that look for mistakes in glaive. [Reliability](reliability.md)
says what the tests check. The column *command* has the command that repeats a run. `make figures`
writes this page. Other pages show speed: [benchmark](figures-benchmark.md),
[vector indices](figures-vectors.md), [Spark](figures-spark.md).
"""


def keep(name: str, values: Figures, when: float | None = None) -> None:
    """Keep the figures of a run, in place of those of the last one of that name.

    Parameters
    ----------
    name
        Of the run.
    values
        What it measured.
    when
        Seconds since 1970; now, if it is None.
    """
    RUNS.mkdir(parents=True, exist_ok=True)
    measured = time.strftime("%Y-%m-%d", time.gmtime(when))
    text = json.dumps({"measured": measured, **values}, indent=1, sort_keys=True)
    (RUNS / f"{name}.json").write_text(f"{text}\n", "utf-8")


def kept(name: str) -> dict[str, Any]:
    """The figures of the last run of a name, here or as they were taken; none: empty."""
    for folder in (RUNS, TAKEN):
        path = folder / f"{name}.json"
        if path.exists():
            found: dict[str, Any] = json.loads(path.read_text("utf-8"))
            return found
    return {}


# ------------------------------------------------------------------ what was run, and its words

ROWS: list[tuple[str, str, str, Callable[[Figures], str]]] = [
    (
        "tests",
        "tests",
        "make coverage",
        lambda it: (
            f"{it['passed']:,} of {it['tests']:,} passed; {it['left_out']:,} more were skipped"
        ),
    ),
    (
        "assertions in tests",
        "sources",
        "make figures",
        lambda it: f"{it['assertions']:,} in {it['test_files']:,} files of tests",
    ),
    (
        "branches of the source code that the tests take",
        "branches",
        "make coverage",
        lambda it: f"{it['share']:.1%} of {it['branches']:,} branches",
    ),
    (
        "simulated writers, whose requests run in many orders",
        "simulation",
        "make simulate",
        lambda it: (
            f"{it['schedules']:,} orders, with {it['requests']:,} requests and "
            f"{it['versions']:,} versions; {_findings(it)}"
        ),
    ),
    (
        "reads of damaged files and datasets",
        "damage",
        "python -m tests.proof.fuzz",
        lambda it: f"{it['trials']:,}; {_findings(it)}",
    ),
    (
        "moments at which tests kill a process",
        "points",
        "make coverage",
        lambda it: f"{it['crash points']:,}",
    ),
    (
        "faults of requests in tests: a failure, a lost answer, a delay or a repetition",
        "points",
        "make coverage",
        lambda it: f"{it['fault points']:,}",
    ),
    ("simulated power failures", "points", "make coverage", lambda it: f"{it['power failures']:,}"),
    (
        "simulated errors of the operating system",
        "points",
        "make coverage",
        lambda it: f"{it['system errors']:,}",
    ),
    (
        "mutants (small wrong changes) of `table/`, `format/` and `kernels/` that tests notice",
        "mutants",
        "make mutants",
        lambda it: (
            f"{it['killed']:,} of {it['mutants']:,} ({it['killed'] / it['mutants']:.0%}), without "
            f"{it['equivalent']:,} that behave like the original code"
        ),
    ),
    (
        "mixed work without a pause",
        "soak",
        "make soak",
        lambda it: (
            f"{it['minutes']:,} minutes, {it['changes']:,} changes, {it['reads']:,} reads and "
            f"searches; {_findings(it)}"
        ),
    ),
]
"""Lines of the page: what it is, name of the run, how to repeat it, and the figures in words."""


def _findings(figures: Figures) -> str:
    found = len(figures["found"])
    return "0 findings" if not found else f"{found} finding{'s' * (found > 1)}"


def page(runs: Mapping[str, Figures], targets: Mapping[str, Figures]) -> str:
    """The text of the page.

    Parameters
    ----------
    runs
        Figures by the name of their run.
    targets
        Those of fuzzing, by target; with None for one that was not measured.
    """
    lines = [HEAD, "| what | result | date | command |", "|---|---|---|---|"]
    notes = []
    for what, name, command, words in ROWS:
        figures = runs.get(name)
        told, day = ("not measured", "–") if figures is None else _told(words, figures)
        lines.append(f"| {what} | {told} | {day} | `{command}` |")
        added = [] if figures is None else figures.get("notes", [])
        notes += [f"- `{command}`: {note}" for note in added]
    if notes:
        lines += ["", "Notes:", "", *notes]
    lines += [
        "",
        "## Fuzzing guided by coverage",
        "",
        "A target is a reader of bytes or text. The fuzzer changes its input at random, and keeps",
        "inputs that reach new edges: steps from one line of Python to another.",
        "",
        "| target | inputs tried | edges reached | seconds of the run | date |",
        "|---|---|---|---|---|",
    ]
    for name, figures in sorted(targets.items()):
        if not figures:
            lines.append(f"| {name} | not measured | – | – | – |")
            continue
        lines.append(
            f"| {name} | {figures['executions']:,} | {figures['edges']:,} | "
            f"{figures['seconds']:,} | {figures['measured']} |"
        )
    return "\n".join(lines) + "\n"


def _told(words: Callable[[Figures], str], figures: Figures) -> tuple[str, str]:
    try:
        return words(figures), str(figures["measured"])
    except KeyError:  # a run of some of the tests
        return "not measured", "–"


# ------------------------------------------------------------------------- figures of pytest

POINTS = ("crash points", "fault points", "power failures", "system errors")
"""What tests record of these; other properties of tests are no counts."""


def of_tests(report: Path) -> tuple[Figures, Figures]:
    """Counts of a report of pytest, and what its tests recorded: points where something failed."""
    suites = ET.parse(report).getroot()
    totals: Counter[str] = Counter()
    points: Counter[str] = Counter()
    for suite in suites.iter("testsuite"):
        for name in ("tests", "failures", "errors", "skipped"):
            totals[name] += int(suite.get(name, "0"))
    for found in suites.iter("property"):
        if (name := found.get("name", "")) in POINTS:
            points[name] += int(found.get("value", "0"))
    failed = totals["failures"] + totals["errors"]
    counts = {
        "tests": totals["tests"] - totals["skipped"],
        "passed": totals["tests"] - totals["skipped"] - failed,
        "left_out": totals["skipped"],
    }
    return counts, points


def of_branches(path: Path) -> Figures:
    """Branches of the library, and the share that was taken, of a report of coverage."""
    totals = json.loads(path.read_text("utf-8"))["totals"]
    branches = totals["num_branches"]
    return {"branches": branches, "share": totals["covered_branches"] / branches}


def of_sources() -> Figures:
    """Files of tests, and assertions in them: ``assert``, ``expect`` and expected errors."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    assertions = 0
    for path in (*paths, *(ROOT / "tests" / "proof" / "simulated").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = ""
            if isinstance(node, ast.Call):
                called = node.func
                name = getattr(called, "attr", getattr(called, "id", ""))
            assertions += isinstance(node, ast.Assert) or name in (
                "raises",
                "expect",
                "expect_equal",
            )
    return {"test_files": len(paths), "assertions": assertions}


def of_fuzzing(log: str) -> Figures:
    """What libFuzzer says at its end; nothing of a run that did not end."""
    runs = re.search(r"^Done (\d+) runs in (\d+) second", log, re.MULTILINE)
    edges = re.findall(r" cov: (\d+) ft:", log)
    if runs is None or not edges:
        return {}
    return {"executions": int(runs[1]), "seconds": int(runs[2]), "edges": int(edges[-1])}


# ---------------------------------------------------------------------------------- the page


def taken(folder: Path = TAKEN) -> dict[str, Figures]:
    """Figures by the name of their run."""
    paths = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text("utf-8")) for path in paths}


def written(targets: list[str]) -> str:
    """The page of the figures that were taken."""
    runs = taken()
    return page(runs, {target: runs.get(TARGET + target, {}) for target in targets})


def main() -> None:
    from tests.proof.coverage_targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    cache = ROOT / ".cache"
    parser.add_argument("--tests", type=Path, default=cache / "tests.xml", help="of pytest")
    parser.add_argument("--points", type=Path, default=cache / "tests.xml", help="of pytest")
    parser.add_argument("--branches", type=Path, default=cache / "branches.json")
    parser.add_argument("--fuzzing", type=Path, default=cache / "fuzz", help="logs of targets")
    options = parser.parse_args()
    keep("sources", of_sources())
    if options.tests.exists():
        keep("tests", of_tests(options.tests)[0], options.tests.stat().st_mtime)
    if options.points.exists():
        keep("points", of_tests(options.points)[1], options.points.stat().st_mtime)
    if options.branches.exists():
        keep("branches", of_branches(options.branches), options.branches.stat().st_mtime)
    for log in options.fuzzing.glob("*.log"):
        if figures := of_fuzzing(log.read_text("utf-8", "replace")):
            keep(f"{TARGET}{log.stem}", figures, log.stat().st_mtime)
    TAKEN.mkdir(exist_ok=True)
    for path in RUNS.glob("*.json"):
        (TAKEN / path.name).write_bytes(path.read_bytes())
    PAGE.write_text(written(list(TARGETS)), "utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(taken())} runs")


if __name__ == "__main__":
    main()
