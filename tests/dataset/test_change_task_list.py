"""Lists of tasks of a change feed are their tasks one by one."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.change_plan import (
    ChangeTask,
    ChangeTasks,
    RewrittenRows,
    TaskGroup,
    plan_snapshot,
)
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2

ALIKE = ChangeTask(
    commit_version=3,
    commit_timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    after=True,
    read_version=3,
    compared_version=2,
    fragment_id=0,
    stop=0,
    rows=0,
)


def group(*numbers: int, offsets: list[bytes | None] | None = None) -> TaskGroup:
    """Tasks for fragments of a hundred rows, of which a tenth changed."""
    places = [[number, 0, 100, 10, 1000 + number] for number in numbers]
    return TaskGroup(ALIKE, np.array(places, np.int64), offsets)


LISTED = ChangeTasks([group(4, 5, 6), group(), group(1, 2, offsets=[b"x", None]), group(9)])


def test_a_list_has_its_tasks_in_order() -> None:
    tasks = list(LISTED)

    assert [task.fragment_id for task in tasks] == [4, 5, 6, 1, 2, 9]
    assert [LISTED[at] for at in range(6)] == tasks
    assert [LISTED[at] for at in range(-6, 0)] == tasks
    assert list(reversed(LISTED)) == tasks[::-1]
    assert (LISTED.rows, LISTED.file_bytes) == (60, 6027)
    assert [task.rewritten for task in tasks[2:5]] == [
        None,
        RewrittenRows(offsets=b"x"),
        RewrittenRows(),
    ]
    for at in (6, -7):
        with pytest.raises(IndexError):
            LISTED[at]


@pytest.mark.parametrize("start", range(7))
@pytest.mark.parametrize("stop", range(7))
def test_a_part_of_a_list_has_these_tasks(start: int, stop: int) -> None:
    assert list(LISTED[start:stop]) == list(LISTED)[start:stop]
    assert list(LISTED[start:stop:2]) == list(LISTED)[start:stop:2]


def test_lists_are_joined_and_sent() -> None:
    joined = ChangeTasks.joined([LISTED[:2], ChangeTasks(), LISTED[2:]])

    assert list(joined) == list(LISTED)
    assert list(pickle.loads(pickle.dumps(joined))) == list(LISTED)
    assert list(ChangeTasks.of(LISTED)) == list(LISTED)
    assert not ChangeTasks()


def test_tasks_are_cut_by_rows() -> None:
    cut = group(7, 8, offsets=[b"a", b"b"]).cut(np.array([40, 100]))

    found = [(task.fragment_id, task.start, task.stop, task.rows) for task in cut]
    assert found == [(7, 0, 40, 4), (7, 40, 80, 4), (7, 80, 100, 2), (8, 0, 100, 10)]
    assert cut.offsets == [b"a", b"a", b"a", b"b"]
    assert sum(task.file_bytes for task in cut) == 1007 + 1008


@pytest.mark.parametrize("others", [None, frozenset({1})])
def test_tasks_know_which_fields_mean_other_columns(others: frozenset[int] | None) -> None:
    found = LISTED.knowing_fields(lambda version: others if version == 3 else frozenset())
    assert {task.others for task in found} == {others}


def test_rows_that_only_the_manifest_tells_do_not_make_any_number_of_tasks(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(pa.table({"id": [1]}), tmp_path / "t.lance")
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(dataset.manifest.complete_wire)
    fragment = table_pb2.DataFragment.FromString(wire.fragments[0])
    del wire.fragments[:]
    for fragment.id in range(3000):
        fragment.physical_rows = 2**32 - 1
        wire.fragments.append(fragment.SerializeToString())
    wire.max_fragment_id = 2999

    tasks = plan_snapshot(Manifest(wire, where="t.lance", scheme=dataset.manifest.scheme))

    assert len(tasks) < 2**21 + 3000
    assert (tasks[0].start, tasks[-1].stop) == (0, 2**32 - 1)
    looked_at = sum(int((one.places[:, 2] - one.places[:, 1]).sum()) for one in tasks.groups)
    assert looked_at == 3000 * (2**32 - 1)
