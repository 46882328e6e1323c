"""Simulated schedules of writers and readers; ``make nightly`` runs many more of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kit.simulated_bucket import Bucket
from tests.kit.simulation import Faults
from tests.proof.simulated.changes import Change
from tests.proof.simulated.history import History, OutsideOfAssumptionsError
from tests.proof.simulated.places import Place
from tests.proof.simulated.tables import SHARES
from tests.trials import trials

from glaive.format.paths import manifest_path

WHOLE = 1_500
SCHEDULES = min(trials(3_000), WHOLE)
"""Half in a pull request: with half, a change that forgets a conflict of deletes fails."""

RARE = {("update", "refused")}
"""What a thousand schedules have once: only the whole run has to have it."""


def simulate(*options: object) -> tuple[int, dict[str, Any]]:
    """Exit status and report of ``tests.proof.simulate``."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.proof.simulate", *map(str, options)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.spec("rel-1", "rel-2", "rel-3", "rel-4", "rel-5", "rel-6", "rel-7", "rel-9", "rel-10")
@pytest.mark.spec("rel-11", "rel-12", "rel-14", "rel-15")
def test_every_history_follows_the_rules() -> None:
    status, report = simulate("--schedules", SCHEDULES)
    assert report["found"] == []
    assert status == 0
    assert report["schedules"] == SCHEDULES
    assert report["outside"] <= SCHEDULES / 500
    assert set(report["tables"]) == {"plain", *SHARES}
    # Everything happened, and each in every way that it can end.
    kinds = {name.split(":")[0] for name in report["outcomes"]}
    assert kinds >= {"append", "delete", "update", "upsert", "clean-up", "restore", "read", "tag"}
    assert kinds >= {
        "add column",
        "cast column",
        "clone",
        "drop column",
        "rename column",
        "publish",
    }
    rows = ("append", "delete", "update", "upsert", "prune")
    for kind in (*rows, "same rows", "add column", "update column"):
        for outcome in ("done", "refused", "unknown"):
            if SCHEDULES == WHOLE or (kind, outcome) not in RARE:
                assert report["outcomes"][f"{kind}: {outcome}"] > 0, (kind, outcome)


@pytest.mark.slow
def test_a_seed_replays_its_schedule_wherever_it_runs() -> None:
    _, together = simulate("--schedules", 12)
    _, alone = simulate("--seed", 11)
    _, shared = simulate("--first", 6, "--schedules", 6, "--workers", 2)
    assert alone["digests"] == together["digests"][11:]
    assert shared["digests"] == together["digests"][6:]
    assert len(set(together["digests"])) == 12


@pytest.mark.slow
def test_a_store_that_overwrites_is_found_out_and_the_seed_is_told() -> None:
    status, report = simulate("--schedules", 300, "--careless", "--most-found", 1)
    assert status == 1
    (found,) = report["found"]
    assert "were replaced by other objects" in found
    (command,) = report["repeat"]
    seed = found.split(":")[0].removeprefix("seed ")
    assert command == f"python -m tests.proof.simulate --seed {seed}"
    _, again = simulate("--seed", seed, "--careless")
    assert again["found"] == [found]


def history_of(bucket: Bucket) -> History:
    return History(Place(bucket), [], 1, Faults())


@pytest.mark.parametrize(
    ("version", "began", "deleted", "content", "outside"),
    [
        (1, 4.0, True, b"second", True),
        (1, 4.0, True, b"first", True),  # the same request, which is carried out once more
        (1, 5.5, True, b"second", False),  # it began later, and should have seen version 2
        (1, 5.5, True, b"first", False),
        (2, 4.0, True, b"second", False),  # nobody may delete the newest version
        (1, 4.0, False, b"second", False),  # a store that overwrites
    ],
)
def test_only_a_number_that_a_clean_up_freed_under_a_writer_is_outside_of_what_is_assumed(
    version: int, began: float, deleted: bool, content: bytes, outside: bool
) -> None:
    bucket = Bucket("memory://simulated/again", careless=True)
    for number in (1, 2):
        bucket.put(manifest_path(number), b"first", "create", 0.0)
    if deleted:
        bucket.delete(manifest_path(version), 5.0)
    late = Change(1, "append", lambda _, __: None, first_began=began)
    bucket.put(manifest_path(version), content, "create", 6.0, late)
    with pytest.raises(OutsideOfAssumptionsError if outside else AssertionError):
        history_of(bucket)


def test_a_version_that_two_processes_finished_is_judged_as_any_other() -> None:
    bucket = Bucket("memory://simulated/finished")
    for number in (1, 2):
        bucket.put(manifest_path(number), b"first", "create", 0.0)
    late = Change(1, "append", lambda _, __: None, first_began=4.0)
    bucket.put(manifest_path(1), b"first", "overwrite", 4.5, late)
    bucket.delete(manifest_path(1), 5.0)
    bucket.put(manifest_path(1), b"first", "overwrite", 6.0, late)
    with pytest.raises(OutsideOfAssumptionsError):
        history_of(bucket)
