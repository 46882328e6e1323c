"""What jobs on a million fragments send to their tasks, and hold in the driver; no data is read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.columns.add_columns import ColumnsTask
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.plan import compaction_groups
from glaive.dataset.rows.selected_rows import DeleteTask
from glaive.dataset.rows.update import UpdateTask
from glaive.dataset.tasks import FragmentRange
from glaive.dataset.version import OpenedVersion
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.spark.jobs.cluster_rows import CutRows
from glaive.spark.jobs.index_build import segment_tasks
from glaive.spark.jobs.match_rows import MatchTask
from glaive.spark.jobs.runner import MAX_TASKS, cut_evenly, divide, dumps
from glaive.spark.jobs.worker import dump_results, load_results
from glaive.spark.lance_table.optimize import rewrite_tasks

FRAGMENTS = 1_000_000
CORES = 200
MAX_BYTES = 64 << 20
MAX_DRIVER_BYTES = 512 << 20


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenedVersion:
    """A version with a million fragments of a thousand rows, which all have the same file."""
    uri = tmp_path_factory.mktemp("scale") / "t.lance"
    dataset = glaive.write_dataset(pa.table({"id": list(range(1000))}), uri)
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(dataset.manifest.complete_wire)
    (fragment,) = wire.fragments
    del wire.fragments[:]
    wire.fragments.extend([b"\x08" + _varint(number) + fragment for number in range(FRAGMENTS)])
    wire.max_fragment_id = FRAGMENTS - 1
    manifest = Manifest(wire, where=dataset.manifest.where, scheme=dataset.manifest.scheme)
    return dataset.opened.at(manifest)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


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


def clustering(opened: OpenedVersion) -> Sequence[Any]:
    ids = opened.manifest.fragment_ids
    cuts = cut_evenly(opened.manifest.physical_rows, MAX_TASKS)
    return [CutRows(1, tuple(ids[start:stop].tolist())) for start, stop in pairwise(cuts)]


@pytest.mark.parametrize("plan", [deletion, update, added_columns, merge, index_build, clustering])
def test_tasks_for_a_million_fragments_are_few_and_small(plan: Any, opened: OpenedVersion) -> None:
    tracemalloc.start()
    try:
        tasks = plan(opened)
        check(tasks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_DRIVER_BYTES


def test_a_compaction_of_a_million_fragments_has_few_and_small_tasks(
    opened: OpenedVersion,
) -> None:
    options = CompactionOptions.of({}, {})
    groups = compaction_groups(opened, options)
    check(rewrite_tasks(opened, groups, options))
    assert all(first.stop == second.start for first, second in pairwise(groups))
    assert (groups[0].start, groups[-1].stop) == (0, FRAGMENTS)


def check(tasks: Sequence[Any]) -> None:
    assert 0 < len(tasks) <= MAX_TASKS
    assert sum(len(dumps([task])) for task in tasks) < MAX_BYTES


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
