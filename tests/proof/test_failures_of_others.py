"""What went wrong in other implementations of tables, as their users reported it, does not here.

Elsewhere: rows of any width converge in compaction (``dataset/test_compaction_converges.py``), wild
offsets (``file/test_wild_offsets.py``), tasks that are retried, speculative or lost and batches
that are replayed (``spark/test_failures.py``, ``spark/test_stream_sink.py``, the simulated jobs and
streams).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from glaive.optimize import Compaction

import glaive
from glaive.errors import CommitConflictError

ROWS = pa.table({"id": range(40), "value": [number % 5 for number in range(40)]})


def ids(place: Path, text: str | None = None) -> list[int]:
    found: Any = glaive.dataset(place).to_table(["id"], filter=text)["id"].to_pylist()
    return sorted(found)


@pytest.mark.spec("rel-9")
@pytest.mark.parametrize("stable", [False, True])
def test_rows_deleted_during_a_compaction_do_not_come_back(tmp_path: Path, *, stable: bool) -> None:
    """The compaction is committed by who opened the newest version, which has the deletion."""
    place = tmp_path / "t"
    options = {"max_rows_per_file": 10, "enable_stable_row_ids": stable}
    planned = glaive.write_dataset(ROWS, place, **options)
    plan = Compaction.plan(planned, options={"target_rows_per_fragment": 100})
    done = [task.execute(planned) for task in plan.tasks]
    glaive.dataset(place).delete("id % 10 = 3")
    with pytest.raises(CommitConflictError, match="delete changed fragments 0, 1, 2, 3 as well"):
        Compaction.commit(glaive.dataset(place), done)
    assert ids(place) == [number for number in range(40) if number % 10 != 3]
    assert glaive.dataset(place).count_rows() == 36


@pytest.mark.spec("rel-14")
def test_a_tag_keeps_its_version_and_no_other(tmp_path: Path) -> None:
    """A tag of the first version left 40 % of a store to files that nothing could reach."""
    place = tmp_path / "t"
    dataset = glaive.write_dataset(ROWS, place)
    dataset.tags.create("first", 1)
    for _ in range(5):
        dataset.insert(ROWS, mode="overwrite")
    dataset.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert [one["version"] for one in dataset.versions()] == [1, 6]
    assert len(list((place / "data").iterdir())) == 2
    assert glaive.dataset(place, version="first").count_rows() == 40


@pytest.mark.spec("rel-12")
@pytest.mark.parametrize(("stable", "deferred"), [(False, False), (False, True), (True, False)])
def test_an_index_finds_moved_and_changed_rows(
    tmp_path: Path, *, stable: bool, deferred: bool
) -> None:
    place = tmp_path / "t"
    options = {"max_rows_per_file": 10, "enable_stable_row_ids": stable}
    dataset = glaive.write_dataset(ROWS, place, **options)
    dataset.create_scalar_index("value", "BTREE")
    dataset.update({"value": "value + 1"}, "id < 5")
    dataset.delete("id >= 35")
    dataset.optimize.compact_files(target_rows_per_fragment=100, defer_index_remap=deferred)
    dataset.insert(ROWS.slice(0, 3))
    values = {number: number % 5 + (number < 5) for number in range(35)}
    for value in range(6):
        expected = [number for number, found in values.items() if found == value]
        expected += [number for number in range(3) if number % 5 == value]
        assert ids(place, f"value = {value}") == sorted(expected)


@pytest.mark.spec("rel-9")
def test_a_merge_that_is_tried_again_has_all_rows_of_a_stream(tmp_path: Path) -> None:
    """The rows that the first attempt had consumed were missing from the second."""
    place = tmp_path / "t"
    glaive.write_dataset(ROWS, place)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pa.table({"id": [0, 1, 100], "value": [50, 51, 52]}).to_batches()
        glaive.dataset(place).update({"value": "70"}, "id = 0")  # another writer is first
        yield from pa.table({"id": [2, 101], "value": [53, 54]}).to_batches()

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    builder = glaive.dataset(place).merge_insert("id")
    builder.when_matched_update_all().when_not_matched_insert_all().execute(reader)
    changed = {0: 50, 1: 51, 2: 53, 100: 52, 101: 54}
    assert ids(place) == [*range(40), 100, 101]
    for number, value in changed.items():
        found = glaive.dataset(place).to_table(["value"], filter=f"id = {number}")
        assert found["value"].to_pylist() == [value]
