"""What jobs on a million fragments send to their tasks, and hold in the driver; no data is read."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.many_fragments import many_fragments

import glaive
from glaive.dataset.clustering import CutRows
from glaive.dataset.columns.add_columns import ColumnsTask
from glaive.dataset.compact import compaction_groups, rewrite_tasks
from glaive.dataset.compaction_tasks import CompactionOptions
from glaive.dataset.indexing.create import segment_tasks
from glaive.dataset.indexing.optimize import optimize_indices
from glaive.dataset.rows import DeleteTask, UpdateTask, delete_rows
from glaive.dataset.tasks import FragmentRange, Job, cut_evenly
from glaive.dataset.version import OpenedVersion
from glaive.format.bitmaps import bitmap_of
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.ingestion.exporting import export_files
from glaive.spark.merging import ADDRESS, CollectRows, FillColumns, MatchTask, ReplaceColumns
from glaive.spark.runner import MAX_TASKS, divide, dump_results, dumps, load_results
from glaive.table.index_coverage import encode_indices

FRAGMENTS = 1_000_000
CORES = 200
MAX_BYTES = 64 << 20
MAX_DRIVER_BYTES = 512 << 20


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenedVersion:
    """A version with a million fragments of a thousand rows, which all have the same file."""
    uri = tmp_path_factory.mktemp("scale") / "t.lance"
    return many_fragments(str(uri), FRAGMENTS)


def parts(opened: OpenedVersion) -> list[FragmentRange]:
    """The parts that a cluster works on, as its runner makes them."""
    manifest = opened.manifest
    cuts = divide(manifest.physical_rows, manifest.columns.file_bytes, CORES)
    return [FragmentRange(manifest.version, start, stop) for start, stop in pairwise(cuts)]


def deletion(opened: OpenedVersion) -> Sequence[Any]:
    return [DeleteTask(part, "id = 7") for part in parts(opened)]


def update(opened: OpenedVersion) -> Sequence[Any]:
    return [UpdateTask(part, {"id": "id + 1"}, "id = 7") for part in parts(opened)]


def added_columns(opened: OpenedVersion) -> Sequence[Any]:
    return [ColumnsTask(part, {"twice": "id * 2"}, None, None) for part in parts(opened)]


def merge(opened: OpenedVersion) -> Sequence[Any]:
    schema = pa.schema([("id", pa.int64()), ("address", pa.int64())])
    return [MatchTask(part, schema) for part in parts(opened)]


def index_build(opened: OpenedVersion) -> Sequence[Any]:
    return segment_tasks(opened.manifest, cut_evenly(opened.manifest.physical_rows, CORES))


class PlannedError(Exception):
    """Ends a job before its tasks run."""


class Refusing:
    """A runner that runs nothing: it keeps the tasks, and ends the job."""

    parallelism = CORES

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def parts(self, dataset: OpenedVersion) -> Sequence[FragmentRange]:
        return parts(dataset)

    def run(self, dataset: OpenedVersion, tasks: Sequence[Any], shared: Any = None) -> list[Any]:
        self.tasks += tasks
        raise PlannedError


def index_update(opened: OpenedVersion) -> Sequence[Any]:
    """Every other fragment is in no segment."""
    manifest = opened.manifest
    entry = table_pb2.IndexMetadata(name="id_idx", fields=[0])
    entry.uuid.uuid = bytes(16)
    entry.index_details.type_url = "/lance.table.BTreeIndexDetails"
    entry.fragment_bitmap = bitmap_of(range(0, FRAGMENTS, 2))
    section = encode_indices([entry])
    indexed = Manifest(manifest.wire, where=manifest.where, index_section=section)
    runner = Refusing()
    with pytest.raises(PlannedError):
        optimize_indices(opened.at(indexed), num_indices_to_merge=0, job=Job(runner=runner))
    assert len(runner.tasks) == CORES
    return runner.tasks


def clustering(opened: OpenedVersion) -> Sequence[Any]:
    ids = opened.manifest.fragment_ids
    cuts = cut_evenly(opened.manifest.physical_rows, MAX_TASKS)
    return [CutRows(1, tuple(ids[start:stop].tolist())) for start, stop in pairwise(cuts)]


def export(opened: OpenedVersion) -> Sequence[Any]:
    runner = Refusing()
    with pytest.raises(PlannedError):
        export_files(opened, f"{opened.uri}.out", "parquet", runner=runner)
    assert len(runner.tasks) == len(parts(opened))
    return runner.tasks


@pytest.mark.nightly(reason="plans for a million fragments")
@pytest.mark.sampled(every=12)
@pytest.mark.parametrize(
    "plan", [deletion, update, added_columns, merge, index_build, index_update, clustering, export]
)
def test_tasks_for_a_million_fragments_are_few_and_small(plan: Any, opened: OpenedVersion) -> None:
    tracemalloc.start()
    try:
        tasks = plan(opened)
        check(tasks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_DRIVER_BYTES


def test_a_compaction_of_a_million_fragments_has_few_and_small_tasks(opened: OpenedVersion) -> None:
    options = CompactionOptions.of({}, {})
    groups = compaction_groups(opened, options)
    check(rewrite_tasks(opened, groups, options))
    assert all(first.stop == second.start for first, second in pairwise(groups))
    assert (groups[0].start, groups[-1].stop) == (0, FRAGMENTS)


def check(tasks: Sequence[Any]) -> None:
    assert 0 < len(tasks) <= MAX_TASKS
    assert sum(len(zlib.compress(dumps([task]), 1)) for task in tasks) < MAX_BYTES


def filled(rows: pa.RecordBatch, dataset: glaive.LanceDataset) -> Any:
    """What a task of ``addColumnsFrom`` returns."""
    columns = pa.schema([pa.field("value", pa.int64())])
    return FillColumns(dataset.version, columns).execute(dataset, iter([rows]))


def replaced(rows: pa.RecordBatch, dataset: glaive.LanceDataset) -> Any:
    """What one of ``updateColumnsFrom`` returns."""
    named = rows.rename_columns([ADDRESS, "id"])
    return ReplaceColumns(dataset.version, ("id",)).execute(dataset, iter([named]))


def collected(rows: pa.RecordBatch, dataset: glaive.LanceDataset) -> Any:
    """What those of ``dropDuplicates`` return: the rows, and deletion files of each fragment."""
    found = CollectRows().execute(dataset, iter([rows]))
    deleted = delete_rows(dataset.opened, found)
    assert deleted.count == rows.num_rows
    return found, deleted


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("work", [filled, replaced, collected])
def test_what_tasks_with_rows_of_a_million_fragments_return_is_small(
    work: Any, tmp_path: Path
) -> None:
    fragments = 512
    ids = pa.table({"id": range(fragments * 2)})
    dataset = glaive.write_dataset(ids, tmp_path / "t.lance", max_rows_per_file=2)
    addresses = pa.array(np.arange(fragments) << 32)
    rows = pa.record_batch({ADDRESS: addresses, "value": pa.array(np.arange(fragments))})
    returned = work(rows, dataset)
    dumped = dump_results([returned])
    assert len(dumped) * (FRAGMENTS / fragments) < MAX_BYTES
    assert dumps(load_results(dumped)) == dumps([returned])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("plan", [deletion, update, added_columns])
def test_what_tasks_return_for_a_million_fragments_is_small(
    plan: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    uri = tmp_path_factory.mktemp("scale") / "t.lance"
    rows = pa.table({"id": [7] * 1024})  # each fragment is changed
    dataset = glaive.write_dataset(rows, uri, max_rows_per_file=2)
    fragments = len(dataset.get_fragments())
    assert fragments == 512
    returned = [*(task.execute(dataset) for task in plan(dataset.opened)), "the last"]
    dumped = dump_results(returned)
    assert len(dumped) * (FRAGMENTS / fragments) < MAX_BYTES
    assert dumps(load_results(dumped)) == dumps(returned)
