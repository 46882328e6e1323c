"""What jobs on a million fragments hold in the driver from plan to commit: no task runs.

Those of indices, clusterings, branches, new datasets and rows of a source, which need more than a
version and the results of tasks. The answers of tasks are made when they are asked for. ``make
test`` takes a small part of the fragments, and of the limit; ``make nightly`` all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.many_fragments import many_fragments
from tests.spark.test_scale import CORES, FRAGMENTS, MAX_BYTES, parts
from tests.spark.test_scale_commits import appended, deleted, new_file
from tests.spark.test_scale_files import LONG, bounded

import glaive
from glaive.dataset.clustering import cluster_rows
from glaive.dataset.compact import commit_rewrites, compact, with_old
from glaive.dataset.compaction_tasks import CompactionMetrics, CompactionOptions, RewriteResult
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.indexing.create import index_task
from glaive.dataset.indexing.optimize import UpdatedIndex, optimize_indices
from glaive.dataset.lance_operation import Index
from glaive.dataset.refs import publish_branch
from glaive.dataset.rows import RowsByFragment, commit_deleted, delete_in_tasks
from glaive.dataset.tasks import FragmentRange, Job
from glaive.dataset.version import OpenedVersion
from glaive.dataset.writing.plan import WriteOptions
from glaive.format.bitmaps import bitmap_of
from glaive.format.fragment import Fragment, FragmentList
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.index.remap import RemappedSegment
from glaive.ingestion.formats import format_named
from glaive.ingestion.merging import MergeDivision, StagedMatches, merge_staged
from glaive.ingestion.plan import (
    IngestPlan,
    Reconciled,
    Sources,
    Staged,
    commit_ingest,
    plan_ingest,
)
from glaive.ingestion.task import IngestedPieces
from glaive.io.local import LocalStore
from glaive.spark.lance_table.maintenance import build_index
from glaive.spark.runner import dump_results, dumps, load_results
from glaive.table.commit import commit_transaction
from glaive.table.index_coverage import address_map, encode_indices
from glaive.table.load import open_latest
from glaive.table.operations.overwrite import Append

SAMPLED = "executeClusterBy"
SAMPLE_BYTES = 36 << 20
"""What 65,536 rows of a sample take, however many fragments there are."""

IDS = pa.schema([pa.field("id", pa.int64())])


class Answering:
    """A runner that runs nothing: a function answers for each task, as a worker sends it."""

    parallelism = CORES
    division = MergeDivision()

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.sent = 0

    def parts(self, dataset: OpenedVersion) -> Sequence[FragmentRange]:
        return parts(dataset)

    def run(self, dataset: Any, tasks: Sequence[Any], shared: Any = None) -> list[Any]:
        self.sent += 0 if shared is None else len(dumps(shared))
        return [load_results(dump_results([self.answer(task)]))[0] for task in tasks]

    def job(self) -> Job:
        return Job(runner=self)


class Clustering(Answering):
    """The same for a clustering, whose tasks get rows of others: a fragment from each of them."""

    def shuffled(
        self, dataset: Any, tasks: Sequence[Any], shared: Any, parts: int, then: Any
    ) -> list[Any]:
        return list(enumerate(self.run(dataset, tasks)))


def version(folder: Path, count: int, *, own_names: bool = True) -> OpenedVersion:
    return many_fragments(str(folder / "t.lance"), count, own_names=own_names)


def stored(start: int, stop: int) -> FragmentList:
    """New fragments."""
    numbers = range(start, stop)
    return FragmentList.of(Fragment(files=(new_file(at),), physical_rows=1000) for at in numbers)


def entry(covered: Sequence[int]) -> table_pb2.IndexMetadata:
    """A segment of an index of these fragments."""
    made = table_pb2.IndexMetadata(name="id_idx", fields=[0], dataset_version=1)
    made.uuid.uuid = uuid4().bytes
    made.index_details.type_url = "/lance.table.BTreeIndexDetails"
    made.fragment_bitmap = bitmap_of(covered)
    return made


def index_build(folder: Path, count: int) -> Callable[[], Manifest]:
    opened = version(folder, count)

    def answer(task: Any) -> Index:
        return Index.from_wire(entry(range(task.fragments.start, task.fragments.stop)))

    task = index_task(opened, "id", "BTREE")
    job = Answering(answer).job()
    return lambda: build_index(opened, job, task, replaces=False, segments=None)[0]


def index_update(folder: Path, count: int) -> Callable[[], Manifest]:
    opened = version(folder, count)
    section = encode_indices([entry(range(0, count, 2))])
    manifest = opened.manifest
    indexed = Manifest(manifest.wire, where=manifest.where, index_section=section)

    def answer(task: Any) -> UpdatedIndex:
        missing = range(1, count, 2)[task.start : task.stop]
        return UpdatedIndex(Index.from_wire(entry(missing)))

    def update() -> Manifest:
        job = Answering(answer).job()
        made = optimize_indices(opened.at(indexed), num_indices_to_merge=0, job=job)
        assert made is not None
        return made

    return update


def compaction(folder: Path, count: int) -> Callable[[], Manifest]:
    """Of a table with two indices that hold addresses; a row of each fragment is deleted."""
    opened = version(folder, count)
    section = encode_indices([entry(range(count)), entry(range(count))])
    manifest = opened.manifest
    indexed = Manifest(manifest.wire, where=manifest.where, index_section=section)
    groups = [range(at, min(at + 1000, count)) for at in range(0, count, 1000)]

    def rewritten(group: range) -> RewriteResult:
        rows = np.arange(len(group) * 999, dtype=np.uint64)
        fragments, offsets = np.divmod(rows, np.uint64(999))
        moved = address_map([((fragments + np.uint64(group.start)) << np.uint64(32)) + offsets])
        metrics = CompactionMetrics(len(group), 1, len(group), 1)
        new = FragmentList.of([Fragment(files=(new_file(group.start),), physical_rows=len(rows))])
        return RewriteResult(manifest.version, metrics, (), new, moved)

    def remapped(task: Any) -> tuple[RemappedSegment, ...]:
        message = table_pb2.Transaction.Rewrite.RewrittenIndex()
        (message.old_id.uuid,) = task.segments
        message.new_id.uuid = uuid4().bytes
        return (RemappedSegment(message.SerializeToString()),)

    # A task of each kind answers as a worker does; packed until the commit, as a cluster sends it.
    packed = [dump_results([rewritten(group)]) for group in groups]

    def rewriting(dataset: OpenedVersion, _options: CompactionOptions) -> list[RewriteResult]:
        return with_old(dataset, groups, [load_results(one)[0] for one in packed])

    def compact_all() -> Manifest:
        options = CompactionOptions.of({"max_source_fragments": count}, {})
        runner = Answering(remapped)
        made = compact(opened.at(indexed), options, rewriting, runner.job())[0]
        assert runner.sent * (FRAGMENTS / count) < MAX_BYTES
        return made

    return compact_all


def clustering(folder: Path, count: int) -> Callable[[], Manifest]:
    opened = version(folder, count, own_names=False)  # a sample of the rows is read
    runner = Clustering(lambda task: stored(task.fragment_ids[0], task.fragment_ids[-1] + 1))
    options, positions = CompactionOptions(target_rows_per_fragment=1000), np.arange(count)

    def cluster_all() -> Manifest:
        made = cluster_rows(opened, ["id"], "hilbert", options, positions, runner)
        return commit_rewrites(opened, [made], job=runner.job())[0]

    return cluster_all


def publication(folder: Path, count: int) -> Callable[[], Manifest]:
    dataset = glaive.write_dataset(pa.table({"id": range(1000)}), folder / "t.lance")
    branch = dataset.create_branch("audit")
    transaction = Transaction(read_version=branch.version, operation=Append(stored(0, count - 1)))
    commit_transaction(branch.store, transaction, base=branch.manifest)
    job = Answering(lambda task: len(range(task.fragments.start, task.fragments.stop))).job()
    return lambda: publish_branch(dataset.opened, "audit", job)[0]


def with_files(folder: Path, count: int) -> None:
    """Files by the names of new fragments: a first version is not committed without them."""
    (folder / "t.lance" / "data").mkdir(parents=True)
    for number in range(count):
        (folder / "t.lance" / "data" / new_file(number).path).touch()


def planned(folder: Path, base: Manifest | None = None) -> IngestPlan:
    sources = Sources((), format_named("parquet", {}), Reconciled(IDS))
    write = WriteOptions(mode="create" if base is None else "append")
    return plan_ingest(LocalStore(folder / "t.lance"), sources, write, base=base)


def ingest(folder: Path, count: int) -> Callable[[], Manifest]:
    with_files(folder, count)
    plan = planned(folder)

    def commit() -> Manifest:
        cut = [range(at, min(at + 250, count)) for at in range(0, count, 250)]
        runner = Answering(lambda task: IngestedPieces(appended(Any, task.start, task.stop)))
        done = commit_ingest(plan, runner.run(None, cut), files=count)
        assert done.rows == count * 1000
        return open_latest(plan.write.store)

    return commit


def changed(opened: OpenedVersion) -> Callable[[Any], Any]:
    """Answers of tasks that delete rows: of a range of fragments, or of given ones."""

    def answer(task: Any) -> Any:
        if hasattr(task, "rows"):
            ids = list(task.rows)
            return deleted(opened, ids[0], ids[-1] + 1)
        return deleted(opened, task.fragments.start, task.fragments.stop)

    return answer


def addresses(start: int, stop: int) -> RowsByFragment:
    """A row of each of some fragments."""
    rows = RowsByFragment()
    rows.add((np.arange(start, stop, dtype=np.uint64) << np.uint64(32)) + np.uint64(3))
    return rows


def duplicates(folder: Path, count: int) -> Callable[[], Manifest]:
    opened = version(folder, count)

    def delete() -> Manifest:
        runner = Answering(lambda task: addresses(task.start, task.stop))
        cut = [range(at, min(at + 250, count)) for at in range(0, count, 250)]
        rows = RowsByFragment()
        for part in runner.run(opened, cut):
            rows.add_all(part)
        job = Answering(changed(opened)).job()
        return commit_deleted(opened, [delete_in_tasks(opened, rows, job)], "duplicates", job)[0]

    return delete


def merged_ingest(folder: Path, count: int) -> Callable[[], Manifest]:
    """A row of each fragment is replaced by one of the single fragment of the source."""
    opened = version(folder, count)
    plan = planned(folder, opened.manifest)
    source = [Fragment(files=(new_file(0),), physical_rows=count)]
    delete = changed(opened)

    def answer(task: Any) -> Any:
        if hasattr(task, "rows"):
            return delete(task)
        start, stop = task.target.start, task.target.stop
        new = RowsByFragment()
        new.add(np.arange(start, stop, dtype=np.uint64))
        return StagedMatches(addresses(start, stop), new, {0: stop - start})

    def merge() -> Manifest:
        dataset, nothing = LanceDataset.holding(opened), Staged(plan.write)
        assert merge_staged(plan, dataset, source, nothing, ("id",), Answering(answer)) == count
        return dataset.manifest

    return merge


JOBS: dict[str, tuple[Callable[[Path, int], Callable[[], Manifest]], int | None]] = {
    "createIndex": (index_build, 0),
    "optimizeIndices": (index_update, 0),
    "executeCompaction": (compaction, None),
    "executeClusterBy": (clustering, 0),
    "publish": (publication, 0),
    "ingest": (ingest, 0),
    "ingest with merge_keys": (merged_ingest, 1),
    "dropDuplicates": (duplicates, 0),
}
"""What makes a job ready, and how many fragments the new version has more than before.

A compaction leaves one of a thousand.
"""

KEYED = ("ingest with merge_keys", "dropDuplicates")
"""Jobs that hold a megabyte besides what grows with the fragments."""

COUNTS = [
    *((kind, 40_000 if kind in KEYED else 10_000) for kind in JOBS if kind != SAMPLED),
    (SAMPLED, 5_000),
    *(pytest.param(kind, FRAGMENTS, marks=LONG) for kind in JOBS),
]


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(("kind", "count"), COUNTS)
def test_a_job_on_many_fragments_holds_little(kind: str, count: int, tmp_path: Path) -> None:
    prepare, more = JOBS[kind]
    run = prepare(tmp_path, count)
    with bounded(count, SAMPLE_BYTES if kind == SAMPLED else 0):
        made = run()
    assert made.num_fragments == (count // 1000 if more is None else count + more)
