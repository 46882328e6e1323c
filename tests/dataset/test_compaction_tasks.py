"""Tasks of a compaction as values: what they say is what is done."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError
from glaive.optimize import Compaction, CompactionTask, RewriteResult


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
