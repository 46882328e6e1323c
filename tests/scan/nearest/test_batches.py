"""A batch of queries finds by an index what each of its queries finds alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import glaive
from glaive.scan.nearest.vectors import Found, TopRows

_DIMENSION = 8


def _table(rows: int, *, repeats: int = 1) -> pa.Table:
    """Rows with vectors, each of them ``repeats`` times."""
    rng = np.random.default_rng(3)
    vectors = np.repeat(rng.normal(size=(rows // repeats, _DIMENSION)), repeats, axis=0)
    flat = pa.array(vectors.astype(np.float32).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, _DIMENSION)
    return pa.table({"v": lists, "id": np.arange(rows)})


def _queries(count: int) -> NDArray[np.float32]:
    return np.random.default_rng(4).normal(size=(count, _DIMENSION)).astype(np.float32)


def _found(dataset: glaive.LanceDataset, query: Any, **options: Any) -> list[tuple[int, float]]:
    nearest = {"column": "v", "q": query, "k": 5, **options}
    table = dataset.to_table(["id", "_distance"], nearest=nearest)
    return list(zip(table["id"].to_pylist(), table["_distance"].to_pylist(), strict=True))


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("kind", ["IVF_SQ", "IVF_HNSW_SQ"])
@pytest.mark.parametrize("repeats", [1, 4])
def test_a_batch_finds_what_its_queries_find(
    tmp_path: Path, kind: str, metric: str, repeats: int
) -> None:
    partitions = 1 if kind == "IVF_HNSW_SQ" else 4
    dataset = glaive.write_dataset(_table(5_200, repeats=repeats), tmp_path / "d")
    dataset.create_index("v", kind, metric=metric, num_partitions=partitions)
    dataset.insert(_table(40))
    dataset.optimize.optimize_indices()  # a second segment
    queries = _queries(6)
    for options in ({"nprobes": 2}, {"nprobes": 2, "refine_factor": 2}):
        alone = [pair for query in queries for pair in _found(dataset, query, **options)]
        assert _found(dataset, queries, **options) == alone


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ", "IVF_HNSW_SQ"])
def test_no_row_and_more_rows_than_there_can_be_may_be_asked_for(tmp_path: Path, kind: str) -> None:
    dataset = glaive.write_dataset(_table(600), tmp_path / "d")
    dataset.create_index("v", kind, num_partitions=2)
    for queries in (_queries(3), _queries(1), _queries(1)[0]):
        nearest = {"column": "v", "q": queries}
        assert dataset.to_table(["id"], nearest=nearest, limit=0).num_rows == 0
        everything = _found(dataset, queries, k=600, nprobes=2, refine_factor=1)
        assert len(everything) == 600 * (queries.size // _DIMENSION)
        for options in ({"k": 2**63}, {"k": 600, "refine_factor": 2**62}):
            assert _found(dataset, queries, **{"nprobes": 2, "refine_factor": 1} | options) == (
                everything
            )


def test_a_graph_without_others_finds_the_nearest_rows_in_order(tmp_path: Path) -> None:
    table = _table(5_200, repeats=2)
    dataset = glaive.write_dataset(table, tmp_path / "d")
    dataset.create_index("v", "IVF_HNSW_SQ", num_partitions=1)
    vectors = np.asarray(table["v"].combine_chunks().values).reshape(-1, _DIMENSION)
    for query in _queries(20):
        found = _found(dataset, query, ef=26)
        far = [distance for _, distance in found]
        assert far == sorted(far)
        assert len(set(found)) == 5
        # Of two rows with the same vector the first comes first.
        assert [row % 2 for row, _ in found] == [0, 1, 0, 1, 0]
        nearest = np.square(vectors - query).sum(axis=1).argsort(kind="stable")[:20]
        assert {row for row, _ in found} <= set(nearest.tolist())


def test_more_queries_than_are_ranked_at_a_time_find_the_same(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(_table(2_000), tmp_path / "d")
    dataset.create_index("v", "IVF_FLAT", num_partitions=300)
    queries = _queries(300)
    found = _found(dataset, queries, nprobes=3)
    for number in (0, 217, 218, 219, 299):
        some = _found(dataset, queries[number], nprobes=3)
        assert found[5 * number : 5 * number + 5] == some


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [None, "IVF_FLAT"])
@pytest.mark.parametrize(
    ("element", "size"),
    [
        *(("float32", size) for size in (1e-40, 1e-24, 1e19, 1e30)),
        *(("float64", size) for size in (1e-300, 1e-60, 1e60, 1e300)),
    ],
)
def test_the_cosine_of_vectors_of_any_length_is_that_of_their_directions(
    tmp_path: Path, kind: str | None, element: str, size: float
) -> None:
    directions = np.array([[1, 2, -3, 4], [1, 1, 1, 1], [-1, 2, -3, -4], [5, 0, 0, 0]] * 75, float)
    lengths = np.where(np.arange(len(directions)) // 4 % 2, size, 1)[:, None]
    vectors = (directions * lengths).astype(element)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 4)
    table = pa.table({"v": lists, "id": np.arange(len(vectors))})
    dataset = glaive.write_dataset(table, tmp_path / "d")
    if kind is not None:
        dataset.create_index("v", kind, metric="cosine", num_partitions=2)
    query = np.array([3, 1, 0.5, -2])
    cosines = directions @ query / np.linalg.norm(directions, axis=1) / np.linalg.norm(query)
    wanted = np.sort(1 - cosines)
    for queries in (query, np.stack([query, query * size] * 3)):
        for count in (70, len(vectors)):
            options = {"k": count, "metric": "cosine", "nprobes": 2}
            found = _found(dataset, queries.astype(element), **options)
            distances = np.array([distance for _, distance in found]).reshape(-1, count)
            assert len(distances) == queries.size // 4
            assert np.allclose(distances, wanted[:count], atol=1e-3)


@pytest.mark.parametrize("count", [2, 9])
def test_rows_of_two_segments_are_in_order_of_queries_and_distances(count: int) -> None:
    top = TopRows(count, np.full(2, np.inf, np.float32))
    for first in (0, 1):
        places = np.arange(4) * 2 + first
        query = np.array([0, 0, 1, 1], np.int32)
        distances = np.array([1, 3, 1, 3], np.float32) + first
        top.add(Found(query, distances, places.astype(np.uint64), places, places), in_order=True)
    found, kept = top.result(), min(count, 4)
    assert found.query.tolist() == [0] * kept + [1] * kept
    assert found.distance.tolist() == [1.0, 2.0, 3.0, 4.0][:kept] * 2
