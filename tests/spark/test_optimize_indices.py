"""Indices that tasks bring up to date: searches find what they find after the local operation."""

from __future__ import annotations

import shutil
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
from glaive.dataset.indexing.optimize import optimize_indices
from glaive.dataset.tasks import Job
from glaive.errors import CommitConflictError, DataFileMissingError, IndexNotFoundError, OptionError
from glaive.index.segment import Segment
from glaive.index.vector.index_writer import StoredIndex
from glaive.spark import LanceTable
from glaive.table.index_coverage import covered_fragments

ROWS, NEW, DIMENSION = 600, 200, 8
VECTORS = clustered(ROWS + NEW, DIMENSION).astype(np.float32)

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "BTREE": ("n", {}),
    "BITMAP": ("n", {}),
    "ZONEMAP": ("n", {}),
    "INVERTED": ("s", {}),
    "IVF_FLAT": ("v", {"num_partitions": 2}),
    "IVF_PQ": ("v", {"num_partitions": 2, "num_sub_vectors": 2, "max_iters": 3}),
}
VECTOR_KINDS = [kind for kind, (column, _) in KINDS.items() if column == "v"]

OPTIONS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "none merged": {"num_indices_to_merge": 0},
    "one merged": {"num_indices_to_merge": 1},
    "built again": {"retrain": True},
}


def rows(start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop)
    columns = {"id": numbers, "n": numbers % 7, "s": [f"word{n % 9} of all" for n in numbers]}
    return pa.table({**columns, "v": lists_of(VECTORS[start:stop])})


def indexed(uri: Path, *kinds: str) -> str:
    """A dataset of two fragments with indices, and four fragments that were appended since."""
    dataset = glaive.write_dataset(rows(0, ROWS), uri, max_rows_per_file=300)
    for kind in kinds:
        column, options = KINDS[kind]
        build: Any = dataset.create_index if column == "v" else dataset.create_scalar_index
        build(column, kind, name=kind.lower(), **options)
    glaive.write_dataset(rows(ROWS, ROWS + NEW), str(uri), mode="append", max_rows_per_file=60)
    return str(uri)


def updated(uri: str, runner: Any, **options: Any) -> glaive.LanceDataset:
    """The dataset after a job that the runner ran."""
    assert optimize_indices(glaive.dataset(uri).opened, job=Job(runner=runner), **options)
    return glaive.dataset(uri)


def kinds_of_tasks(runner: Pickling) -> list[list[str]]:
    return [[type(task).__name__ for task in tasks] for tasks in runner.rounds]


def segments(dataset: glaive.LanceDataset, name: str) -> list[list[int]]:
    entries = [entry for entry in dataset.manifest.indices if entry.name == name]
    return [sorted(covered_fragments(entry) or ()) for entry in entries]


def signatures(dataset: glaive.LanceDataset) -> set[Any]:
    """Of the models of all segments."""
    opened = dataset.opened
    entries = [Segment.of(opened.store, opened.manifest, one) for one in opened.manifest.indices]
    return {StoredIndex(one).signature for one in entries}


def found(dataset: Any, kind: str) -> list[Any]:
    """What searches by the index find, and nothing that is in no segment."""
    column, _ = KINDS[kind]
    if column == "v":
        nearest = {"column": "v", "q": VECTORS[ROWS + 9], "k": 700, "nprobes": 2}
        answer = dataset.to_table(["id", "_distance"], nearest=nearest, fast_search=True)
        return sorted(answer.to_pylist(), key=lambda row: row["id"])
    if column == "s":
        query = {"query": "word3", "columns": ["s"]}
        answer = dataset.to_table(["id"], full_text_query=query, fast_search=True)
    else:
        answer = dataset.to_table(["id"], filter="n = 3", fast_search=True)
    return sorted(answer["id"].to_pylist())


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_searches_find_what_they_find_after_the_local_operation(
    tmp_path: Path, kind: str, options: str
) -> None:
    uri = indexed(tmp_path / "tasks", kind)
    alone = glaive.dataset(shutil.copytree(uri, tmp_path / "alone"))
    before = found(glaive.dataset(uri), kind)
    alone.optimize.optimize_indices(**OPTIONS[options])
    together = updated(uri, Pickling(3), **OPTIONS[options], segments=3)
    expected = found(alone, kind)
    assert len(expected) > len(before) > 0
    assert found(together, kind) == expected
    assert together.stats.index_stats(kind.lower())["num_unindexed_rows"] == 0
    assert together.version == alone.version


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", KINDS)
def test_pylance_finds_rows_by_the_segments_that_tasks_add(tmp_path: Path, kind: str) -> None:
    uri = indexed(tmp_path / "t", kind)
    dataset = updated(uri, Pickling(3), num_indices_to_merge=0, segments=3)
    assert segments(dataset, kind.lower()) == [[0, 1], [2, 3], [4], [5]]
    by_pylance, here = found(lance.dataset(uri), kind), found(dataset, kind)
    if KINDS[kind][0] == "v":
        first, second = ({row["id"] for row in rows} for rows in (by_pylance, here))
        assert len(first & second) >= 0.99 * len(second)
    else:
        assert by_pylance == here


