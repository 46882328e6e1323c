"""Tasks of a compaction as values: what they say is what is done."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import glaive
from glaive.optimize import Compaction, CompactionTask


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
