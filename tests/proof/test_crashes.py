"""A writer that is killed at any moment leaves the last version, and files that can be removed."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kit.crashes import killed_after, left_by_kills
from tests.kit.model import made_rows, sorted_rows

import glaive
from glaive.dataset.dataset import LanceDataset

from .changes import CHANGES, Change

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

OPERATIONS: dict[str, Change] = {
    **CHANGES,
    "add columns": lambda at: at.add_columns({"more": "number * 2"}),
    "clean up": lambda at: at.cleanup_old_versions(timedelta(0), delete_unverified=True),
}


def opened(place: Path) -> LanceDataset:
    """The dataset, without waiting for a disk: a killed process loses nothing it wrote."""
    return glaive.dataset(place, storage_options={"fsync": "false"})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions: rows in four fragments, some of them deleted."""
    place = tmp_path_factory.mktemp("base") / "t"
    dataset = glaive.write_dataset(made_rows(range(30), 1), place, max_rows_per_file=10)
    dataset.insert(made_rows(range(30, 40), 1))
    dataset.delete("id % 10 = 1")
    return place


def carry_out(operation: Change, place: Path) -> None:
    operation(opened(place))


def files_of(place: Path) -> set[str]:
    return {one.relative_to(place).as_posix() for one in place.rglob("*") if one.is_file()}


def check_what_is_left(place: Path, told: object) -> None:
    """All versions can be read, writing goes on, and what no version has can be removed."""
    for one in opened(place).versions():
        version = opened(place).checkout_version(one["version"])
        assert version.to_table().num_rows == version.count_rows(), told
    dataset = opened(place)
    dataset.insert(made_rows([1000], 1).select(["id"]))
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    tracked = set(dataset.tracked_files().read_all()["path"].to_pylist())
    tracked.add("_versions/latest_version_hint.json")
    assert files_of(place) == tracked, told
    assert 1000 in dataset.to_table()["id"].to_pylist()


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-17")
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_writer_killed_at_every_step(
    base: Path, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    operation, before = OPERATIONS[name], sorted_rows(opened(base).to_table())
    clean = tmp_path / "clean"
    shutil.copytree(base, clean)
    operation(opened(clean))
    after = sorted_rows(opened(clean).to_table())
    begun = shutil.copytree(base, tmp_path / "begun")
    left = left_by_kills(begun, partial(carry_out, operation, begun), tmp_path / "left")
    for step, place in enumerate(left, 1):
        found = sorted_rows(opened(place).to_table())
        assert found in (before, after), step
        if step < len(left):
            check_what_is_left(place, step)
    assert found == after
    assert len(left) > 1
    record_property("crash points", len(left) - 1)


@pytest.mark.spec("rel-17")
def test_a_writer_killed_at_random_moments(base: Path, tmp_path: Path) -> None:
    place = tmp_path / "t"
    shutil.copytree(base, place)
    chance = random.Random(7)

    def write() -> None:
        dataset = opened(place)
        for number in range(10_000):
            first = 10_000 + 10 * (number + 1_000 * dataset.version)
            dataset.insert(made_rows(range(first, first + 10), 1))
            dataset.update({"text": "'new'"}, f"id >= {first} AND id < {first + 5}")
            dataset.delete(f"id = {first + 7}")
            if number % 3 == 2:
                dataset.optimize.compact_files()

    for _ in range(8):
        assert killed_after(write, chance.uniform(0.02, 0.25))
        dataset = opened(place)
        ids: list[Any] = dataset.to_table()["id"].to_pylist()
        assert len(ids) == len(set(ids)) == dataset.count_rows()
        # Whole versions only: ten rows, or nine once one was deleted.
        counts: dict[int, int] = {}
        for number in ids:
            if number >= 10_000:
                counts[number // 10] = counts.get(number // 10, 0) + 1
        assert set(counts.values()) <= {9, 10}
        assert sum(count == 10 for count in counts.values()) <= 8
        told: list[Any] = dataset.versions()
        assert [one["version"] for one in told] == list(range(1, dataset.version + 1))
    check_what_is_left(place, "at the end")
