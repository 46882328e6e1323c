"""True distances of what an index found: measured in mapped files, or of vectors that are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import ColumnNotFoundError
from glaive.io.local import LocalStore
from glaive.kernels.distances import Queries
from glaive.scan.nearest.indexed import rescore
from glaive.scan.nearest.vectors import Found, VectorQuery, vector_type
from glaive.scan.options import Meter
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import Views

DIMENSION = 64


def written(path: Path, dtype: Any, *, with_nulls: bool = False, fragments: int = 2) -> Any:
    """Fragments of vectors."""
    random = np.random.default_rng(4)
    for part in range(fragments):
        vectors = random.standard_normal((300, DIMENSION)).astype(dtype)
        validity = np.arange(300) % 7 != 0 if with_nulls else np.ones(300, np.bool_)
        flat = pa.array(vectors.reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, DIMENSION, mask=pa.array(~validity))
        table = pa.table({"id": np.arange(300) + 300 * part, "v": lists})
        glaive.write_dataset(table, path, mode="append")
    return glaive.dataset(str(path))


@pytest.mark.sampled(every=2)
@pytest.mark.spec("vector-34")
@pytest.mark.parametrize(
    ("dtype", "with_nulls", "metric", "fragments"),
    [
        (np.float32, False, "l2", 2),
        (np.float32, False, "cosine", 2),
        (np.float16, False, "dot", 2),
        (np.float32, True, "l2", 2),
        (np.float32, False, "l2", 1),
        (np.float32, True, "l2", 1),
    ],
)
def test_every_search_has_the_distances_of_an_exact_one(
    tmp_path: Path, dtype: Any, with_nulls: bool, metric: str, fragments: int
) -> None:
    dataset = written(tmp_path / "v.lance", dtype, with_nulls=with_nulls, fragments=fragments)
    queries = np.random.default_rng(5).standard_normal((4, DIMENSION)).astype(np.float32)
    dataset.create_index("v", "IVF_SQ", metric=metric, num_partitions=2)
    for query in (*queries, queries[:2]):
        asked = {"column": "v", "q": query, "k": 5, "metric": metric}
        exact = dataset.to_table(["id"], nearest={**asked, "use_index": False})
        # The first ones take vectors; later ones have the pages of all fragments at hand.
        for _ in range(3):
            found = dataset.to_table(["id"], nearest={**asked, "refine_factor": 20, "nprobes": 2})
            assert found["id"].to_pylist() == exact["id"].to_pylist()
            np.testing.assert_allclose(found["_distance"], exact["_distance"], rtol=1e-5, atol=1e-5)


def test_rows_that_no_index_covers_are_found_once_where_a_filter_leaves_few(tmp_path: Path) -> None:
    dataset = written(tmp_path / "v.lance", np.float32, fragments=1)
    dataset.create_index("v", "IVF_FLAT", metric="l2", num_partitions=1)
    dataset = written(tmp_path / "v.lance", np.float32, fragments=1)  # ids from 0 on again
    asked = {"column": "v", "q": np.zeros(DIMENSION, np.float32), "k": 20}
    found = dataset.to_table(["id"], nearest=asked, filter="id < 4", prefilter=True)
    assert sorted(found["id"].to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.spec("vector-34")
def test_rows_that_an_index_found_are_compared_again_beside_rows_that_none_covers(
    tmp_path: Path,
) -> None:
    dataset = written(tmp_path / "v.lance", np.float32, fragments=1)
    dataset.create_index("v", "IVF_SQ", metric="l2", num_partitions=1)
    asked = {"column": "v", "q": np.full(DIMENSION, 0.3, np.float32), "k": 9}
    for is_exact in (False, True):
        exact, found = (
            dataset.to_table(["id"], nearest={**asked, "use_index": use}) for use in (False, True)
        )
        near = np.isclose(found["_distance"], exact["_distance"], rtol=1e-6)
        assert near.all() == is_exact
        far = pa.table({"id": [900], "v": pa.array([[9.0] * DIMENSION], found_type(dataset))})
        dataset = glaive.write_dataset(far, dataset, mode="append")


def found_type(dataset: glaive.LanceDataset) -> Any:
    return dataset.schema.field("v").type


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_a_range_of_distances_is_that_of_the_true_ones(tmp_path: Path, metric: str) -> None:
    dataset = written(tmp_path / "v.lance", np.float32)
    dataset.create_index("v", "IVF_SQ", metric=metric, num_partitions=1)
    query = np.random.default_rng(5).standard_normal(DIMENSION).astype(np.float32)
    asked = {"column": "v", "q": query, "k": 600, "metric": metric}
    every = dataset.to_table(["id"], nearest={**asked, "use_index": False})
    low, high = (every["_distance"][at].as_py() for at in (200, 400))
    within = {**asked, "distance_range": (low, high)}
    exact = dataset.to_table(["id"], nearest={**within, "use_index": False})
    assert exact["id"].to_pylist() == every["id"].to_pylist()[200:400]
    refined = dataset.to_table(["id"], nearest={**within, "refine_factor": 2})
    assert set(refined["id"].to_pylist()) <= set(exact["id"].to_pylist())
    assert refined.num_rows > 150
    few = dataset.to_table(["id"], nearest={**within, "k": 20, "refine_factor": 4})
    assert few.num_rows == 20
    assert len({*few["id"].to_pylist()} & {*exact["id"].to_pylist()[:20]}) > 15


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_RQ"])
def test_codes_that_are_too_far_keep_no_vector_out_of_a_range(
    tmp_path: Path, metric: str, kind: str
) -> None:
    dataset = written(tmp_path / "v.lance", np.float32)
    parameters = {"num_sub_vectors": 1} if kind == "IVF_PQ" else {"num_bits": 1}
    dataset.create_index("v", kind, metric=metric, num_partitions=1, **parameters)
    query = np.random.default_rng(5).standard_normal(DIMENSION).astype(np.float32)
    asked = {"column": "v", "q": query, "k": 600, "metric": metric, "refine_factor": 1}
    every = dataset.to_table(["id"], nearest=asked)
    assert every.num_rows == 600
    for place in (1, 20, 300):
        within = {**asked, "distance_range": (None, every["_distance"][place].as_py())}
        assert dataset.to_table(["id"], nearest=within).equals(every[:place])


def test_an_order_by_a_column_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    dataset = written(tmp_path / "v.lance", np.float32, fragments=1)
    asked = {"column": "v", "q": np.zeros(DIMENSION, np.float32), "k": 3}
    with pytest.raises(ColumnNotFoundError, match="missing"):
        dataset.scanner(columns=["id"], nearest=asked, order_by=["missing"])
    ordered = dataset.scanner(columns=["id"], nearest=asked, order_by=["_distance"]).to_table()
    assert ordered["_distance"].to_pylist() == sorted(ordered["_distance"].to_pylist())


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_vectors_at_no_distance_are_in_no_result_however_few_rows_a_filter_leaves(
    tmp_path: Path, metric: str
) -> None:
    """As no index has them, whether it is asked or the rows that pass are compared one by one."""
    vectors = np.random.default_rng(4).standard_normal((1500, DIMENSION)).astype(np.float32)
    vectors[3] = np.inf
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    rows = pa.table({"id": np.arange(1500), "v": flat})
    dataset = glaive.write_dataset(rows, tmp_path / "v.lance")
    dataset.create_index("v", "IVF_FLAT", metric=metric, num_partitions=1)
    query = -np.ones(DIMENSION, np.float32)
    for passing in (6, 1500):
        asked = {"column": "v", "q": query, "k": passing, "metric": metric}
        found = dataset.to_table(["id"], nearest=asked, filter=f"id < {passing}", prefilter=True)
        assert sorted(found["id"].to_pylist()) == [one for one in range(passing) if one != 3]


@pytest.mark.parametrize("with_nulls", [False, True])
def test_vectors_that_lie_plain_in_mapped_files_are_not_taken(
    tmp_path: Path, *, with_nulls: bool
) -> None:
    dataset = written(tmp_path / "v.lance", np.float32, with_nulls=with_nulls)
    rows = np.arange(1, 300, 7)
    fragment = np.arange(len(rows)) % 2
    queries = Queries(np.random.default_rng(5).standard_normal((2, DIMENSION)).astype(np.float32))
    query = VectorQuery(vector_type(dataset.schema.field("v"), "v"), queries, "l2", len(rows))
    number = (np.arange(len(rows)) > 20).astype(np.int32)
    far = np.zeros(len(rows), np.float32)
    found = Found(number, far, np.arange(len(rows), dtype=np.uint64), fragment, rows)
    source = Views(Snapshot(LocalStore(dataset.uri), dataset.manifest, Session())).scan(("v",))

    taken = []
    for _ in range(3):  # the second one joins the fragments
        meter, top = Meter(), query.top()
        rescore(source, query, found, top, meter)
        taken.append(meter.counts["rows_taken_joined"])
        vectors = dataset.take(fragment * 300 + rows, ["v"])["v"].combine_chunks()
        matrix = vectors.flatten().to_numpy().reshape(-1, DIMENSION)
        true = np.square(matrix - queries.matrix[number]).sum(axis=1)
        best = top.result()
        np.testing.assert_allclose(best.distance, true[best.key.astype(np.int64)], rtol=1e-4)
        assert len(best.key) == len(rows)

    assert taken == [0, len(rows), len(rows) if with_nulls else 0]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_SQ", "IVF_RQ"])
@pytest.mark.parametrize("appended", [0, 2])
def test_what_an_index_finds_is_measured_by_kernels(
    tmp_path: Path, kind: str, appended: int
) -> None:
    """A new process has no compiled kernels yet: its first searches are those of NumPy."""
    written(tmp_path / "t", np.float32, fragments=1).create_index(
        "v", kind, num_partitions=4, **({"num_sub_vectors": 16} if kind == "IVF_PQ" else {})
    )
    dataset = glaive.dataset(tmp_path / "t")
    if appended:
        dataset = written(tmp_path / "t", np.float32, fragments=appended)
    vectors = np.stack(dataset.to_table()["v"].to_numpy())
    nearest = {"column": "v", "q": vectors[0], "k": 5, "nprobes": 4, "refine_factor": 200}
    found = dataset.to_table(columns=["_distance"], nearest=nearest)["_distance"].to_pylist()
    distances = np.sort(((vectors - vectors[0]) ** 2).sum(axis=1))[:5]
    np.testing.assert_allclose(found, distances, rtol=1e-5, atol=1e-6)