@pytest.mark.parametrize("kind", VECTOR_KINDS)
def test_new_vectors_have_the_model_of_the_others(tmp_path: Path, kind: str) -> None:
    uri = indexed(tmp_path / "t", kind)
    model = signatures(glaive.dataset(uri))
    assert signatures(updated(uri, Pickling(3), num_indices_to_merge=0, segments=3)) == model


@pytest.mark.parametrize("kind", VECTOR_KINDS)
def test_vectors_that_are_indexed_again_share_a_new_model(tmp_path: Path, kind: str) -> None:
    uri = indexed(tmp_path / "t", kind)
    model = signatures(glaive.dataset(uri))
    after = signatures(updated(uri, Pickling(3), retrain=True))
    assert len(after) == 1
    assert after != model


def test_all_indices_are_brought_up_to_date_in_one_round_and_one_version(tmp_path: Path) -> None:
    uri, runner = indexed(tmp_path / "t", "BTREE", "INVERTED", "IVF_FLAT"), Pickling(3)
    version = glaive.dataset(uri).version
    dataset = updated(uri, runner)
    assert kinds_of_tasks(runner) == [["MergeTask"] * 3]
    assert dataset.version == version + 1
    names = {entry.name: segments(dataset, entry.name) for entry in dataset.manifest.indices}
    whole = [[0, 1, 2, 3, 4, 5]]
    assert names == {"btree": whole, "inverted": whole, "ivf_flat": whole}


def test_only_named_indices_are_worked_on(tmp_path: Path) -> None:
    dataset = updated(
        indexed(tmp_path / "t", "BTREE", "BITMAP"), Pickling(2), index_names=["btree"]
    )
    assert segments(dataset, "bitmap") == [[0, 1]]
    assert segments(dataset, "btree") == [[0, 1, 2, 3, 4, 5]]


def with_models_of_their_own(uri: Path) -> str:
    """A dataset whose index has two segments that were trained apart."""
    dataset = glaive.write_dataset(
        rows(0, ROWS), uri, max_rows_per_file=300, enable_stable_row_ids=True
    )
    column, options = KINDS["IVF_PQ"]
    parts: list[Any] = [
        dataset.create_index_uncommitted(
            column, "IVF_PQ", name="ivf_pq", fragment_ids=[fragment], **options
        )
        for fragment in (0, 1)
    ]
    dataset.commit_existing_index_segments("ivf_pq", column, parts)
    return str(uri)


def test_segments_that_cannot_be_merged_get_new_ones_beside_them(tmp_path: Path) -> None:
    uri, runner = with_models_of_their_own(tmp_path / "t"), Pickling(3)
    for start in (0, 40):  # Rows that move keep their ids: pylance needs all segments merged.
        glaive.dataset(uri).merge_insert("id").when_matched_update_all().execute(
            rows(start, start + 9)
        )
    dataset = updated(uri, runner, segments=2)
    assert kinds_of_tasks(runner) == [["MergeTask"], ["ExtendTask", "ExtendTask"]]
    assert segments(dataset, "ivf_pq") == [[0], [1], [2], [3]]
    assert len(found(dataset, "IVF_PQ")) == ROWS


def test_fewer_segments_are_merged_where_not_all_can_be(tmp_path: Path) -> None:
    uri, runner = with_models_of_their_own(tmp_path / "t"), Pickling(3)
    glaive.write_dataset(rows(ROWS, ROWS + NEW), uri, mode="append")
    dataset = updated(uri, runner)
    assert kinds_of_tasks(runner) == [["MergeTask"]]
    assert segments(dataset, "ivf_pq") == [[0], [1, 2]]


def test_segments_that_are_to_be_merged_and_cannot_be_are_built_again(tmp_path: Path) -> None:
    uri, runner = with_models_of_their_own(tmp_path / "t"), Pickling(2)
    glaive.write_dataset(rows(ROWS, ROWS + NEW), uri, mode="append")
    dataset = updated(uri, runner, num_indices_to_merge=2)
    assert kinds_of_tasks(runner) == [["MergeTask"], ["CodebookTask"] * 2, ["SegmentTask"] * 2]
    assert segments(dataset, "ivf_pq") == [[0, 1], [2]]
    assert len(signatures(dataset)) == 1


@pytest.mark.parametrize(
    ("added", "tasks"), [(1 << 16, 1), ((1 << 16) + 1, 2), (5 << 16, 3)], ids=str
)
def test_new_rows_get_as_many_tasks_as_they_are_worth(
    tmp_path: Path, added: int, tasks: int
) -> None:
    dataset = glaive.write_dataset({"id": np.arange(10)}, tmp_path / "t")
    dataset.create_scalar_index("id", "BTREE")
    new = {"id": np.arange(added) + 10}
    glaive.write_dataset(new, dataset, mode="append", max_rows_per_file=1 << 14)
    runner = Pickling(3)
    dataset = updated(dataset.uri, runner, num_indices_to_merge=0)
    assert kinds_of_tasks(runner) == [["ExtendTask"] * tasks]
    counts = [len(fragments) for fragments in segments(dataset, "id_idx")[1:]]
    assert max(counts) - min(counts) <= 1
    assert dataset.count_rows(f"id = {added + 9}") == 1


