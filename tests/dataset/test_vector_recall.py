"""Indices built for a recall reach it, remember how, and tell what they reach."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive import LanceDataset
from glaive.errors import OptionError
from glaive.format.pb import vector_details_pb2
from glaive.index.vector.opened import SearchDefaults, with_defaults

ROWS, DIMENSION = 3000, 16


def clustered(count: int, seed: int = 1) -> Any:
    random = np.random.default_rng(0)
    centers = random.normal(size=(60, DIMENSION))
    random = np.random.default_rng(seed)
    near = random.normal(size=(count, DIMENSION)) * 0.4
    return (centers[random.integers(0, 60, count)] + near).astype(np.float32)


def table_of(vectors: Any, first: int = 0) -> pa.Table:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({"id": np.arange(first, first + len(vectors)), "vector": lists})


VECTORS = clustered(ROWS)


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return glaive.write_dataset(table_of(VECTORS), str(tmp_path / "d.lance"))


def recall_of(dataset: LanceDataset, vectors: Any, **nearest: Any) -> float:
    hits = 0
    queries = clustered(30, seed=9)
    for query in queries:
        search = {"column": "vector", "q": query, "k": 10} | nearest
        found = dataset.to_table(["id"], nearest=search)["id"].to_pylist()
        far = np.square(vectors - query).sum(axis=1)
        hits += len(set(found) & set(np.argsort(far)[:10].tolist()))
    return hits / 10 / len(queries)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ"])
def test_searches_without_parameters_reach_the_recall(dataset: LanceDataset, kind: str) -> None:
    dataset.create_index("vector", kind, recall=0.9)
    assert recall_of(dataset, VECTORS) >= 0.9
    reported = dataset.stats.index_stats("vector_idx")
    assert reported["recall"] >= 0.9
    assert reported["share_unindexed"] == 0
    assert reported["search_defaults"]["recall"] == 0.9
    explained = dataset.scanner(nearest={"column": "vector", "q": VECTORS[0]}).explain_plan()
    assert "partitions" in explained


def test_what_a_query_says_comes_first(dataset: LanceDataset) -> None:
    dataset.create_index("vector", "IVF_PQ", recall=0.95, num_sub_vectors=2)
    assert dataset.stats.index_stats("vector_idx")["search_defaults"]["refine_factor"] > 1
    assert recall_of(dataset, VECTORS, nprobes=1, refine_factor=1) < recall_of(dataset, VECTORS)


@pytest.mark.spec("vector-40")
def test_the_defaults_outlive_optimizing_and_compaction(dataset: LanceDataset) -> None:
    dataset.create_index("vector", "IVF_SQ", recall=0.9)
    chosen = dataset.stats.index_stats("vector_idx")["search_defaults"]
    more = clustered(600, seed=4)
    dataset = glaive.write_dataset(table_of(more, ROWS), dataset.uri, mode="append")
    assert dataset.stats.index_stats("vector_idx")["share_unindexed"] == pytest.approx(1 / 6)
    dataset.optimize.optimize_indices()
    assert dataset.stats.index_stats("vector_idx")["search_defaults"] == chosen
    dataset.delete("id < 100")
    dataset.optimize.compact_files()
    assert dataset.stats.index_stats("vector_idx")["search_defaults"] == chosen
    dataset.optimize.optimize_indices(retrain=True)
    again = dataset.stats.index_stats("vector_idx")
    assert again["search_defaults"]["recall"] == 0.9
    assert again["recall"] >= 0.85


def test_indices_built_without_it_have_no_defaults(dataset: LanceDataset) -> None:
    dataset.create_index("vector", "IVF_FLAT", num_partitions=4)
    reported = dataset.stats.index_stats("vector_idx", recall_queries=10)
    assert reported["search_defaults"] is None
    assert 0.5 < reported["recall"] <= 1
    assert dataset.stats.index_stats("vector_idx", recall_queries=0)["recall"] is None


def test_an_index_of_vectors_of_another_length_has_no_recall(
    dataset: LanceDataset, tmp_path: Path
) -> None:
    dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
    other = glaive.write_dataset(table_of(clustered(300)[:, :8].copy()), str(tmp_path / "o.lance"))
    other.create_index("vector", "IVF_FLAT", num_partitions=2)
    folders = [Path(one.uri, "_indices") for one in (dataset, other)]
    ours, theirs = (next(folder.iterdir()) for folder in folders)
    copytree(theirs, ours, dirs_exist_ok=True)
    opened = glaive.dataset(dataset.uri)
    assert opened.stats.index_stats("vector_idx")["recall"] is None
    assert recall_of(opened, VECTORS) == 1


@pytest.mark.parametrize("recall", [0, 1, -0.5, "much", True])
def test_a_recall_is_between_0_and_1(dataset: LanceDataset, recall: Any) -> None:
    with pytest.raises(OptionError, match="recall: expected a number between 0 and 1"):
        dataset.create_index("vector", "IVF_FLAT", recall=recall)


def test_a_recall_out_of_reach_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    vectors = random.normal(size=(4000, 32)).astype(np.float32)
    dataset = glaive.write_dataset(table_of(vectors), str(tmp_path / "d.lance"))
    with pytest.raises(OptionError, match=r"reaches 0\.\d+, not 0\.999"):
        dataset.create_index("vector", "IVF_PQ", recall=0.999, num_sub_vectors=1)
    assert dataset.describe_indices() == []
    assert not [path for path in tmp_path.rglob("*.idx") if path.is_file()]


def test_several_vectors_in_a_row_are_refused(tmp_path: Path) -> None:
    lists = pa.array([[[1.0, 2.0]]] * 8, pa.list_(pa.list_(pa.float32(), 2)))
    dataset = glaive.write_dataset(pa.table({"vector": lists}), str(tmp_path / "d.lance"))
    with pytest.raises(OptionError, match="several vectors in a row"):
        dataset.create_index("vector", "IVF_FLAT", metric="cosine", recall=0.9)


@pytest.mark.parametrize(
    "hints",
    [
        {"glaive.nprobes": "many", "glaive.recall": "0.9"},
        {"glaive.nprobes": "99999999999999999999", "glaive.recall": "0.9"},
        {"glaive.nprobes": "0", "glaive.recall": "0.9"},
        {"glaive.nprobes": "3", "glaive.recall": "nan"},
        {"glaive.nprobes": "3"},
    ],
    ids=["text", "large", "none", "recall", "alone"],
)
def test_defaults_that_nobody_chose_are_passed_over(hints: dict[str, str]) -> None:
    details = vector_details_pb2.VectorIndexDetails(runtime_hints=hints)
    assert SearchDefaults.of(details.SerializeToString(), "here") is None
    stored = with_defaults(details.SerializeToString(), SearchDefaults(3, None, 0.8), "here")
    assert SearchDefaults.of(stored, "here") == SearchDefaults(3, None, 0.8)
