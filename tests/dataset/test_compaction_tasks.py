"""Tasks of a compaction as values: what they say is what is done."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from glaive.optimize import Compaction, CompactionPlan, CompactionTask, RewriteResult

import glaive
from glaive.errors import OptionError


def test_a_task_of_which_fragments_were_left_out_rewrites_the_others(tmp_path: Path) -> None:
    rows = pa.table({"id": range(40)})
    dataset = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=10)
    (task,) = Compaction.plan(dataset).tasks
    assert task.fragment_ids == (0, 1, 2, 3)
    some = pickle.loads(pickle.dumps(replace(task, fragment_ids=(1, 2))))
    result = some.execute(dataset)
    assert [one.id for one in result.original_fragments] == [1, 2]
    Compaction.commit(dataset, [result])
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(40))
    assert sorted(one.count_rows() for one in dataset.get_fragments()) == [10, 10, 20]


def test_a_task_made_by_hand_needs_ids_only(tmp_path: Path) -> None:
    rows = pa.table({"id": range(40)})
    dataset = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=10)
    (planned,) = Compaction.plan(dataset).tasks
    task = CompactionTask(dataset.version, (0, 1), planned.options)
    Compaction.commit(dataset, [task.execute(dataset)])
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(40))
    assert sorted(one.count_rows() for one in dataset.get_fragments()) == [10, 10, 20]


@pytest.mark.parametrize("version", ["main", None, -1, 2**64, 1.5, True, [1]])
def test_a_version_that_is_no_number_is_refused_where_json_is_read(
    tmp_path: Path, version: object
) -> None:
    dataset = glaive.write_dataset({"id": range(40)}, tmp_path / "t", max_rows_per_file=10)
    plan = Compaction.plan(dataset)
    (task,) = plan.tasks
    for value in (plan, task, task.execute(dataset)):
        changed = json.loads(value.json()) | {"read_version": version}
        with pytest.raises(OptionError, match="read_version"):
            type(value).from_json(json.dumps(changed))


def test_a_count_that_is_no_number_is_refused_where_json_is_read(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"id": range(40)}, tmp_path / "t", max_rows_per_file=10)
    (task,) = Compaction.plan(dataset).tasks
    result = json.loads(task.execute(dataset).json())
    result["metrics"]["files_added"] = "many"
    with pytest.raises(OptionError, match="files_added"):
        RewriteResult.from_json(json.dumps(result))


@pytest.mark.parametrize("rows", [None, 10**6])
def test_a_task_of_json_reads_the_fragments_themselves(tmp_path: Path, rows: int | None) -> None:
    table = pa.table({"id": range(40)})
    options = {"max_rows_per_file": 10, "enable_stable_row_ids": True}
    dataset = glaive.write_dataset(table, tmp_path / "t", **options)
    dataset.delete("id = 15")
    ids = dataset.to_table(columns=["id"], with_row_id=True)
    (task,) = Compaction.plan(dataset).tasks
    said = json.loads(task.json())
    for fragment in said["task"]["fragments"]:
        fragment["deletion_file"] = None
        fragment["physical_rows"] = rows or fragment["physical_rows"]
        fragment["row_id_meta"] = said["task"]["fragments"][0]["row_id_meta"]
    Compaction.commit(dataset, [CompactionTask.from_json(json.dumps(said)).execute(dataset)])
    assert dataset.to_table(columns=["id"], with_row_id=True) == ids


@pytest.mark.parametrize(
    "option", ["target_rows_per_fragment", "max_rows_per_group", "max_bytes_per_file"]
)
def test_an_option_that_json_leaves_empty_is_refused(tmp_path: Path, option: str) -> None:
    dataset = glaive.write_dataset({"id": range(40)}, tmp_path / "t", max_rows_per_file=10)
    changed = json.loads(Compaction.plan(dataset).json())
    changed["options"][option] = None
    with pytest.raises(OptionError, match=option):
        CompactionPlan.from_json(json.dumps(changed))


def test_a_path_that_no_message_can_have_is_refused_where_json_is_read(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"id": range(40)}, tmp_path / "t", max_rows_per_file=10)
    changed = json.loads(Compaction.plan(dataset).json())
    changed["tasks"][0]["fragments"][0]["files"][0]["path"] = "\ud800.lance"
    with pytest.raises(OptionError, match="path below the folder"):
        CompactionPlan.from_json(json.dumps(changed))


@pytest.mark.parametrize("metrics", [[1], "many", 5, None, {"files_removed": None}])
def test_counts_of_another_form_are_refused_where_json_is_read(
    tmp_path: Path, metrics: object
) -> None:
    dataset = glaive.write_dataset({"id": range(40)}, tmp_path / "t", max_rows_per_file=10)
    (task,) = Compaction.plan(dataset).tasks
    result = json.loads(task.execute(dataset).json()) | {"metrics": metrics}
    with pytest.raises(OptionError, match=r"RewriteResult|files_removed"):
        RewriteResult.from_json(json.dumps(result))
