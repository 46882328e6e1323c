"""Changes for a version whose successors were cleaned up: committed if the manifests prove it safe.

Others committed two versions or more since, and the transactions between are gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CommitConflictError

Change = Callable[[Any], Any]


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"k": pa.array(numbers, pa.int64()), "v": pa.array(numbers, pa.int64())})


def add(dataset: Any) -> Any:
    return glaive.write_dataset(rows(90, 2), dataset, mode="append")


def replace(dataset: Any) -> Any:
    return glaive.write_dataset(rows(0, 1), dataset, mode="overwrite")


def merge(dataset: Any) -> Any:
    changes = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    return changes.execute(rows(2, 2))


def swap(dataset: Any) -> None:
    dataset.drop_columns(["v"])
    glaive.dataset(dataset.uri).add_columns({"w": "k * 7"})


MINE: dict[str, Change] = {
    "append": add,
    "overwrite": replace,
    "delete": lambda one: one.delete("k = 1"),
    "update": lambda one: one.update({"v": "v + 100"}, where="k = 1"),
    "merge_insert": merge,
    "config": lambda one: one.update_config({"a": "b"}),
    "index": lambda one: one.create_scalar_index("k", "BTREE"),
    "rename": lambda one: one.alter_columns({"path": "k", "name": "q"}),
    "add columns": lambda one: one.add_columns({"z": "k"}),
    "compact": lambda one: one.optimize.compact_files(),
}


def restore(one: Any) -> None:
    one.delete("k > 0")
    glaive.dataset(one.uri, version=1).restore()


OTHERS: dict[str, Change] = {
    "append": add,
    "overwrite": replace,
    "delete": lambda one: one.delete("k = 0"),
    "delete the same": lambda one: one.delete("k = 1"),
    "update the same": lambda one: one.update({"v": "v + 1000"}, where="k = 1"),
    "delete a fragment": lambda one: one.delete("k < 3"),
    "compact": lambda one: one.optimize.compact_files(),
    "config": lambda one: one.update_config({"c": "d"}),
    "the same key": lambda one: one.update_config({"a": "c"}),
    "index": lambda one: one.create_scalar_index("k", "BTREE"),
    "rename": lambda one: one.alter_columns({"path": "v", "name": "w"}),
    "column with the id of another": swap,
    "restore": restore,
}
READS = {"add columns", "compact", "delete", "index", "merge_insert", "update"}
FILES_GONE = {"compact", "delete a fragment", "overwrite"}
UNPROVED = {("append", "column with the id of another"), ("overwrite", "compact")}
"""Another cause of the same difference would be a conflict."""

LOSES_NOTHING = {("append", "overwrite"), ("rename", "overwrite")}
"""Without a clean-up these conflict, though the schema stayed."""


def state(uri: str) -> tuple[list[Any], dict[str, str]]:
    dataset = glaive.dataset(uri)
    return sorted(dataset.to_table().to_pylist(), key=str), dict(dataset.config())


def prepared(uri: str, others: Change, *, cleaned: bool) -> Any:
    glaive.write_dataset(rows(0, 6), uri, max_rows_per_file=3)
    mine = glaive.dataset(uri)
    others(glaive.dataset(uri))
    glaive.dataset(uri).update_metadata({"last": "one"})
    if cleaned:
        glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    return mine


def outcome(uri: str, change: Change, others: Change, *, cleaned: bool) -> Any:
    mine = prepared(uri, others, cleaned=cleaned)
    try:
        change(mine)
    except (CommitConflictError, OSError, ValueError) as error:
        return type(error).__name__
    return state(uri)


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("name", MINE)
def test_a_change_after_a_clean_up_ends_as_without_it_or_is_refused(
    tmp_path: Path, name: str, others: str
) -> None:
    given = MINE[name], OTHERS[others]
    found = outcome(str(tmp_path / "cleaned"), *given, cleaned=True)
    wanted = outcome(str(tmp_path / "kept"), *given, cleaned=False)
    if name in READS and others in FILES_GONE:
        assert found == "DataFileMissingError"
    elif (name, others) in UNPROVED:
        assert found == "CommitConflictError"
    elif wanted == "CommitConflictError" and others == "restore":
        assert found == outcome(str(tmp_path / "quiet"), MINE[name], lambda _: None, cleaned=False)
    elif (name, others) in LOSES_NOTHING:
        assert wanted == "CommitConflictError"
        assert found[0][0] in ({"k": 0, "v": 0}, {"q": 0, "v": 0})
    else:
        assert found == wanted


def test_a_dataset_made_in_the_place_of_another_gets_no_rows_of_that_one(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    glaive.write_dataset(rows(0, 6), uri, max_rows_per_file=3)
    mine = glaive.dataset(uri)
    shutil.rmtree(uri)
    for start in range(3):
        glaive.write_dataset(rows(start, 1), uri, mode="append")
    glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(CommitConflictError, match="unknown what they changed"):
        add(mine)
    assert glaive.dataset(uri).count_rows() == 3
