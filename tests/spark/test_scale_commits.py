"""What the commit of a job on a million fragments holds in the driver: no data is read or written.

The results are those that tasks return. ``make test`` commits those of a small part of the
fragments, and compares the same part of the limit; ``make nightly`` commits all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.many_fragments import file_name, many_fragments
from tests.spark.test_scale import FRAGMENTS, parts
from tests.spark.test_scale_files import LONG, bounded

from glaive.dataset.columns.add_columns import AddedFiles, add_columns, commit_columns
from glaive.dataset.columns.column_files import grow, replace_files
from glaive.dataset.compact import compact, with_old
from glaive.dataset.compaction_tasks import CompactionMetrics, CompactionOptions, RewriteResult
from glaive.dataset.rows import DeletedRows, RowsByFragment, UpdatedRows, delete_where, update_where
from glaive.dataset.tasks import FragmentRange, Job
from glaive.dataset.version import OpenedVersion
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rows import commit_plan
from glaive.format.bitmaps import bitmap_of
from glaive.format.fragment import (
    DataFile,
    DeletionFile,
    Fragment,
    FragmentList,
    packed_fragments,
    unpacked_fragments,
)
from glaive.format.manifest import Manifest
from glaive.spark.lance_table.rows import commit_replaced
from glaive.spark.merging import MergedRows, ReplacedColumns, RowClause, commit_merge
from glaive.spark.runner import dump_results, load_results
from glaive.table.operations.update import encode_offsets
from glaive.types import FormatVersion

PER_TASK = 250

Commit = Callable[[OpenedVersion, "Returning"], Manifest]


class Returning:
    """A runner that runs nothing: it loads results as they come from workers."""

    def __init__(self, results: Sequence[bytes]) -> None:
        self.results = results

    def parts(self, dataset: OpenedVersion) -> Sequence[FragmentRange]:
        return parts(dataset)

    def run(self, dataset: OpenedVersion, tasks: Sequence[Any]) -> list[Any]:
        return [load_results(one)[0] for one in self.results]

    def job(self) -> Job:
        return Job(runner=self)


def cuts(count: int) -> list[tuple[int, int]]:
    """First and last position of each task."""
    return list(pairwise(range(0, count + PER_TASK, PER_TASK)))


def new_file(number: int, field: int = 0) -> DataFile:
    path = file_name(number + 10**7).decode()
    version = FormatVersion(2, 2)
    return DataFile(path=path, fields=(field,), column_indices=(0,), version=version, size=8888)


def written(start: int, rows: int = 1000) -> FragmentList:
    """A fragment: a task writes many only where there are many rows."""
    return FragmentList.of([Fragment(files=(new_file(start),), physical_rows=rows)])


def added(_opened: OpenedVersion, start: int, stop: int) -> AddedFiles:
    return AddedFiles.of({position: new_file(position, 1) for position in range(start, stop)})


def replaced(opened: OpenedVersion, start: int, stop: int) -> ReplacedColumns:
    old = map(opened.manifest.fragment, range(start, stop))
    new = FragmentList.of(replace_files(fragment, new_file(fragment.id)) for fragment in old)
    rows = {number: bitmap_of(np.array([3, 5], np.uint32)) for number in range(start, stop)}
    return ReplacedColumns(new, encode_offsets(rows), 2 * (stop - start))


def deleted(opened: OpenedVersion, start: int, stop: int) -> DeletedRows:
    changed, rows = [], RowsByFragment()
    for number in range(start, stop):
        file = DeletionFile(bitmap=False, read_version=1, number=pow(3, number, 2**64), rows=2)
        changed.append(replace(opened.manifest.fragment(number), deletion_file=file))
        rows.add_offsets(number, np.array([3, 5], np.uint32))
    return DeletedRows(FragmentList.of(changed), (), rows, 2 * (stop - start))


def updated(opened: OpenedVersion, start: int, stop: int) -> UpdatedRows:
    return UpdatedRows(written(start), deleted(opened, start, stop))


def appended(_opened: OpenedVersion, start: int, stop: int) -> tuple[bytes, ...]:
    return packed_fragments(
        Fragment(files=(new_file(number),), physical_rows=1000) for number in range(start, stop)
    )


def compacted(opened: OpenedVersion, start: int, stop: int) -> RewriteResult:
    metrics = CompactionMetrics(stop - start, 1, stop - start, 1)
    rows = 1000 * (stop - start)
    return RewriteResult(opened.manifest.version, metrics, (), written(start, rows))


def commit_filled(opened: OpenedVersion, runner: Returning) -> Manifest:
    grown = grow(opened.manifest, pa.schema([pa.field("value", pa.int64())]))
    return commit_columns(opened, grown, AddedFiles.joined(runner.run(opened, ())))


def commit_added(opened: OpenedVersion, runner: Returning) -> Manifest:
    return add_columns(opened, {"twice": "id * 2"}, None, None, None, job=runner.job())


def commit_new_values(opened: OpenedVersion, runner: Returning) -> Manifest:
    columns = opened.manifest.schema.project(["id"])
    return commit_replaced(opened, columns, runner.run(opened, ()), runner.job())


def commit_deleted(opened: OpenedVersion, runner: Returning) -> Manifest:
    return delete_where(opened, "id = 3", runner.job())[0]


def commit_updated(opened: OpenedVersion, runner: Returning) -> Manifest:
    return update_where(opened, {"id": "id + 1"}, "id = 3", job=runner.job())[0]


def commit_merged(opened: OpenedVersion, runner: Returning) -> Manifest:
    """The rows of the results are those that the tasks of the merge found before."""
    counts = {"insert": 0, "update": 0, "delete": 0}
    found = []
    for part in runner.run(opened, ()):
        rows = {**counts, "update": part.count}
        new, none = written(part.count), FragmentList()
        merged = MergedRows(
            updated=new, inserted=none, old=part.affected, counts=rows, repeated=None
        )
        found.append(dump_results([merged]))
    del part, merged
    results = [load_results(one)[0] for one in found]
    return commit_merge(opened, results, [RowClause("update", ("id",))], runner.job())[0]


def commit_appended(opened: OpenedVersion, runner: Returning) -> Manifest:
    manifest = opened.manifest
    plan = plan_write(opened.store, manifest.schema, WriteOptions(mode="append"), manifest)
    packed = (data for part in runner.run(opened, ()) for data in part)
    return commit_plan(plan, unpacked_fragments(packed, "the result of a task"))


def commit_compacted(opened: OpenedVersion, runner: Returning) -> Manifest:
    groups = [range(*cut) for cut in cuts(opened.manifest.num_fragments)]

    def rewriting(dataset: OpenedVersion, _options: CompactionOptions) -> list[RewriteResult]:
        return with_old(dataset, groups, runner.run(dataset, ()))

    options = CompactionOptions.of({"max_source_fragments": opened.manifest.num_fragments}, {})
    return compact(opened, options, rewriting, runner.job())[0]


KINDS: dict[str, tuple[Any, Commit, Any]] = {
    "addColumnsFrom": (added, commit_filled, lambda count, _: count),
    "addColumns": (added, commit_added, lambda count, _: count),
    "updateColumnsFrom": (replaced, commit_new_values, lambda count, _: count),
    "delete": (deleted, commit_deleted, lambda count, _: count),
    "update": (updated, commit_updated, lambda count, tasks: count + tasks),
    "merge": (deleted, commit_merged, lambda count, tasks: count + tasks),
    "append": (appended, commit_appended, lambda count, _: 2 * count),
    "compaction": (compacted, commit_compacted, lambda _, tasks: tasks),
}
"""What a task returns, the commit, and the fragments of the new version: of so many, and tasks."""

COUNTS = [
    *((kind, 20_000 if "Columns" in kind or kind == "merge" else 5_000) for kind in KINDS),
    *(pytest.param(kind, FRAGMENTS, marks=LONG) for kind in KINDS),
]


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize(("kind", "count"), COUNTS)
def test_a_commit_of_many_fragments_holds_little(kind: str, count: int, tmp_path: Path) -> None:
    work, commit, expected = KINDS[kind]
    opened = many_fragments(str(tmp_path / "t.lance"), count, own_names=True)
    results = [dump_results([work(opened, *cut)]) for cut in cuts(count)]
    with bounded(count):
        made = commit(opened, Returning(results))
    assert made.num_fragments == expected(count, len(results))
