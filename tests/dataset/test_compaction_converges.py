"""Compaction comes to an end: after one, a plan with the same options has nothing to do."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.optimize import Compaction, CompactionMetrics
from hypothesis import example, given
from hypothesis import strategies as st
from tests.overtaken import open_overtaken

import glaive
from glaive.errors import OptionError

Layout = list[tuple[int, int, bool]]
"""Rows of a fragment, bytes of a row, and whether an index covers them."""


def rows(count: int, width: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = range(seed * 1000, seed * 1000 + count)
    return pa.table({"id": ids, "raw": [rng.bytes(width) for _ in range(count)]})


def make(path: Path, layout: Layout, deleted: int = 0, **options: Any) -> glaive.LanceDataset:
    """A fragment for each part; every ``deleted``-th row is deleted."""
    for seed, (count, width, _) in enumerate(layout):
        made = glaive.write_dataset(rows(count, width, seed), path, mode="append", **options)
    indexed = [at for at, part in enumerate(layout) if part[2]]
    if indexed:
        made.create_scalar_index("id", "ZONEMAP", fragment_ids=indexed)
    if deleted:
        made.delete(f"id % {deleted} = 1")
    return made


fragments = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 7, 30, 50, 100, 101]),
        st.sampled_from([0, 3, 100, 1000]),
        st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=10,
)
options = st.fixed_dictionaries(
    {
        "target_rows_per_fragment": st.sampled_from([1, 10, 50, 100, 10**6]),
        "max_bytes_per_file": st.sampled_from([500, 5_000, 20_000, 100_000, 10**9]),
    },
    optional={
        "max_rows_per_group": st.sampled_from([1, 7]),
        "materialize_deletions": st.booleans(),
        "materialize_deletions_threshold": st.sampled_from([0.0, 0.33, 0.5, 1.0]),
        "defer_index_remap": st.booleans(),
        "num_threads": st.sampled_from([1, 2]),
        "batch_size": st.sampled_from([1, 40]),
        "excluded_fragment_ids": st.sampled_from([[0], [2], [1, 3]]),
    },
)
AROUND: Layout = [*[(10, 0, False)] * 2, (100, 0, False), *[(10, 0, False)] * 2]
"""Two groups whose files become neighbours, with a target of 100 rows."""

NARROW: dict[str, Any] = {"target_rows_per_fragment": 100, "max_bytes_per_file": 10**9}


@given(
    fragments,
    st.sampled_from([0, 0, 2, 3, 5]),
    st.booleans(),
    st.sampled_from(["2.1", "2.1", "2.2", "2.0", "legacy"]),
    options,
)
# What a pass writes stands behind the others, which meet, and so do the last files of groups.
@example([(10, 0, True), *[(10, 0, False)] * 2, (10, 0, True)], 0, False, "2.1", NARROW)
@example(AROUND, 0, False, "2.1", NARROW)
@example([(7, 1000, False)] * 3, 0, True, "2.1", NARROW | {"max_bytes_per_file": 500})
@example(
    [(30, 100, False)] * 9,
    2,
    False,
    "2.1",
    {"target_rows_per_fragment": 50, "max_bytes_per_file": 5_000},
)
def test_after_one_compaction_a_second_plans_nothing(
    layout: Layout, deleted: int, stable: bool, version: str, given_options: dict[str, Any]
) -> None:
    path = Path(tempfile.mkdtemp())
    try:
        made = make(
            path / "t", layout, deleted, enable_stable_row_ids=stable, data_storage_version=version
        )
        before = made.to_table().sort_by("id")
        made.optimize.compact_files(**given_options)
        dataset = glaive.dataset(path / "t")
        assert dataset.to_table().sort_by("id").equals(before)
        assert not Compaction.plan(dataset, given_options).tasks
        assert dataset.optimize.compact_files(**given_options) == CompactionMetrics()
        assert dataset.version == made.version
    finally:
        shutil.rmtree(path)


def test_fragments_that_are_full_by_their_bytes_are_left_alone(tmp_path: Path) -> None:
    made = make(tmp_path / "t", [(100, 1000, False)] * 4)
    ids = [fragment.fragment_id for fragment in made.get_fragments()]
    made.optimize.compact_files(max_bytes_per_file=90_000)
    assert [fragment.fragment_id for fragment in made.get_fragments()] == ids
    made.optimize.compact_files(max_bytes_per_file=250_000)
    assert len(made.get_fragments()) < 4


def test_only_the_last_file_of_a_task_is_not_full(tmp_path: Path) -> None:
    # Bytes fill the first files, so that there are more of them than the rows alone would make.
    made = make(tmp_path / "t", [(25, 300, False)] * 20 + [(100, 0, False)] * 5)
    target: dict[str, Any] = {"target_rows_per_fragment": 1000, "max_bytes_per_file": 9_000}
    (task,) = Compaction.plan(made, target).tasks
    task = replace(task, options=replace(task.options, target_rows_per_fragment=100))
    new = task.execute(made).new
    assert sum(fragment.physical_rows for fragment in new) == 1000
    for fragment in new[:-1]:
        (file,) = fragment.files
        assert fragment.physical_rows >= 100 or (file.size or 0) >= 9_000, new


def test_one_pass_is_enough_for_neighbours(tmp_path: Path) -> None:
    made = make(tmp_path / "t", [(30, 0, False)] * 9)
    version = made.version
    made.optimize.compact_files(target_rows_per_fragment=100)
    assert made.version == version + 2  # fragment ids are reserved by a version of their own


def test_the_counts_are_those_of_all_passes(tmp_path: Path) -> None:
    made = make(tmp_path / "t", AROUND)
    done = made.optimize.compact_files(target_rows_per_fragment=100)
    assert [one.count_rows() for one in made.get_fragments()] == [100, 40]
    assert (done.fragments_removed, done.fragments_added) == (6, 3)


@pytest.mark.parametrize("limit", ["max_source_fragments", "max_source_rows", "max_source_bytes"])
def test_limits_of_the_source_are_those_of_a_run(tmp_path: Path, limit: str) -> None:
    made = make(tmp_path / "t", AROUND)
    made.optimize.compact_files(target_rows_per_fragment=100, **{limit: 10**6})
    assert [one.count_rows() for one in made.get_fragments()] == [100, 20, 20]


def sizes(dataset: glaive.LanceDataset) -> list[int]:
    return [fragment.count_rows() for fragment in dataset.get_fragments()]


def test_what_another_writer_adds_meanwhile_is_left_to_the_next_compaction(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(tmp_path / "t", AROUND)
    append = partial(glaive.write_dataset, rows(5, 0, 9), path, mode="append")
    made = open_overtaken(path, append)
    done = made.optimize.compact_files(target_rows_per_fragment=100)
    assert (done.fragments_removed, done.fragments_added) == (4, 2)
    assert sorted(sizes(made)) == [5, 20, 20, 100]
    made.optimize.compact_files(target_rows_per_fragment=100)
    assert sizes(made) == [100, 45]


def test_a_later_pass_that_meets_another_writer_leaves_what_the_first_did(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(tmp_path / "t", AROUND)
    made = open_overtaken(path, lambda: glaive.dataset(path).delete("id = 3"), number=4)
    done = made.optimize.compact_files(target_rows_per_fragment=100)
    assert (done.fragments_removed, done.fragments_added) == (4, 2)
    newest = glaive.dataset(path)
    assert sizes(newest) == [100, 19, 20]
    newest.optimize.compact_files(target_rows_per_fragment=100)
    assert sizes(newest) == [100, 39]


@pytest.mark.parametrize("stable", [False, True])
def test_rewrites_of_another_dataset_are_refused(tmp_path: Path, stable: bool) -> None:
    one, other = (
        make(tmp_path / name, [(5, 3, False)] * 3, enable_stable_row_ids=stable) for name in "ab"
    )
    rewrites = [task.execute(one) for task in Compaction.plan(one, {}).tasks]
    with pytest.raises(OptionError, match="does not have the fragments that were rewritten"):
        Compaction.commit(other, rewrites)
    assert glaive.dataset(tmp_path / "b").version == other.version
    Compaction.commit(one, rewrites)
    assert glaive.dataset(tmp_path / "a").count_rows() == 15
