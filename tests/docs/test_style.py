"""Texts follow the style rule of ``CONTRIBUTING.md``: budgets of patterns that only fall."""

from __future__ import annotations

import subprocess
from collections import Counter
from functools import cache
from statistics import median

import pytest
from tests.docs import style

BUDGET: dict[str, dict[str, int]] = {
    "docstrings": {"long": 14},
    "comments": {"long": 52},
    "errors": {"is none": 2, "long": 8},
}
"""Findings allowed by kind of text and pattern, 0 where absent. Lower them as texts improve."""

FEW = {"stand-ins": 5, "nor, but for, of which": 4, "free subjects": 2}
LIMITS = {
    "notices": {"negations": 120, **FEW},
    "guides": {"negations": 80, **FEW},
    "docstrings": {"negations": 60, **FEW},
}
"""Figures per 10,000 words."""


@cache
def counted() -> dict[str, Counter[str]]:
    return style.counts()


@pytest.mark.parametrize("kind", [*style.KINDS, *style.IN_CODE])
def test_texts_say_it_plainly(kind: str) -> None:
    found, budget = counted()[kind], BUDGET.get(kind, {})
    over = {
        name: f"{found[name]}, allowed {budget.get(name, 0)}"
        for name in (*style.PATTERNS, *style.OTHERS)
        if found[name] > budget.get(name, 0)
    }
    assert not over, (
        f"{kind}: {over}. `python -m tests.docs.style FILE` shows the findings in your files; "
        "the style rule in CONTRIBUTING.md says what to write instead"
    )


@pytest.mark.parametrize("kind", LIMITS)
def test_texts_for_users_are_as_plain_as_others_of_the_field(kind: str) -> None:
    rates = style.rates(counted()[kind])
    over = {name: rates[name] for name, limit in LIMITS[kind].items() if rates[name] > limit}
    assert not over, f"per 10,000 words, over {LIMITS[kind]}"


def test_the_linter_finds_what_the_rule_forbids() -> None:
    bad = (
        "Who writes waits. Nor is it one that those of others need, but for a file of which "
        "the end lies behind it. There are none."
    )
    found = {name for name, _ in style.findings(bad)}
    assert found >= {*style.PATTERNS, "negations"}
    good = "Writes follow symlinked folders. What does glaive check? It checks `nor` files."
    assert list(style.findings(style.plain(good))) == []


def test_the_notices_are_short() -> None:
    """SECURITY.md and reliability.md are read once, by people in a hurry."""
    lengths = [
        len(style.plain(path.read_text("utf-8")).split()) for path in style.documents("notices")
    ]
    assert lengths[0] <= 700
    assert lengths[1] <= 1800


def test_subjects_of_commits_fit_in_a_line() -> None:
    """Of the last hundred: half have at most 60 characters, and all but a few 72."""
    log = ["git", "log", "-100", "--no-merges", "--format=%s"]
    done = subprocess.run(log, cwd=style.ROOT, capture_output=True, text=True, check=False)
    lengths = [len(subject) for subject in done.stdout.splitlines()]
    if not lengths:
        pytest.skip("no history: an archive of the source")
    assert median(lengths) <= 60
    assert sum(length > 72 for length in lengths) <= 5
