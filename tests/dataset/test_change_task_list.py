"""Tasks of a change feed are parts of fragments."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

import glaive
from glaive.dataset.change_plan import ChangedSide, ChangeTask, plan_snapshot
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2

ALIKE = ChangeTask(
    side=ChangedSide(
        commit_version=3,
        commit_timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        after=True,
        read_version=3,
        compared_version=2,
    ),
    fragment_id=0,
    stop=0,
    rows=0,
)


def test_tasks_are_cut_by_rows() -> None:
    task = replace(ALIKE, fragment_id=7, stop=100, rows=10, file_bytes=1007)
    cut = list(task.cut(40))

    found = [(one.fragment_id, one.start, one.stop, one.rows) for one in cut]
    assert found == [(7, 0, 40, 4), (7, 40, 80, 4), (7, 80, 100, 2)]
    assert sum(one.file_bytes for one in cut) == 1007
    assert list(task.cut(100)) == [task]
    assert list(replace(task, stop=0).cut(100)) == []


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

    assert len(tasks) < 2**18 + 3000
    assert (tasks[0].start, tasks[-1].stop) == (0, 2**32 - 1)
    assert sum(task.stop - task.start for task in tasks) == 3000 * (2**32 - 1)
