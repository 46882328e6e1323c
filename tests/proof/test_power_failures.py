"""What a power failure at any step may leave: nothing is lost that was forced to disk."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.kit.model import made_rows, sorted_rows
from tests.kit.power_failures import Recording, recorded

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE", "fast") != "fast"
TRIALS = 30 if NIGHTLY else 2
"""Power failures at each step."""

Rows = list[dict[str, Any]]
Operation = Callable[[LanceDataset], object]


def clean_up(dataset: LanceDataset) -> object:
    return dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)


OPERATIONS: dict[str, Operation] = {
    "append": lambda at: at.insert(made_rows(range(100, 104), 3), max_rows_per_file=2),
    "delete": lambda at: at.delete("id % 3 = 0"),
    "update": lambda at: at.update({"text": "'new'"}, "id % 4 = 1"),
    "compact": lambda at: at.optimize.compact_files(target_rows_per_fragment=25),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions, all on disk."""
    place = tmp_path_factory.mktemp("base") / "t"
    dataset = glaive.write_dataset(made_rows(range(6), 1), place, max_rows_per_file=3)
    dataset.insert(made_rows(range(6, 9), 1))
    dataset.delete("id = 1")
    return place


@pytest.fixture(scope="module")
def rewritten(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and a version that needs no file of those before."""
    place = tmp_path_factory.mktemp("rewritten") / "t"
    shutil.copytree(base, place)
    rows = glaive.dataset(place).to_table()
    glaive.write_dataset(rows, place, mode="overwrite")
    return place


@dataclass
class Change:
    """A recorded change, and the rows before and after it."""

    recording: Recording
    before: Rows
    after: Rows
    version: int


def recorded_change(base: Path, folder: Path, operation: Operation, *, fsync: bool) -> Change:
    place = folder / "t"
    shutil.copytree(base, place)
    options = {"fsync": str(fsync).lower()}
    before = sorted_rows(glaive.dataset(place).to_table())
    with recorded(str(place)) as recording:
        dataset = glaive.dataset(place, storage_options=options)
        operation(dataset)
    newest = glaive.dataset(place)
    return Change(recording, before, sorted_rows(newest.to_table()), newest.version)


def left(change: Change, base: Path, folder: Path, at: int, trial: int) -> Path:
    place = folder / "after"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(base, place)
    change.recording.leave(place, at, random.Random(f"{at} {trial}"))
    return place


def check_all_is_there(base: Path, folder: Path, operation: Operation) -> int:
    """With ``fsync``: the new version once the change returned; before, one of the two, whole.

    Returns how many failures there were.
    """
    change = recorded_change(base, folder, operation, fsync=True)
    steps = len(change.recording)
    assert steps > 5
    for at in range(steps + 1):
        for trial in range(TRIALS):
            place = left(change, base, folder, at, trial)
            newest = glaive.dataset(place)
            found = sorted_rows(newest.to_table())
            if at == steps:
                assert (newest.version, found) == (change.version, change.after), trial
            assert found in (change.before, change.after), (at, trial)
            for one in newest.versions():
                version = newest.checkout_version(one["version"])
                assert version.to_table().num_rows == version.count_rows(), (at, trial)
    newest.insert(made_rows([1000], 1))
    assert glaive.dataset(place).count_rows("id = 1000") == 1
    return (steps + 1) * TRIALS


@pytest.mark.sampled(every=4)
@pytest.mark.spec("rel-18")
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_was_forced_to_disk_survives(
    base: Path, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    failures = check_all_is_there(base, tmp_path, OPERATIONS[name])
    record_property("power failures", failures)


@pytest.mark.spec("rel-14", "rel-18")
def test_no_version_comes_back_without_its_files(
    rewritten: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("power failures", check_all_is_there(rewritten, tmp_path, clean_up))


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-19")
@pytest.mark.parametrize("name", OPERATIONS)
def test_without_forcing_older_versions_survive(
    base: Path, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    change = recorded_change(base, tmp_path, OPERATIONS[name], fsync=False)
    steps, lost = len(change.recording), 0
    for at in range(steps + 1):
        for trial in range(TRIALS):
            place = left(change, base, tmp_path, at, trial)
            older = glaive.dataset(place, version=3)
            assert sorted_rows(older.to_table()) == change.before, (at, trial)
            found = newest_rows(place)
            lost += found is None or (at == steps and found == change.before)
            assert found in (None, change.before, change.after), (at, trial)
    assert lost, "the failures were too gentle: nothing was ever lost"
    record_property("power failures", (steps + 1) * TRIALS)


def newest_rows(place: Path) -> Rows | None:
    """The rows of the newest version; ``None`` if it is damaged, and an error names its file."""
    try:
        return sorted_rows(glaive.dataset(place).to_table())
    except GlaiveError as error:
        message = str(error)
    assert str(place) in message
    return None
