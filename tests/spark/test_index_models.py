"""Models of vector indices that are trained in tasks: they are those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.index.vector.sources import clustered, lists_of
from tests.spark.pickling import Pickling

import glaive
from glaive.dataset.indexing.create import vector_task
from glaive.dataset.tasks import Job
from glaive.errors import GlaiveError, NotLanceError, OptionError
from glaive.index.segment import Segment
from glaive.index.vector.index_writer import StoredIndex
from glaive.spark import LanceTable
from glaive.spark.lance_table.maintenance import build_index

ROWS, DIMENSION = 2400, 16


def build(uri: str, kind: str, parallelism: int = 3, **parameters: Any) -> list[StoredIndex]:
    """Build an index in tasks; its segments."""
    return build_with(Pickling(parallelism), uri, kind, **parameters)


def build_with(
    runner: Any, uri: str, kind: str, segments: int | None = None, **parameters: Any
) -> list[StoredIndex]:
    opened = glaive.dataset(uri).opened
    arguments = {
        "column": "v", "index_type": kind, "name": None, "parameters": parameters,
        "metric": parameters.pop("metric", "l2"), "fragment_ids": None, "index_uuid": None,
        "skip_transpose": None,
    }  # fmt: skip
    task = vector_task(opened, arguments)
    build_index(opened, Job(runner=runner), task, replaces=True, segments=segments)
    return stored(uri)


def stored(uri: str) -> list[StoredIndex]:
    opened = glaive.dataset(uri).opened
    segments = [Segment.of(opened.store, opened.manifest, one) for one in opened.manifest.indices]
    return [StoredIndex(segment) for segment in segments if segment.sizes()]


def written(folder: Path, vectors: Any, fragments: int = 4) -> str:
    table = pa.table({"id": np.arange(len(vectors)), "v": vectors})
    rows = max(1, -(-len(vectors) // fragments))
    glaive.write_dataset(table, folder / "t.lance", max_rows_per_file=rows)
    return str(folder / "t.lance")


KINDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "pq": (np.float32, "IVF_PQ", {"num_sub_vectors": 4, "num_partitions": 5, "max_iters": 9}),
    "pq of cosine": (np.float32, "IVF_PQ", {"num_sub_vectors": 8, "metric": "cosine"}),
    "pq of dot": (np.float32, "IVF_PQ", {"num_sub_vectors": 2, "metric": "dot", "max_iters": 9}),
    "pq of float16": (np.float16, "IVF_PQ", {"num_sub_vectors": 4, "target_partition_size": 300}),
    "pq of 4 bits": (np.float64, "IVF_PQ", {"num_sub_vectors": 4, "num_bits": 4}),
    "pq in a graph": (np.float32, "IVF_HNSW_PQ", {"num_sub_vectors": 4, "ef_construction": 20}),
    "sq": (np.float32, "IVF_SQ", {"num_partitions": 3}),
    "sq of cosine": (np.float16, "IVF_HNSW_SQ", {"metric": "cosine", "ef_construction": 20}),
    "rq": (np.float32, "IVF_RQ", {"num_partitions": 3}),
    "flat": (np.float32, "IVF_FLAT", {"target_partition_size": 300, "sample_rate": 50}),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", KINDS)
def test_segments_have_the_model_that_one_process_trains(tmp_path: Path, name: str) -> None:
    number, kind, options = KINDS[name]
    vectors = lists_of(clustered(ROWS, DIMENSION).astype(number))
    holes = pa.array(np.arange(ROWS) % 10 == 3)
    uri = written(tmp_path, pa.compute.if_else(holes, pa.scalar(None, vectors.type), vectors))
    glaive.dataset(uri).create_index("v", kind, **options)
    (alone,) = stored(uri)
    together = build(uri, kind, **options)
    assert len(together) == 3
    assert {segment.signature for segment in together} == {alone.signature}
    dtype = alone.model().dtype
    expected = np.concatenate([records for _, records in alone.records(dtype)])
    found = np.concatenate([part for one in together for _, part in one.records(dtype)])
    assert len(found) == ROWS * 9 // 10
    assert np.array_equal(np.sort(found, order="_rowid"), np.sort(expected, order="_rowid"))


def test_more_tasks_than_parts_are_not_started(tmp_path: Path) -> None:
    uri = written(tmp_path, lists_of(clustered(600, DIMENSION)))
    runner = Pickling(3)
    build_with(runner, uri, "IVF_PQ", num_sub_vectors=2, max_iters=2)
    assert list(map(len, runner.rounds)) == [2, 3]


def test_parts_of_a_codebook_are_trained_in_tasks_for_one_segment_too(tmp_path: Path) -> None:
    uri = written(tmp_path, lists_of(clustered(600, DIMENSION)), fragments=1)
    runner = Pickling(2)
    (together,) = build_with(runner, uri, "IVF_PQ", num_sub_vectors=4, max_iters=2)
    options: dict[str, Any] = {"num_sub_vectors": 4, "max_iters": 2, "replace": True}
    glaive.dataset(uri).create_index("v", "IVF_PQ", **options)
    assert list(map(len, runner.rounds)) == [2, 1]
    assert together.signature == stored(uri)[0].signature


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_default_of_sub_vectors_does_not_depend_on_the_cluster(
    tmp_path: Path, parallelism: int
) -> None:
    uri = written(tmp_path, lists_of(clustered(600, 32)))
    segments = build(uri, "IVF_PQ", parallelism, max_iters=2)
    assert {segment.parameters().num_sub_vectors for segment in segments} == {2}


def test_centroids_that_are_given_get_a_codebook_of_all_segments(tmp_path: Path) -> None:
    vectors = clustered(900, DIMENSION)
    uri = written(tmp_path, lists_of(vectors))
    np.save(tmp_path / "centroids.npy", vectors[:7])
    given = str(tmp_path / "centroids.npy")
    segments = build(
        uri, "IVF_PQ", num_sub_vectors=4, ivf_centroids_file=given, max_iters=2, num_partitions=7
    )
    assert len(segments) == 3
    assert len({segment.signature for segment in segments}) == 1
    assert np.array_equal(segments[0].model().centroids, vectors[:7])


@pytest.mark.parametrize("kind", ["IVF_SQ", "IVF_HNSW_SQ"])
def test_centroids_that_are_given_get_bounds_of_all_segments(tmp_path: Path, kind: str) -> None:
    vectors = clustered(900, DIMENSION)
    vectors[0, 0], vectors[-1, 0] = -90, 70
    segments = build(written(tmp_path, lists_of(vectors)), kind, ivf_centroids=vectors[:7])
    assert len(segments) == 3
    assert len({segment.signature for segment in segments}) == 1


def test_rows_of_several_vectors_have_the_default_of_sub_vectors(tmp_path: Path) -> None:
    flat = lists_of(clustered(900, DIMENSION))
    rows = pa.ListArray.from_arrays(pa.array(range(0, 901, 3), pa.int32()), flat)
    segments = build(written(tmp_path, rows), "IVF_PQ", metric="cosine", max_iters=2)
    assert {segment.parameters().num_sub_vectors for segment in segments} == {1}


def test_an_index_for_a_recall_has_the_partitions_of_one_process(tmp_path: Path) -> None:
    uri = written(tmp_path, lists_of(clustered(1024, DIMENSION)))
    segments = build(uri, "IVF_FLAT", recall=0.9)
    assert {len(segment.storage.partitions) for segment in segments} == {32}
    found = glaive.dataset(uri).to_table(nearest={"column": "v", "q": [0.0] * DIMENSION, "k": 3})
    assert found.num_rows == 3


def test_a_table_with_fewer_rows_than_partitions_is_indexed(tmp_path: Path) -> None:
    uri = written(tmp_path, lists_of(clustered(3, DIMENSION)), fragments=3)
    segments = build(uri, "IVF_PQ", num_sub_vectors=4, num_partitions=50)
    assert {len(segment.storage.partitions) for segment in segments} == {3}
    nearest = {"column": "v", "q": [0.0] * DIMENSION, "k": 9, "nprobes": 3}
    assert glaive.dataset(uri).to_table(nearest=nearest).num_rows == 3


@pytest.mark.parametrize("options", [{}, {"ivf_centroids": clustered(2, DIMENSION)}])
def test_a_column_without_a_vector_is_indexed_by_an_entry_without_files(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    uri = written(tmp_path, pa.nulls(40, lists_of(clustered(1, DIMENSION)).type))
    assert build(uri, "IVF_PQ", num_sub_vectors=4, **options) == []
    dataset = glaive.dataset(uri)
    assert dataset.stats.index_stats("v_idx")["num_unindexed_fragments"] == 4
    nearest = {"column": "v", "q": [0.0] * DIMENSION, "k": 9}
    assert dataset.to_table(nearest=nearest).num_rows == 0


def test_an_index_of_an_empty_table_waits_for_rows(tmp_path: Path) -> None:
    vectors = lists_of(clustered(50, DIMENSION))
    uri = str(tmp_path / "t.lance")
    glaive.write_dataset(pa.table({"id": np.arange(0), "v": vectors[:0]}), uri)
    assert build(uri, "IVF_PQ", num_sub_vectors=4) == []
    glaive.write_dataset(pa.table({"id": np.arange(50), "v": vectors}), uri, mode="append")
    dataset = glaive.dataset(uri)
    dataset.optimize.optimize_indices()
    assert dataset.stats.index_stats("v_idx")["num_indexed_rows"] == 50


def test_a_damaged_sample_ends_the_build_and_leaves_nothing(tmp_path: Path) -> None:
    uri = written(tmp_path, lists_of(clustered(900, DIMENSION)))
    damaged = sorted(Path(uri, "data").iterdir())[2]
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(NotLanceError, match=damaged.name):
        build(uri, "IVF_PQ", num_sub_vectors=4, ivf_centroids=clustered(2, DIMENSION))
    assert glaive.dataset(uri).version == 1
    assert not Path(uri, "_indices").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_sub_vectors": 5}, "num_sub_vectors"),
        ({"recall": 2}, "recall"),
        ({"num_sub_vectors": 4, "num_partitions": "x"}, "num_partitions"),
    ],
)
def test_wrong_parameters_are_refused_before_any_task(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    uri = written(tmp_path, lists_of(clustered(40, DIMENSION)))
    runner = Pickling(2)
    with pytest.raises(OptionError, match=message):
        build_with(runner, uri, "IVF_PQ", **options)
    assert runner.rounds == []


def test_product_codes_of_a_column_that_has_no_vectors_are_refused_by_its_type(
    tmp_path: Path,
) -> None:
    uri = written(tmp_path, pa.array(range(40)))
    with pytest.raises(GlaiveError, match=r"int64"):
        build_with(Pickling(2), uri, "IVF_PQ")


def recall(uri: str, queries: Any) -> float:
    """Share of the ten nearest rows that searches of the index find."""
    dataset, shared = glaive.dataset(uri), 0
    for query in queries:
        nearest = {"column": "v", "q": query, "k": 10, "nprobes": 2}
        found, exact = (
            set(dataset.to_table(["id"], nearest=nearest | {"use_index": used})["id"].to_pylist())
            for used in (True, False)
        )
        shared += len(found & exact)
    return shared / (10 * len(queries))


def test_a_cluster_trains_a_model_as_good_as_that_of_one_process_once_for_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    vectors = clustered(ROWS, DIMENSION)
    uri = written(tmp_path, lists_of(vectors))
    glaive.dataset(uri).create_index("v", "IVF_PQ", num_sub_vectors=4, num_partitions=5)
    alone = recall(uri, vectors[:100:5])
    table = LanceTable.forPath(spark, uri)
    options: dict[str, Any] = {"num_sub_vectors": 4, "num_partitions": 5, "job_id": "tonight"}
    counts = table.createIndex("v", "ivf_pq", segments=2, **options)
    assert (counts["num_segments"], counts["version"]) == (2, 3)
    assert len({segment.signature for segment in stored(uri)}) == 1
    assert 0.3 < alone < 0.9
    assert recall(uri, vectors[:100:5]) == pytest.approx(alone, abs=0.02)
    assert table.createIndex("v", "ivf_pq", segments=2, **options) == counts
    assert glaive.dataset(uri).version == 3
