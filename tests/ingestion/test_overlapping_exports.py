"""Exports to one folder that overlap: the files of one are there, whole, or an error says so.

A driver that was taken for dead goes on at any step, and so do its tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glaive
from glaive.dataset.tasks import FragmentRange, InProcess
from glaive.dataset.version import OpenedVersion
from glaive.errors import CommitConflictError
from glaive.ingestion.exporting import ExportTask, export_files

OLD, NEW, BEFORE = [1, 2], [3, 4, 5], [7]
"""Rows of the older and the newer version, and of an export before both."""


class OneForEach(InProcess):
    """Runs a task for each fragment."""

    def parts(self, dataset: OpenedVersion) -> Sequence[FragmentRange]:
        manifest = dataset.manifest
        return [FragmentRange(manifest.version, n, n + 1) for n in range(manifest.num_fragments)]


class Slow(OneForEach):
    """Keeps the tasks; something happens before they run, or when they have."""

    def __init__(self, *, before: Any = list, after: Any = list) -> None:
        self.tasks: list[ExportTask] = []
        self.before, self.after = before, after

    def run(self, dataset: OpenedVersion, tasks: Sequence[Any], shared: Any = None) -> list[Any]:
        self.tasks = list(tasks)
        self.before()
        results = super().run(dataset, tasks, shared)
        self.after()
        return results


@pytest.fixture
def versions(tmp_path: Path) -> tuple[OpenedVersion, OpenedVersion]:
    """A version of two fragments, and a later one of three others."""
    old = glaive.write_dataset(pa.table({"n": OLD}), tmp_path / "t.lance", max_rows_per_file=1)
    opened = old.opened
    table = pa.table({"n": NEW})
    new = glaive.write_dataset(table, tmp_path / "t.lance", mode="overwrite", max_rows_per_file=1)
    return opened, new.opened


def export(opened: OpenedVersion, folder: Path, mode: Any, job: str | None, **more: Any) -> Any:
    given = {"runner": OneForEach(), **more}
    return export_files(opened, str(folder), "parquet", mode, job_id=job, **given)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name[0] not in "._")


def others(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name[0] in "._")


def values(folder: Path) -> list[int]:
    """The rows that readers of the folder see."""
    rows: list[dict[str, int]] = []
    for name in visible(folder):
        rows += pq.read_table(folder / name).to_pylist()
    return sorted(row["n"] for row in rows)


def marked(folder: Path) -> list[str]:
    """The files that the mark names."""
    names: list[str] = json.loads((folder / "_SUCCESS").read_text())["files"]
    return sorted(names)


@pytest.mark.parametrize("mode", ["errorifexists", "append", "overwrite"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_was_taken_for_dead_returns_what_the_next_run_of_the_job_did(
    versions: tuple[OpenedVersion, OpenedVersion], tmp_path: Path, mode: str, moment: str
) -> None:
    """Whether its tasks had run or not; the next run was of another version."""
    old, new = versions
    folder = tmp_path / "out"
    done: list[Any] = []
    slow = Slow(**{moment: lambda: done.append(export(new, folder, mode, "a"))})

    assert export(old, folder, mode, "a", runner=slow) == done[0]

    assert values(folder) == NEW
    assert marked(folder) == visible(folder)
    assert others(folder) == ["_SUCCESS"]


def test_an_export_is_refused_the_folder_that_another_overwrites(
    versions: tuple[OpenedVersion, OpenedVersion], tmp_path: Path
) -> None:
    old, new = versions
    folder = tmp_path / "out"
    slow = Slow(after=lambda: export(new, folder, "overwrite", "b"))

    with pytest.raises(CommitConflictError, match=r"began while this one ran \(a\).*Run it again"):
        export(old, folder, "append", "a", runner=slow)

    assert values(folder) == NEW


@pytest.mark.parametrize("job", ["a", "b"])
def test_a_task_that_runs_on_after_its_export_makes_no_file_visible(
    versions: tuple[OpenedVersion, OpenedVersion], tmp_path: Path, job: str
) -> None:
    """Whether that export has come to its end, or another took its place."""
    old, new = versions
    folder = tmp_path / "out"
    slow = Slow()
    export(old, folder, "overwrite", "a", runner=slow)
    if job != "a":
        export(new, folder, "overwrite", job)
    before = visible(folder)

    for task in slow.tasks:
        with pytest.raises(CommitConflictError, match="took its place"):
            OneForEach().run(old, [task])

    assert visible(folder) == before
    assert others(folder) == ["_SUCCESS"]


def test_exports_that_append_at_the_same_time_are_both_there(
    versions: tuple[OpenedVersion, OpenedVersion], tmp_path: Path
) -> None:
    """The mark of the one that ends first does not name what the other has written so far."""
    old, new = versions
    folder = tmp_path / "out"
    seen: list[list[str]] = []

    def second() -> None:
        export(new, folder, "append", "b")
        seen.append(marked(folder))

    export(old, folder, "append", "a", runner=Slow(after=second))

    assert [name.split("-")[2] for name in seen[0]] == ["b"] * len(NEW)
    assert values(folder) == sorted(OLD + NEW)
    assert marked(folder) == visible(folder)


def test_an_export_whose_files_somebody_removed_is_an_error(
    versions: tuple[OpenedVersion, OpenedVersion], tmp_path: Path
) -> None:
    old, _ = versions
    folder = tmp_path / "out"

    def remove() -> None:
        (folder / visible(folder)[0]).unlink()

    with pytest.raises(CommitConflictError, match=r"1 files of the export a .* Run it again"):
        export(old, folder, "errorifexists", "a", runner=Slow(after=remove))

    assert list(folder.iterdir()) == []