def test_an_index_with_nothing_to_do_makes_no_task_and_no_version(tmp_path: Path) -> None:
    uri, runner = indexed(tmp_path / "t", "BTREE", "IVF_PQ"), Pickling(3)
    version = updated(uri, runner).version
    assert optimize_indices(glaive.dataset(uri).opened, job=Job(runner=runner)) is None
    assert len(runner.rounds) == 1
    assert glaive.dataset(uri).version == version


class Meanwhile(Pickling):
    """Runs tasks, then another writer commits."""

    def __init__(self, write: Any) -> None:
        super().__init__(2)
        self.write = write

    def run(self, dataset: Any, tasks: Any, shared: object = None) -> list[Any]:
        results = super().run(dataset, tasks, shared)
        self.write()
        return results


def test_rows_that_are_appended_meanwhile_are_scanned(tmp_path: Path) -> None:
    uri = indexed(tmp_path / "t", "BTREE")
    late = pa.table({"id": [9000], "n": [3], "s": [""], "v": lists_of(VECTORS[:1])})
    writer = Meanwhile(lambda: glaive.write_dataset(late, uri, mode="append"))
    dataset = updated(uri, writer)
    assert dataset.stats.index_stats("btree")["num_unindexed_rows"] == 1
    assert 9000 in dataset.to_table(filter="n = 3")["id"].to_pylist()


def test_another_change_of_the_index_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    uri = indexed(tmp_path / "t", "BTREE")
    writer = Meanwhile(glaive.dataset(uri).optimize.optimize_indices)
    opened = glaive.dataset(uri).opened
    with pytest.raises(CommitConflictError):
        optimize_indices(opened, job=Job(runner=writer))
    assert glaive.dataset(uri).version == opened.manifest.version + 1


def test_a_damaged_segment_ends_the_job_without_a_version(tmp_path: Path) -> None:
    uri = indexed(tmp_path / "t", "BTREE")
    version = glaive.dataset(uri).version
    for file in Path(uri, "_indices").glob("*/page_data.lance"):
        file.unlink()
    with pytest.raises(DataFileMissingError, match="page_data"):
        updated(uri, Pickling(2))
    assert glaive.dataset(uri).version == version
    assert len(list(Path(uri, "_indices").iterdir())) == 1


def test_a_cluster_brings_indices_up_to_date_once_for_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = indexed(tmp_path / "t", "BTREE", "IVF_PQ")
    table = LanceTable.forPath(spark, uri)
    version = table.optimizeIndices(job_id="tonight", num_indices_to_merge=0, segments=2)
    assert version == glaive.dataset(uri).version
    dataset = glaive.dataset(uri)
    for name in ("btree", "ivf_pq"):
        assert segments(dataset, name) == [[0, 1], [2, 3], [4, 5]]
    assert len(found(dataset, "IVF_PQ")) == 700
    by_pylance = lance.dataset(uri).scanner(["id"], filter="n = 3")
    assert "ScalarIndex" in by_pylance.explain_plan()
    assert sorted(by_pylance.to_table()["id"].to_pylist()) == list(range(3, ROWS + NEW, 7))

    glaive.write_dataset(rows(0, 50), uri, mode="append")
    assert table.optimizeIndices(job_id="tonight", num_indices_to_merge=0) == version
    assert glaive.dataset(uri).stats.index_stats("btree")["num_unindexed_rows"] == 50
    assert table.optimizeIndices(["btree"], retrain=True, job_id="tomorrow") == version + 2
    dataset = glaive.dataset(uri)
    assert [segment for part in segments(dataset, "btree") for segment in part] == list(range(7))
    assert dataset.stats.index_stats("ivf_pq")["num_unindexed_rows"] == 50
    made = table.history().where("job_id = 'tonight'").collect()
    assert [(row.version, row.counts["num_segments_added"]) for row in made] == [(version, 4)]


def test_a_cluster_refuses_what_is_wrong_before_any_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = LanceTable.forPath(spark, indexed(tmp_path / "t", "BTREE"))
    version = table.version
    with pytest.raises(IndexNotFoundError, match='Index "other" not found'):
        table.optimizeIndices(["other"])
    with pytest.raises(OptionError, match="num_indices_to_merge"):
        table.optimizeIndices(num_indices_to_merge=-1)
    with pytest.raises(OptionError, match="segments"):
        table.optimizeIndices(segments=0)
    with pytest.raises(OptionError, match="job_id"):
        table.optimizeIndices(job_id="")
    assert table.version == version
