"""Simulated schedules of writers and readers; ``make nightly`` runs many more of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCHEDULES, AT_ONCE = 10_000, 2_500


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
@pytest.mark.parametrize("first", range(0, SCHEDULES, AT_ONCE))
def test_every_history_follows_the_rules(first: int) -> None:
    status, report = simulate("--first", first, "--schedules", AT_ONCE)
    assert report["found"] == []
    assert status == 0
    assert report["schedules"] == AT_ONCE
    # Everything happened, and each in every way that it can end.
    kinds = {name.split(":")[0] for name in report["outcomes"]}
    assert kinds >= {"append", "delete", "update", "upsert", "clean-up", "restore", "read", "tag"}
    for kind in ("append", "delete", "update", "upsert", "same rows"):
        for outcome in ("done", "refused", "unknown"):
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
