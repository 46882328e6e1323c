"""Mutants: which changes of a source are tried, and that it is always the same ones."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.proof.mutants.record import EQUIVALENT, Fate, Record
from tests.proof.mutants.sites import mutants_of, sample

import glaive

SOURCE = '''"""Example."""

LIMIT = 3


def kept(values: list[int], *, first: bool = True) -> int:
    """Not 1 + 1."""
    total = 0
    for value in values:
        if not first and value <= LIMIT:
            continue
        total += value
        values[0] = total
    if total > 9:
        raise ValueError(f"{total + 1} is too much")
    return total
'''


def test_each_change_is_one_place_of_a_function_and_stays_python() -> None:
    found = mutants_of("example.py", SOURCE)
    assert [(one.line, one.before, one.text) for one in found] == [
        (6, "True", "False"),
        (8, "0", "1"),
        (10, "not first and value <= LIMIT", "not (not first and value <= LIMIT)"),
        (10, "and", "or"),
        (10, "not ", ""),
        (10, "<=", "<"),
        (11, "continue", "break"),
        (12, "+", "-"),
        (12, "total += value", "pass"),
        (13, "values[0] = total", "pass"),
        (14, ">", ">="),
        (14, "9", "10"),
        (15, 'raise ValueError(f"{total + 1} is too much")', "pass"),
    ]
    for one in found:
        assert ast.dump(ast.parse(one.applied(SOURCE))) != ast.dump(ast.parse(SOURCE))


def test_a_mutant_keeps_its_place_in_the_sample_when_lines_move() -> None:
    moved = "# A line more.\n\n" + SOURCE
    before, after = mutants_of("example.py", SOURCE), mutants_of("example.py", moved)
    assert [one.rank for one in before] == [one.rank for one in after]
    assert len({one.rank for one in before}) == len(before)


def test_the_sample_has_equally_many_of_each_folder() -> None:
    root = Path(glaive.__file__).parent
    chosen = sample(root, ["table", "format"], 60)
    assert [one.path.split("/")[0] for one in chosen[:4]] == ["table", "format"] * 2
    assert len({one.key for one in chosen}) == 60
    assert sample(root, ["table", "format"], 20) == chosen[:20]


def test_fates_are_kept_for_the_next_run() -> None:
    mutants = [one for one in mutants_of("example.py", SOURCE) if one.key not in EQUIVALENT]
    first = Record(mutants, {})
    first.folders.add("table")
    fates: tuple[Fate, ...] = ("killed", "survived", "not reached", "endless", "too slow")
    for mutant, fate in zip(mutants, fates, strict=False):
        first.fates[mutant.key] = fate

    report = first.report()

    assert {name: report[name] for name in ("sample", "tried", "mutants", "killed")} == {
        "sample": len(mutants), "tried": 5, "mutants": 5, "killed": 2,
    }  # fmt: skip
    assert (report["endless"], report["unreached"], report["share"]) == (1, 1, 0.4)
    assert list(report["left"].values()) == ["survived", "not reached", "too slow"]
    assert report["notes"] == ["tried with tests of table only"]
    later = Record(mutants, report)
    assert later.report() == report
    waiting = [one for one in mutants if later.is_open(one, again=False)]
    assert waiting == [mutants[2], *mutants[5:]]
    waiting = [one for one in mutants if later.is_open(one, again=True)]
    assert waiting == [*mutants[1:3], *mutants[4:]]
    # Those that are no longer in the sample are forgotten.
    assert Record(mutants[1:], report).report()["killed"] == 1


def test_each_equivalent_mutant_is_one_of_the_sources() -> None:
    root = Path(glaive.__file__).parent
    paths = {key.partition(":")[0] for key in EQUIVALENT}
    known = {one.key for path in paths for one in mutants_of(path, (root / path).read_text())}
    assert set(EQUIVALENT) <= known
