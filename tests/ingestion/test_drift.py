"""Types that differ between files, or from those of the dataset: no value is rounded."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glaive
from glaive.errors import SchemaError
from glaive.ingestion import ingest

PRICE: Any = pa.array([Decimal("12345678901234567890.12")], pa.decimal128(38, 2))


def nested(values: Any) -> Any:
    """Lists of structs with the values."""
    return pa.ListArray.from_arrays([0, len(values)], pa.StructArray.from_arrays([values], ["x"]))


@pytest.mark.parametrize("number", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("within", [list, nested], ids=["alone", "nested"])
def test_decimals_do_not_become_floats(tmp_path: Path, number: Any, within: Any) -> None:
    source, uri = tmp_path / "in", tmp_path / "t.lance"
    source.mkdir()
    floats, prices = pa.array([1.0]).cast(number), PRICE
    if within is nested:
        floats, prices = nested(floats), nested(prices)
    pq.write_table(pa.table({"x": floats}), source / "1.parquet")
    pq.write_table(pa.table({"x": prices}), source / "2.parquet")
    with pytest.raises(SchemaError, match=r"column x: no type holds .*decimal.*2\.parquet"):
        ingest(source, uri, schema_drift="widen")
    assert not uri.exists()


@pytest.mark.parametrize(("name", "text"), [("a.csv", "x,y\n0.5,1\n"), ("a.json", '{"x": 0.5}\n')])
def test_decimals_of_a_dataset_are_read_from_numbers_of_texts(
    tmp_path: Path, name: str, text: str
) -> None:
    path, uri = tmp_path / name, tmp_path / "t.lance"
    path.write_text(text)
    glaive.write_dataset(pa.table({"x": PRICE}), uri)
    ingest(path, uri, mode="append", schema_drift="add")

    found = glaive.dataset(uri).to_table()["x"]
    assert found.type == PRICE.type
    assert found.to_pylist() == [*PRICE.to_pylist(), Decimal("0.50")]


@pytest.mark.parametrize("number", [1, 2**64 - 2])
@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_large_numbers_without_a_sign_keep_their_type(
    tmp_path: Path, name: str, number: int
) -> None:
    path, uri = tmp_path / name, tmp_path / "t.lance"
    path.write_text(f"x\n{number}\n" if name == "a.csv" else f'{{"x": {number}}}\n')
    glaive.write_dataset(pa.table({"x": pa.array([2**64 - 1, 7], pa.uint64())}), uri)
    ingest(path, uri, mode="append", schema_drift="widen")

    found = glaive.dataset(uri).to_table()["x"]
    assert (found.type, found.to_pylist()) == (pa.uint64(), [2**64 - 1, 7, number])


@pytest.mark.parametrize("rule", ["fail", "widen", "add"])
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("csv", ["id,w\n", "id,w\n1,0.5\n", "id,w\n2,\n", "id,w\n"]),
        ("json", ['{"id": null, "w": null}\n', '{"id": 1, "w": 0.5}\n', '{"id": 2, "w": null}\n']),
    ],
)
def test_columns_without_values_fit_any_type(
    tmp_path: Path, rule: Any, name: str, texts: list[str]
) -> None:
    first, uri = tmp_path / f"first.{name}", tmp_path / "t.lance"
    first.write_text(texts[1])
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.{name}").write_text(text)
    every = str(tmp_path / f"[0-9].{name}")
    glaive.ingest(every, uri, schema_drift=rule)  # files that differ from each other
    rows = lance.dataset(str(uri)).to_table()
    assert rows.schema.types == [pa.int64(), pa.float64()]
    assert [row["w"] for row in rows.to_pylist() if row["id"] is not None] == [0.5, None]
    glaive.ingest(first, uri, mode="overwrite")
    for number in (0, 2):
        file = tmp_path / f"{number}.{name}"
        glaive.ingest(file, uri, mode="append", schema_drift=rule)  # and from the dataset
    assert lance.dataset(str(uri)).schema == rows.schema
