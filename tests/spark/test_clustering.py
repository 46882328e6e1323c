"""Clustering: curves over ranks, and tables written in their order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
from glaive.dataset.clustering import Curve, WritePart, hilbert_numbers, ordinals, z_order_numbers
from glaive.dataset.compaction_tasks import CompactionOptions
from glaive.errors import CapacityError, ColumnNotFoundError, OptionError
from glaive.spark import LanceTable


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 4), (3, 3), (4, 2)])
def test_neighbours_on_the_hilbert_curve_differ_by_one_step(dimensions: int, bits: int) -> None:
    side = np.arange(2**bits, dtype=np.uint64)
    grid = [axis.ravel() for axis in np.meshgrid(*[side] * dimensions)]
    numbers = hilbert_numbers(grid, bits)
    assert sorted(numbers.tolist()) == list(range(2 ** (bits * dimensions)))
    path = np.stack(grid)[:, np.argsort(numbers)].astype(int)
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()


def test_the_z_order_interleaves_bits() -> None:
    ranks = [np.array([0b11, 0b00], np.uint64), np.array([0b00, 0b10], np.uint64)]
    assert z_order_numbers(ranks, 2).tolist() == [0b1010, 0b0100]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None, -5, 3, 2**40]),
        pa.array([None, -0.5, 2.0, float("inf")]),
        pa.array([None, False, True]),
        pa.array([None, 0, 5, 10**12], pa.timestamp("us")),
        pa.array([None, "", "a", "ab", "b", "é"]),
        pa.array([None, b"\x00", b"\x01", b"\xff"]),
        pa.array([None, "a", "b"]).dictionary_encode(),
        pa.array([None, Decimal("1.00"), Decimal("2.50")], pa.decimal128(12, 2)),
    ],
    ids=lambda values: str(values.type),
)
def test_ordinals_have_the_order_of_the_values(values: Any) -> None:
    numbers = ordinals(values, "c")
    assert np.isnan(numbers[0])
    assert (np.diff(numbers[1:]) > 0).all()
    curve = Curve.of(pa.table({"c": values}), "hilbert")
    assert (np.diff(curve.numbers(pa.table({"c": values})).astype(int)) > 0).all()


def test_values_without_an_order_are_refused() -> None:
    with pytest.raises(OptionError, match=r"'c'.*list"):
        ordinals(pa.array([[1]]), "c")


def test_a_part_is_sorted_with_nulls_first_and_without_a_warning() -> None:
    table = pa.table({"x": [2, None, 1], "number": [0, 0, 0]})
    part = WritePart(1, Curve(("x",), "zorder", (np.zeros(1),), (b"",)), CompactionOptions())

    assert part._sorted(table).to_pydict() == {"x": [None, 1, 2]}  # noqa: SLF001  # tasks call it


ORDER = np.random.default_rng(9).permutation(2000)
ROWS = pa.table(
    {
        "id": ORDER,
        "x": ORDER % 40,
        "name": pa.array([f"n{n:05}" for n in ORDER]).dictionary_encode(),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(ORDER, 2), pa.float16()), 2),
    }
)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("stable", [False, True])
def test_rows_are_sorted_by_one_column(spark: SparkSession, uri: str, stable: bool) -> None:
    glaive.write_dataset(ROWS, uri, max_rows_per_file=500, enable_stable_row_ids=stable)
    dataset = glaive.dataset(uri)
    dataset.delete("id % 10 = 0")
    before = dataset.to_table(["id"], with_row_id=True).sort_by("id")
    table = LanceTable.forPath(spark, uri)
    table.createIndex("x", "btree", segments=1)
    counts = table.optimize().executeClusterBy("id", target_rows_per_fragment=600)
    assert (counts["fragments_removed"], counts["fragments_added"]) == (4, 3)
    expected = sorted(row["id"] for row in ROWS.to_pylist() if row["id"] % 10)
    after = lance.dataset(uri).to_table()
    assert after["id"].to_pylist() == expected
    assert after["name"].to_pylist() == [f"n{n:05}" for n in expected]
    assert after["v"].to_pylist() == [[n, n] for n in expected]
    if stable:
        ids = glaive.dataset(uri).to_table(["id"], with_row_id=True)
        assert ids == before
    found = lance.dataset(uri).to_table(["id"], filter="x = 7")["id"].to_pylist()
    assert sorted(found) == [n for n in expected if n % 40 == 7]


def test_rows_are_clustered_by_several_columns(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(ROWS, uri, max_rows_per_file=500)
    table = LanceTable.forPath(spark, uri)
    optimize = table.optimize()
    counts = optimize.executeClusterBy("id", "x", curve="zorder", target_rows_per_fragment=125)
    assert counts["fragments_added"] == 16
    parts = [fragment.to_table(["id", "x"]) for fragment in lance.dataset(uri).get_fragments()]
    spans = [np.ptp(part[name].to_numpy()) for part in parts for name in ("id", "x")]
    assert np.mean(spans[::2]) < 1100  # of 2000
    assert np.mean(spans[1::2]) < 22  # of 40
    assert sorted(n for part in parts for n in part["id"].to_pylist()) == list(range(2000))
    with pytest.raises(ColumnNotFoundError, match="y"):
        optimize.executeClusterBy("y")
    with pytest.raises(OptionError, match="curve"):
        optimize.executeClusterBy("x", curve="peano")  # type: ignore[arg-type]  # that is tested


def test_tables_with_clustering_columns_cluster_new_fragments_only(
    spark: SparkSession, uri: str
) -> None:
    config = {"glaive.cluster_by": '["id"]', "lance.compaction.target_rows_per_fragment": "500"}
    glaive.write_dataset(ROWS, uri, max_rows_per_file=500).update_config(config)
    table = LanceTable.forPath(spark, uri)
    counts = table.optimize().where("id >= 0").executeCompaction(job_id="first")
    assert (counts["fragments_removed"], counts["fragments_added"]) == (4, 4)
    assert table.optimize().executeCompaction(job_id="first") == counts
    ids = lance.dataset(uri).to_table(["id"])["id"].to_pylist()
    assert ids == list(range(2000))
    assert table.optimize().executeCompaction()["fragments_removed"] == 0
    old = {row.fragment_id for row in table.fragments().collect()}

    twin = glaive.dataset(uri).deep_clone(f"{uri}.twin")
    for dataset in (glaive.dataset(uri), twin):
        dataset.insert(ROWS.slice(0, 250))
        dataset.insert(ROWS.slice(250, 250))
    (planned,) = table.maintain(dryRun=True, small_fragments=2, steps=["compact"]).collect()
    assert planned.reason == "2 of 6 fragments are not clustered by id"
    assert table.maintain(small_fragments=2, steps=["compact"]).collect() == [planned]
    assert old < {row.fragment_id for row in table.fragments().collect()}
    assert twin.optimize.maintain(small_fragments=2, steps=["compact"])
    assert lance.dataset(uri).to_table() == lance.dataset(twin.uri).to_table()
    ids = lance.dataset(uri).to_table(["id"])["id"].to_pylist()
    assert ids == [*range(2000), *sorted(ROWS["id"].to_pylist()[:500])]
    assert table.detail().collect()[0].clustering_columns == ["id"]


def test_dictionaries_that_do_not_fit_one_are_an_error_that_says_so(
    spark: SparkSession, uri: str
) -> None:
    numbers = pa.array(range(100), pa.int8())
    for part in "ab":
        words = pa.array([f"{part}{n}" for n in range(100)])
        column = pa.DictionaryArray.from_arrays(numbers, words)
        glaive.write_dataset(pa.table({"n": numbers, "word": column}), uri, mode="append")
    table = LanceTable.forPath(spark, uri)
    for name in ("n", "word"):
        with pytest.raises(CapacityError, match=r"dictionar.*int8"):
            table.optimize().executeClusterBy(name)
    assert glaive.dataset(uri).version == 2
