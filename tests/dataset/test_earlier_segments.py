"""Segments of an index that workers built before others changed what they cover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CommitConflictError

ROWS = pa.table({"id": range(6), "x": range(6)})


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    made = glaive.write_dataset(ROWS.select(["id"]), tmp_path / "t", max_rows_per_file=3)
    made.add_columns({"x": "id"})
    return made


def built(dataset: glaive.LanceDataset) -> Sequence[Any]:
    """One segment for each fragment."""
    worker = glaive.dataset(dataset.uri)
    ids = [fragment.fragment_id for fragment in worker.get_fragments()]
    return [
        worker.create_index_uncommitted("x", "BTREE", "x_idx", fragment_ids=[number])
        for number in ids
    ]


def replace_in_place(dataset: glaive.LanceDataset) -> None:
    """Row 1 gets another value, in the fragment that has it."""
    values = pa.table({"id": [1], "x": [100]})
    changed, fields, *_ = dataset.get_fragments()[0].update_columns(values, "id")
    operation = glaive.LanceOperation.Update(
        updated_fragments=[changed], fields_modified=fields, update_mode="rewrite_columns"
    )
    glaive.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def by_name(dataset: glaive.LanceDataset, segments: Sequence[Any]) -> None:
    dataset.commit_existing_index_segments("x_idx", "x", segments)


def by_hand(dataset: glaive.LanceDataset, segments: Sequence[Any]) -> None:
    operation = glaive.LanceOperation.CreateIndex(new_indices=segments, removed_indices=[])
    dataset.move_to(
        glaive.LanceDataset.commit(dataset, operation, read_version=dataset.version).manifest
    )


Commit = Callable[[glaive.LanceDataset, Sequence[Any]], None]
COMMITS = pytest.mark.parametrize("commit", [by_name, by_hand])


def covered(dataset: glaive.LanceDataset) -> list[list[int]]:
    segments = dataset.describe_indices()[0].segments
    return sorted(sorted(segment.fragment_ids) for segment in segments)


@pytest.mark.spec("rel-12")
@COMMITS
@pytest.mark.parametrize("merges", [True, False], ids=["merged", "apart"])
def test_values_that_were_replaced_since_are_found(
    dataset: glaive.LanceDataset, merges: bool, commit: Commit
) -> None:
    segments = built(dataset)
    replace_in_place(dataset)
    driver = glaive.dataset(dataset.uri)
    driver.insert(pa.table({"id": [6], "x": [6]}))
    if merges:
        segments = [driver.merge_existing_index_segments(segments)]
    commit(driver, segments)
    assert [one for one in covered(driver) if one] == [[1]]
    for value, ids in {100: [1], 1: [], 4: [4], 6: [6]}.items():
        assert driver.to_table(filter=f"x = {value}")["id"].to_pylist() == ids


@COMMITS
def test_segments_built_at_once_are_committed_one_after_the_other(
    dataset: glaive.LanceDataset, commit: Commit
) -> None:
    for segment in built(dataset):
        driver = glaive.dataset(dataset.uri)
        commit(driver, [segment])
    assert covered(driver) == [[0], [1]]


def test_an_index_gets_another_name_by_hand_though_a_version_was_restored_since(
    dataset: glaive.LanceDataset,
) -> None:
    by_name(dataset, built(dataset))
    glaive.dataset(dataset.uri, version=dataset.version).restore()
    driver = glaive.dataset(dataset.uri)
    before = list(driver.read_transaction(3).operation.new_indices)
    renamed = [replace(one, name="other") for one in before]
    operation = glaive.LanceOperation.CreateIndex(renamed, before)
    made = glaive.LanceDataset.commit(driver, operation, read_version=driver.version)
    assert [one.name for one in made.describe_indices()] == ["other"]
    assert covered(made) == [[0], [1]]


def drop_and_add(dataset: glaive.LanceDataset) -> None:
    dataset.drop_columns(["x"])
    dataset.add_columns({"x": "id + 1"})


def clean(dataset: glaive.LanceDataset) -> None:
    dataset.delete("id = 0")
    dataset.delete("id = 5")
    dataset.cleanup_old_versions(retain_versions=1)


@COMMITS
@pytest.mark.spec("rel-12")
def test_segments_of_a_detached_version_are_none_of_the_history(
    dataset: glaive.LanceDataset, commit: Commit
) -> None:
    """Its number is above all others, but not later: what was changed since is not known."""
    more = glaive.LanceOperation.Delete([], [1], "id >= 3")
    detached = glaive.LanceDataset.commit(dataset, more, read_version=2, detached=True)
    number = detached.version
    segment = detached.create_index_uncommitted("x", "BTREE", "x_idx")
    detached.restore()
    driver = glaive.dataset(dataset.uri)
    replace_in_place(driver)
    driver = glaive.dataset(dataset.uri)
    with pytest.raises(CommitConflictError, match="which is detached"):
        commit(driver, [segment])
    operation = glaive.LanceOperation.CreateIndex([segment], [])
    glaive.LanceDataset.commit(driver, operation, read_version=number, detached=True)


@COMMITS
@pytest.mark.spec("rel-12")
@pytest.mark.parametrize(
    ("change", "reason", "retryable"),
    [
        (lambda dataset: dataset.optimize.compact_files(), "were rewritten", True),
        (drop_and_add, "removed field 1", True),
        (lambda dataset: glaive.write_dataset(ROWS, dataset, mode="overwrite"), "replaced", False),
        (clean, "is unknown", False),
    ],
    ids=["compaction", "column", "overwrite", "clean-up"],
)
def test_segments_of_what_is_gone_are_a_conflict(
    dataset: glaive.LanceDataset,
    change: Callable[[glaive.LanceDataset], object],
    reason: str,
    retryable: bool,
    commit: Commit,
) -> None:
    segments = built(dataset)
    change(dataset)
    driver = glaive.dataset(dataset.uri)
    with pytest.raises(CommitConflictError, match=reason) as told:
        commit(driver, segments)
    assert told.value.retryable == retryable
    assert not glaive.dataset(dataset.uri).describe_indices()
