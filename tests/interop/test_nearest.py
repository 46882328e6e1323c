"""Exact search finds what pylance finds: types, distances, projections, histories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS, DIMENSION = 1200, 12
FLOATS = ("f16", "f32", "f64")
METRICS = ("l2", "cosine", "dot")


def lists(flat: pa.Array, mask: Any = None) -> pa.Array:
    mask = None if mask is None else pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(flat, DIMENSION, mask=mask)


def table(rows: int = ROWS, seed: int = 4) -> pa.Table:
    random = np.random.default_rng(seed)
    numbers = random.normal(size=rows * DIMENSION).astype(np.float32)
    numbers[: 3 * DIMENSION : DIMENSION] = [np.nan, np.inf, 0]
    vectors = numbers.reshape(rows, DIMENSION)
    several = [None if i % 7 == 3 else vectors[i : i + i % 4].tolist() for i in range(rows)]
    columns = {
        "id": pa.array(np.arange(rows)),
        "f16": lists(pa.array(numbers.astype(np.float16))),
        "f32": lists(pa.array(numbers), mask=random.random(rows) < 0.1),
        "f64": lists(pa.array(numbers.astype(np.float64))),
        "u8": lists(pa.array(random.integers(0, 256, rows * DIMENSION).astype(np.uint8))),
        "several": pa.array(several, pa.list_(pa.list_(pa.float32(), DIMENSION))),
    }
    return pa.table(columns)


@pytest.fixture(scope="module", params=["2.0", "2.2", "stable"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dataset with deleted, updated and appended rows, opened by pylance and by glaive."""
    path = str(tmp_path_factory.mktemp("nearest") / "d.lance")
    stable = request.param == "stable"
    version = "2.1" if stable else request.param
    options: Any = {"data_storage_version": version, "max_rows_per_file": 500}
    dataset = lance.write_dataset(table(), path, enable_stable_row_ids=stable, **options)
    dataset.delete("id % 11 = 5")
    dataset.update({"id": "id + 100000"}, where="id % 50 = 8")
    dataset.insert(table(300, seed=9))
    return lance.dataset(path), glaive.dataset(path)


def same(both: Any, columns: Any = ("id",), **options: Any) -> Any:
    columns = list(columns) if isinstance(columns, tuple) else columns
    theirs, ours = (one.to_table(columns=columns, **options) for one in both)
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == theirs.schema.types
    np.testing.assert_allclose(
        ours["_distance"].to_numpy(), theirs["_distance"].to_numpy(), rtol=2e-4, atol=2e-5
    )
    # Rows may change places where distances are equal but for rounding.
    rounded = np.round(theirs["_distance"].to_numpy(), 3)
    if len(np.unique(rounded)) == len(rounded):
        assert ours["id"].to_pylist() == theirs["id"].to_pylist()
    else:
        assert sorted(ours["id"].to_pylist())[:1] == sorted(theirs["id"].to_pylist())[:1]
    return ours


def query(seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=DIMENSION).astype(np.float32)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("metric", [*METRICS, None])
@pytest.mark.parametrize("column", FLOATS)
def test_floats_of_all_kinds(both: Any, column: str, metric: str | None) -> None:
    nearest = {"column": column, "q": query(), "k": 8}
    if metric is not None:
        nearest["metric"] = metric
    assert same(both, nearest=nearest).num_rows == 8
    nearest["q"] = np.stack([query(seed) for seed in range(6)])
    assert same(both, nearest=nearest).num_rows == 48


def test_bytes(both: Any) -> None:
    octets = np.arange(DIMENSION, dtype=np.uint8) * 20
    theirs, ours = (
        one.to_table(columns=["id"], nearest={"column": "u8", "q": octets, "k": 9}) for one in both
    )
    assert ours.to_pydict() == theirs.to_pydict()


@pytest.mark.parametrize("metric", METRICS)
def test_several_vectors_per_row(both: Any, metric: str) -> None:
    queries = np.stack([query(1), query(2), query(3)])
    for given in (queries, queries[0]):
        same(both, nearest={"column": "several", "q": given, "k": 7, "metric": metric})


@pytest.mark.parametrize("metric", METRICS)
def test_all_rows_that_have_a_distance(both: Any, metric: str) -> None:
    nearest = {"column": "f32", "q": query(), "k": 5000, "metric": metric}
    theirs, ours = (one.to_table(columns=["id"], nearest=nearest) for one in both)
    assert sorted(ours["id"].to_pylist()) == sorted(theirs["id"].to_pylist())


@pytest.mark.parametrize(
    "options",
    [
        {"filter": "id % 3 = 0"},
        {"filter": "id % 3 = 0", "prefilter": True},
        {"filter": "id < 40", "prefilter": True},
        {"limit": 3, "offset": 2},
        {"with_row_id": True},
        {"filter": "_distance < 8"},
    ],
    ids=str,
)
def test_options_of_scans(both: Any, options: dict[str, Any]) -> None:
    same(both, nearest={"column": "f32", "q": query(), "k": 12}, **options)


@pytest.mark.parametrize(
    "columns", [None, ["_distance", "id"], {"id": "id", "twice": "id * 2", "near": "_distance + 1"}]
)
def test_columns(both: Any, columns: Any) -> None:
    same(both, columns, nearest={"column": "f32", "q": query(), "k": 4})
