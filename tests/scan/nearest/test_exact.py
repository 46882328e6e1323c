"""Exact search: the rows that NumPy finds, whatever the type of the vectors, and wrong options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import ColumnNotFoundError, OptionError

ROWS, DIMENSION = 500, 8
QUERY = np.linspace(-1, 1, DIMENSION)


def lists(values: Any, kind: Any, mask: Any = None) -> pa.Array:
    flat = pa.array(np.asarray(values).reshape(-1)).cast(kind)
    mask = None if mask is None else pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(flat, DIMENSION, mask=mask)


def table(seed: int = 0, rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, DIMENSION)).astype(np.float32)
    several = [vectors[i : i + i % 4].tolist() for i in range(rows)]
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "group": pa.array(np.arange(rows) % 10),
            "v": lists(vectors, pa.float32()),
            "f64": lists(vectors, pa.float64()),
            "bits": lists(random.integers(0, 256, (rows, DIMENSION)), pa.uint8()),
            "several": pa.array(several, pa.list_(pa.list_(pa.float32(), DIMENSION))),
            "s": pa.StructArray.from_arrays([lists(vectors, pa.float32())], ["v"]),
            "i8": lists(random.integers(0, 9, (rows, DIMENSION)), pa.int8()),
        }
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> glaive.LanceDataset:
    path = tmp_path_factory.mktemp("exact") / "d.lance"
    return glaive.write_dataset(table(), path, max_rows_per_file=200)


def search(dataset: glaive.LanceDataset, **more: Any) -> tuple[list[int], list[float]]:
    options = {
        key: more.pop(key) for key in ("filter", "prefilter", "limit", "offset") if key in more
    }
    nearest = {"column": "v", "q": QUERY, "k": 5} | more
    found = dataset.to_table(columns=["id"], nearest=nearest, **options)
    return found["id"].to_pylist(), found["_distance"].to_pylist()


def distances(metric: str = "l2") -> Any:
    vectors = np.stack(table()["v"].to_numpy()).astype(float)
    if metric == "l2":
        return np.square(vectors - QUERY).sum(axis=1)
    product = vectors @ QUERY
    if metric == "cosine":
        product /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(QUERY)
    return 1 - product


@pytest.mark.parametrize("column", ["v", "f64", "s.v"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_the_nearest_rows_are_found_in_order(
    dataset: glaive.LanceDataset, column: str, metric: str
) -> None:
    ids, found = search(dataset, column=column, metric=metric)
    wanted = np.argsort(distances(metric))[:5]
    assert ids == wanted.tolist()
    np.testing.assert_allclose(found, distances(metric)[wanted], rtol=1e-5, atol=1e-6)


def test_bytes_are_compared_bit_by_bit(dataset: glaive.LanceDataset) -> None:
    stored = np.stack(dataset.to_table(columns=["bits"])["bits"].to_numpy())
    ids, found = search(dataset, column="bits", q=stored[17], k=2)
    assert (ids[0], found[0]) == (17, 0)
    assert found[1] == np.unpackbits(stored ^ stored[17], axis=1).sum(axis=1)[ids[1]]


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_rows_with_several_vectors_are_as_near_as_the_nearest_of_them(
    dataset: glaive.LanceDataset, metric: str
) -> None:
    queries = np.stack([QUERY, -QUERY[::-1] + 0.5])
    stored = dataset.to_table(columns=["several"])["several"].to_pylist()
    wanted = []
    for row, vectors in enumerate(stored):
        if vectors:
            product = queries @ np.array(vectors).T
            far = 1 - product
            if metric == "cosine":
                lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(queries, axis=1)[:, None]
                far = 1 - product / lengths
            if metric == "l2":
                far = np.square(queries[:, None] - np.array(vectors)).sum(axis=2)
            wanted.append((far.min(axis=1).sum(), row))
    ids, found = search(dataset, column="several", q=queries, metric=metric, k=4)
    assert ids == [row for _, row in sorted(wanted)[:4]] or len(set(np.round(found, 5))) < 4
    np.testing.assert_allclose(found, [far for far, _ in sorted(wanted)[:4]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_batch_finds_what_its_queries_find_alone(
    dataset: glaive.LanceDataset, metric: str, count: int
) -> None:
    queries = np.random.default_rng(3).normal(size=(count, DIMENSION)).astype(np.float32)
    queries[0] = np.stack(dataset.to_table(columns=["v"])["v"].to_numpy())[7]
    nearest = {"column": "v", "q": queries, "k": 6, "metric": metric}
    batch = dataset.to_table(columns=["id"], nearest=nearest)
    assert batch.schema.names == ["query_index", "id", "_distance"]
    assert batch.schema.field("query_index") == pa.field("query_index", pa.int32(), nullable=False)
    for number in range(count):
        alone = search(dataset, q=queries[number], k=6, metric=metric)
        own = batch.slice(number * 6, 6)
        assert own["query_index"].to_pylist() == [number] * 6
        assert own["id"].to_pylist() == alone[0]
        assert own["_distance"].to_pylist() == alone[1]


def test_a_batch_searches_vectors_of_several_pages_and_with_extreme_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    vectors = random.normal(size=(6000, 128)).astype(np.float32)
    vectors[::7, 3] = 1e6  # beside which all others round to nothing
    vectors[11, 5], vectors[12] = 1e20, 0
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 128)
    path = tmp_path / "d.lance"
    data = pa.table({"id": np.arange(6000), "v": column})
    dataset = glaive.write_dataset(data, path, max_page_bytes=1 << 19)
    dataset.delete("id in (2048, 3000)")
    queries = vectors[[7, 500, 2047, 2048, 5999]] + random.normal(size=(5, 128)) / 9
    near = {"column": "v", "q": queries, "k": 4}
    for condition in (None, "id % 5 != 0", "id > 2100 and id < 5000"):
        kept = dataset.to_table(["id"], condition)["id"].to_numpy()
        found = dataset.to_table(["id"], condition, nearest=near, prefilter=True)
        for number, query in enumerate(queries):
            far = np.square(vectors[kept].astype(float) - query).sum(axis=1)
            wanted = kept[np.argsort(far)[:4]]
            assert found["id"].to_numpy()[4 * number : 4 * number + 4].tolist() == wanted.tolist()


def test_vectors_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(40, DIMENSION)).astype(np.float32)
    vectors[3, 2], vectors[4] = np.nan, 0
    column = lists(vectors, pa.float32(), mask=np.arange(40) == 5)
    data = pa.table({"id": np.arange(40), "v": column})
    dataset = glaive.write_dataset(data, tmp_path / "d.lance")
    for query in (QUERY, np.tile(QUERY, (5, 1))):
        for metric, left_out in (("l2", {3, 5}), ("dot", {3, 5}), ("cosine", {3, 4, 5})):
            ids, _ = search(dataset, q=query, k=15, metric=metric)
            all_ids, _ = search(dataset, q=query, k=100, metric=metric)
            assert set(all_ids) == set(range(40)) - left_out
            assert set(ids) <= set(all_ids)


def test_deleted_rows_are_not_found(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(table(), tmp_path / "d.lance", max_rows_per_file=200)
    dataset.delete("id % 3 = 0")
    wanted = [row for row in np.argsort(distances()).tolist() if row % 3][:5]
    assert search(dataset)[0] == wanted
    assert search(dataset, q=np.tile(QUERY, (6, 1)))[0] == wanted * 6


@pytest.mark.parametrize("stable", [False, True])
def test_equal_distances_are_in_the_order_of_row_ids(tmp_path: Path, *, stable: bool) -> None:
    data = pa.table({"id": np.arange(300), "v": lists(np.ones((300, DIMENSION)), pa.float32())})
    dataset = glaive.write_dataset(
        data, tmp_path / "d.lance", max_rows_per_file=70, enable_stable_row_ids=stable
    )
    dataset.update({"id": "id + 1000"}, "id = 20 or id = 90")
    found = dataset.to_table(nearest={"column": "v", "q": QUERY, "k": 95}, with_row_id=True)
    ids = found["_rowid"].to_pylist()
    assert ids == sorted(ids)
    assert ids == sorted(dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist())[:95]
    batch = {"column": "v", "q": np.tile(QUERY, (5, 1)), "k": 95}
    several = dataset.to_table(nearest=batch, with_row_id=True)
    assert several["_rowid"].to_pylist() == ids * 5


def test_a_filter_applies_to_rows_that_were_found_unless_it_comes_first(
    dataset: glaive.LanceDataset,
) -> None:
    order = np.argsort(distances()).tolist()
    assert search(dataset, filter="group = 3")[0] == [row for row in order[:5] if row % 10 == 3]
    first = [row for row in order if row % 10 == 3][:5]
    assert search(dataset, filter="group = 3", prefilter=True)[0] == first
    most = [row for row in order if row % 10 != 3][:5]
    assert search(dataset, filter="group != 3", prefilter=True)[0] == most
    assert search(dataset, filter="id < 0", prefilter=True)[0] == []


def test_filters_of_found_rows_may_use_the_distance(dataset: glaive.LanceDataset) -> None:
    ids, found = search(dataset)
    limit = (found[1] + found[2]) / 2
    assert search(dataset, filter=f"_distance < {limit}")[0] == ids[:2]
    batch = {"column": "v", "q": np.tile(QUERY, (3, 1)), "k": 5}
    second = dataset.to_table(columns=["id"], nearest=batch, filter="query_index = 1")
    assert second["id"].to_pylist() == ids
    with pytest.raises(glaive.errors.FilterError, match="_distance"):
        search(dataset, filter="_distance < 1", prefilter=True)


def test_limits_and_orders_apply_to_what_was_found(dataset: glaive.LanceDataset) -> None:
    ids, _ = search(dataset)
    assert search(dataset, limit=2, offset=1)[0] == ids[1:3]
    assert search(dataset, k=None, limit=3)[0] == ids[:3]
    assert search(dataset, k=None, limit=0)[0] == search(dataset, limit=0)[0] == []
    assert len(search(dataset, k=None)[0]) == 10
    nearest = {"column": "v", "q": QUERY, "k": 5}
    by_id = dataset.to_table(columns=["id"], nearest=nearest, order_by=["id"], limit=4)
    assert by_id["id"].to_pylist() == sorted(ids)[:4]
    falling = glaive.ColumnOrdering("_distance", ascending=False)
    turned = dataset.to_table(columns=["id"], nearest=nearest, order_by=[falling])
    assert turned["id"].to_pylist() == ids[::-1]
    assert dataset.scanner(nearest=nearest, filter="id >= 0").count_rows() == 5


@pytest.mark.parametrize(
    ("columns", "more", "names"),
    [
        (["id"], {}, ["id", "_distance"]),
        (["_distance", "id"], {}, ["_distance", "id"]),
        ([], {}, ["_distance"]),
        (["id"], {"disable_scoring_autoprojection": True}, ["id"]),
        (
            ["id"],
            {"with_row_id": True, "with_row_address": True},
            ["id", "_distance", "_rowid", "_rowaddr"],
        ),
        (["_rowid", "id"], {}, ["_rowid", "id", "_distance"]),
        ({"a": "id + 1"}, {}, ["a", "_distance"]),
        ({"d": "_distance", "id": "id"}, {}, ["d", "id", "_distance"]),
        ({"_distance": "id"}, {}, ["_distance"]),
        ({"twice": "_distance * 2 + id * 0"}, {}, ["twice", "_distance"]),
    ],
)
def test_the_distance_comes_behind_the_columns_and_before_row_ids(
    dataset: glaive.LanceDataset, columns: Any, more: dict[str, Any], names: list[str]
) -> None:
    nearest = {"column": "v", "q": QUERY, "k": 3}
    scanner = dataset.scanner(columns, nearest=nearest, **more)
    found = scanner.to_table()
    assert found.schema.names == scanner.projected_schema.names == names
    assert found.schema == scanner.projected_schema
    if "twice" in names:
        doubled = 2 * np.array(found["_distance"].to_pylist())
        np.testing.assert_allclose(found["twice"].to_pylist(), doubled, rtol=1e-6)


def test_distances_outside_of_a_range_are_left_out(dataset: glaive.LanceDataset) -> None:
    order = np.argsort(distances())
    exact = distances()[order].astype(np.float32)
    low, high = float(exact[3]) - 1e-3, float(exact[8]) - 1e-3
    for query in (QUERY, np.tile(QUERY, (4, 1))):
        ids, found = search(dataset, q=query, k=20, distance_range=(low, high))
        assert ids[:5] == order[3:8].tolist()
        assert search(dataset, q=query, k=2, distance_range=(low, None))[0][:2] == ids[:2]
    assert search(dataset, k=9, distance_range=(None, found[0]))[0] == order[:3].tolist()
    assert search(dataset, k=9, distance_range=(found[0], found[0]))[0] == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "k: expected an integer ≥ 1, found 0"),
        ({"k": "x"}, "k: expected an integer"),
        ({"q": QUERY[:3]}, "column 'v' has vectors of 8 numbers; pass as many"),
        ({"q": np.ones((2, 2, DIMENSION))}, "expected a vector of numbers, or a list of vectors"),
        ({"q": "text"}, "q: expected"),
        ({"q": [[1], [1, 2]]}, "q: expected"),
        ({"q": np.ones((0, DIMENSION))}, "q: expected a vector, found none"),
        ({"metric": "manhattan"}, "metric: expected one of l2, cosine, dot, hamming"),
        ({"metric": "hamming"}, "distance is l2, cosine or dot, not hamming"),
        ({"column": "bits", "metric": "l2"}, "distance is hamming, not l2"),
        ({"column": "id"}, "Query column id must be a vector. Got int64: nearest: name a"),
        ({"column": "i8"}, "column 'i8' has vectors of int8, which have no distance"),
        ({"nprobe": 3}, "did you mean 'nprobes'"),
        ({"nprobes": 0}, "nprobes: expected an integer ≥ 1"),
        (
            {"minimum_nprobes": 5, "maximum_nprobes": 2},
            "minimum_nprobes is 5, maximum_nprobes is 2",
        ),
        ({"refine_factor": 0.5}, "refine_factor: expected an integer ≥ 1"),
        ({"search_effort": 2}, "search_effort: expected a number from 0 to 1"),
        ({"use_index": 1}, "use_index: expected True or False"),
        ({"approx_mode": "slow"}, "approx_mode: expected one of 'fast', 'normal'"),
        ({"distance_range": (1,)}, "distance_range: expected lower and upper bound"),
        ({"distance_range": ("a", 1)}, "distance_range: expected a number"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    dataset: glaive.LanceDataset, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match="nearest: ") as raised:
        dataset.scanner(nearest={"column": "v", "q": QUERY} | wrong)
    assert message in str(raised.value)


def test_a_search_names_what_it_lacks(dataset: glaive.LanceDataset) -> None:
    with pytest.raises(OptionError, match="'q' is missing"):
        dataset.scanner(nearest={"column": "v"})
    with pytest.raises(OptionError, match="expected a mapping"):
        dataset.scanner(nearest=5)
    with pytest.raises(ColumnNotFoundError, match="vv"):
        dataset.scanner(nearest={"column": "vv", "q": QUERY})
    nearest = {"column": "v", "q": QUERY}
    with pytest.raises(OptionError, match="nearest and include_deleted_rows"):
        dataset.scanner(nearest=nearest, include_deleted_rows=True, with_row_id=True)


def test_queries_may_be_of_any_array_type(dataset: glaive.LanceDataset) -> None:
    wanted = search(dataset)
    value = dataset.take([3], columns=["v"])["v"]
    for query in (list(QUERY), tuple(QUERY), pa.array(QUERY), QUERY.astype(np.float32)):
        assert search(dataset, q=query)[0] == wanted[0]
    assert search(dataset, q=value[0], k=1) == ([3], [0.0])
    assert search(dataset, q=value, k=1) == ([3], [0.0])


def test_a_plan_says_what_is_searched_and_a_run_what_was(dataset: glaive.LanceDataset) -> None:
    nearest = {"column": "v", "q": QUERY, "k": 3}
    scanner = dataset.scanner(nearest=nearest, filter="id > 3", limit=2)
    plan = scanner.explain_plan()
    assert "SortExec: TopK(fetch=3), expr=[_distance@0 ASC" in plan
    assert "KNNVectorDistance: metric=l2, exact search: 500 rows of 3 fragments" in plan
    assert "FilterExec: id > 3" in plan
    assert "vectors compared: 500" in scanner.analyze_plan()


def test_an_offset_alone_leaves_out_the_nearest_rows(dataset: glaive.LanceDataset) -> None:
    whole, far = search(dataset)
    assert search(dataset, offset=2) == (whole[2:], far[2:])
