"""Indices that tasks rebuild for a compaction: searches find what they found, and scans find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.index.vector.sources import clustered, lists_of
from tests.spark.pickling import Pickling

import glaive
from glaive.dataset.compact import RemapTask, compact
from glaive.dataset.compaction_tasks import CompactionOptions
from glaive.dataset.tasks import LOCAL, Job
from glaive.errors import CommitConflictError, NotLanceError
from glaive.format.manifest import Manifest
from glaive.io.access import open_store
from glaive.spark import LanceTable
from glaive.table.load import open_latest
from glaive.testing import CountingStore

ROWS = 600
VECTORS = clustered(ROWS, 8).astype(np.float32)

FILTERS: dict[str, tuple[str, str]] = {
    "BTREE": ("n", "n = 3"),
    "BITMAP": ("n", "n IN (1, 5)"),
    "LABEL_LIST": ("l", "array_has_any(l, [2, 4])"),
    "NGRAM": ("s", "contains(s, 'word3')"),
    "ZONEMAP": ("id", "id > 40 AND id < 400"),
    "BLOOMFILTER": ("id", "id IN (7, 11, 250, 251)"),
}
"""Column and filter of each kind of scalar index."""

VECTOR_KINDS: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {},
    "IVF_PQ": {"num_sub_vectors": 2, "max_iters": 3},
    "IVF_SQ": {},
}
KINDS = [*FILTERS, "INVERTED", *VECTOR_KINDS]
LEFT_OUT = ("ZONEMAP", "BLOOMFILTER")
"""Kinds that are not rebuilt, as pylance does not: they do not cover the moved rows."""


def indexed(uri: Path, *kinds: str, stable: bool = False) -> str:
    """A dataset of four fragments with indices, of which each has deleted rows."""
    numbers = np.arange(ROWS)
    columns = {
        "id": numbers,
        "n": numbers % 7,
        "s": [f"word{n % 9} of all" for n in numbers],
        "l": pa.array([[n % 5, n % 3] for n in numbers.tolist()]),
        "v": lists_of(VECTORS),
    }
    dataset = glaive.write_dataset(
        pa.table(columns), uri, max_rows_per_file=150, enable_stable_row_ids=stable
    )
    for kind in kinds:
        if kind in VECTOR_KINDS:
            options = {"num_partitions": 2, **VECTOR_KINDS[kind]}
            dataset.create_index("v", kind, name=kind, **options)
        else:
            column = "s" if kind == "INVERTED" else FILTERS[kind][0]
            dataset.create_scalar_index(column, kind, name=kind)
    dataset.delete("id % 11 = 2")
    return str(uri)


def compacted(uri: str, job: Job, **options: Any) -> Manifest:
    return compact(glaive.dataset(uri).opened, CompactionOptions.of(options, {}), job=job)[0]


def found(dataset: Any, kind: str, **options: Any) -> list[Any]:
    """What a search by the index finds."""
    if kind in VECTOR_KINDS:
        nearest = {"column": "v", "q": VECTORS[9], "k": 100, "nprobes": 2}
        answer = dataset.to_table(["id", "_distance"], nearest=nearest, **options)
        return sorted(map(tuple, zip(*answer.to_pydict().values(), strict=True)))
    if kind == "INVERTED":
        query = {"query": "word3", "columns": ["s"]}
        answer = dataset.to_table(["id"], full_text_query=query, **options)
    else:
        answer = dataset.to_table(["id"], filter=FILTERS[kind][1], **options)
    return sorted(answer["id"].to_pylist())


def folders(uri: str) -> set[str]:
    return {path.name for path in Path(uri, "_indices").iterdir()}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("kind", "stable"),
    [*((kind, False) for kind in KINDS), *((kind, True) for kind in FILTERS)],
    ids=lambda value: value if isinstance(value, str) else "stable-ids" if value else "addresses",
)
def test_searches_find_what_they_found_before(tmp_path: Path, kind: str, stable: bool) -> None:
    uri, runner = indexed(tmp_path / "t", kind, stable=stable), Pickling(3)
    before = found(glaive.dataset(uri), kind)
    compacted(uri, Job(runner=runner))
    dataset = glaive.dataset(uri)
    assert len(dataset.get_fragments()) == 1
    assert len(before) > 3
    assert found(dataset, kind) == before
    if kind in FILTERS:
        assert found(dataset, kind, use_scalar_index=False) == before
    if kind not in LEFT_OUT:
        assert dataset.stats.index_stats(kind)["num_unindexed_rows"] == 0
        assert found(dataset, kind, fast_search=True) == before
    by_pylance = found(lance.dataset(uri), kind)
    if kind in VECTOR_KINDS:
        near, here = ({row for row, _ in rows} for rows in (by_pylance, before))
        assert len(near & here) >= 0.95 * len(here)
    else:
        assert by_pylance == before


def test_each_segment_is_rebuilt_by_a_task_in_one_round(tmp_path: Path) -> None:
    kinds = ("BTREE", "LABEL_LIST", "INVERTED", "IVF_PQ")
    uri, runner = indexed(tmp_path / "t", *kinds), Pickling(3)
    before = glaive.dataset(uri)
    version = compacted(uri, Job(runner=runner)).version
    (tasks,) = runner.rounds
    assert all(type(task) is RemapTask for task in tasks)
    ids = [entry.uuid.uuid for entry in before.manifest.indices]
    assert [task.segments for task in tasks] == [(uuid,) for uuid in ids]
    assert version == before.version + 2


def test_a_process_that_works_alone_rebuilds_all_of_them_in_one_task(tmp_path: Path) -> None:
    uri, runner = indexed(tmp_path / "t", "BTREE", "BITMAP", "IVF_PQ"), Pickling(1)
    compacted(uri, Job(runner=runner))
    ((task,),) = runner.rounds
    assert len(task.segments) == 3


@pytest.mark.parametrize("here", [False, True], ids=["in tasks", "here"])
def test_the_process_that_commits_touches_no_index_file_where_tasks_do(
    tmp_path: Path, here: bool
) -> None:
    store = CountingStore(open_store(indexed(tmp_path / "t", "BTREE", "IVF_PQ")))
    dataset = glaive.LanceDataset.of(store, open_latest(store))
    job = LOCAL if here else Job(runner=Pickling(2))
    store.reset()
    compact(dataset.opened, CompactionOptions.of({}, {}), job=job)
    assert any(request.path.startswith("data/") for request in store.log)
    assert any(request.path.startswith("_indices/") for request in store.log) == here


def test_what_is_deferred_needs_no_task(tmp_path: Path) -> None:
    uri, runner = indexed(tmp_path / "t", "BTREE", "IVF_PQ"), Pickling(2)
    before = {kind: found(glaive.dataset(uri), kind) for kind in ("BTREE", "IVF_PQ")}
    compacted(uri, Job(runner=runner), defer_index_remap=True)
    assert runner.rounds == []
    dataset = glaive.dataset(uri)
    assert "__lance_frag_reuse" in [entry.name for entry in dataset.manifest.indices]
    assert {kind: found(dataset, kind, fast_search=True) for kind in before} == before


class Meanwhile(Pickling):
    """Runs tasks, then another writer commits."""

    def __init__(self, write: Callable[[], object]) -> None:
        super().__init__(2)
        self.write = write

    def run(self, dataset: Any, tasks: Any, shared: object = None) -> list[Any]:
        results = super().run(dataset, tasks, shared)
        self.write()
        return results


def another_index(uri: str) -> None:
    glaive.dataset(uri).create_scalar_index("n", "BITMAP", name="late")


def the_index_again(uri: str) -> None:
    glaive.dataset(uri).create_scalar_index("n", "BTREE", name="BTREE", replace=True)


def deleted_rows(uri: str) -> None:
    glaive.dataset(uri).delete("id = 300")


@pytest.mark.parametrize("write", [another_index, the_index_again, deleted_rows])
def test_a_change_of_the_same_fragments_meanwhile_is_a_conflict(
    tmp_path: Path, write: Callable[[str], None]
) -> None:
    uri = indexed(tmp_path / "t", "BTREE")
    runner = Meanwhile(lambda: write(uri))
    with pytest.raises(CommitConflictError):
        compacted(uri, Job(runner=runner))
    dataset = glaive.dataset(uri)
    assert len(dataset.get_fragments()) == 4
    assert found(dataset, "BTREE", fast_search=True) == found(
        dataset, "BTREE", use_scalar_index=False
    )


def test_files_of_the_second_attempts_are_removed_after_a_conflict(tmp_path: Path) -> None:
    """Those of the first ones nobody knows: clean-up finds them."""
    uri = indexed(tmp_path / "t", "BTREE", "BITMAP")
    before = folders(uri)
    written: list[set[str]] = []

    def write() -> None:
        written.append({path.parent.name for path in Path(uri).glob("_indices/*/*")} - before)
        deleted_rows(uri)

    with pytest.raises(CommitConflictError):
        compacted(uri, Job(runner=Meanwhile(write)))
    left = {path.parent.name for path in Path(uri).glob("_indices/*/*")} - before
    assert len(written[0]) == 4
    assert len(left) == 2
    glaive.dataset(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert folders(uri) == before


def test_an_index_that_was_dropped_meanwhile_stays_dropped(tmp_path: Path) -> None:
    uri = indexed(tmp_path / "t", "BTREE", "BITMAP")
    runner = Meanwhile(lambda: glaive.dataset(uri).drop_index("BTREE"))
    compacted(uri, Job(runner=runner))
    dataset = glaive.dataset(uri)
    assert [entry.name for entry in dataset.manifest.indices] == ["BITMAP"]
    assert len(dataset.get_fragments()) == 1
    expected = found(dataset, "BITMAP", use_scalar_index=False)
    assert found(dataset, "BITMAP", fast_search=True) == expected


def test_rows_that_are_appended_meanwhile_are_found(tmp_path: Path) -> None:
    uri = indexed(tmp_path / "t", "BTREE")
    late = glaive.dataset(uri).to_table(filter="n = 3", limit=1)
    runner = Meanwhile(lambda: glaive.write_dataset(late, uri, mode="append"))
    expected = len(found(glaive.dataset(uri), "BTREE")) + 1
    compacted(uri, Job(runner=runner))
    assert len(found(glaive.dataset(uri), "BTREE")) == expected
    assert glaive.dataset(uri).stats.index_stats("BTREE")["num_unindexed_rows"] == 1


def test_a_damaged_segment_ends_the_job_with_the_table_as_it_was(tmp_path: Path) -> None:
    uri = indexed(tmp_path / "t", "BTREE", "BITMAP")
    (file,) = Path(uri).glob("_indices/*/bitmap_page_lookup.lance")
    file.write_bytes(file.read_bytes()[:100])
    before = glaive.dataset(uri).manifest.indices
    with pytest.raises(NotLanceError, match="bitmap_page_lookup"):
        compacted(uri, Job(runner=Pickling(2)))
    dataset = glaive.dataset(uri)
    assert dataset.manifest.indices == before
    assert len(dataset.get_fragments()) == 4


def test_a_cluster_rebuilds_the_indices_of_a_compaction(
    spark: SparkSession, tmp_path: Path
) -> None:
    kinds = ("BTREE", "INVERTED", "IVF_PQ")
    uri = indexed(tmp_path / "t", *kinds)
    before = {kind: found(glaive.dataset(uri), kind) for kind in kinds}
    old = folders(uri)
    counts = LanceTable.forPath(spark, uri).optimize().executeCompaction(job_id="tonight")
    assert counts["fragments_removed"] == 4
    dataset = glaive.dataset(uri)
    assert {kind: found(dataset, kind, fast_search=True) for kind in kinds} == before
    assert len(folders(uri) - old) == 3
    again = LanceTable.forPath(spark, uri).optimize().executeCompaction(job_id="tonight")
    assert again == counts
