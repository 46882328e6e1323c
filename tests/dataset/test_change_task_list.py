"""Lists of tasks of a change feed are their tasks one by one."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import numpy as np
import pytest

from glaive.dataset.changes.task import ChangeTask, RewrittenRows
from glaive.dataset.changes.task_list import ChangeTasks, TaskGroup

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
