"""Pages of a few values: the file is the same, however many parts they come in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from glaive import write_dataset
from glaive.file.open import create_writer
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

COLUMNS: dict[str, pa.Array] = {
    "numbers": pa.array(range(10)),
    "numbers with nulls": pa.array([1, None, 3, None, 5]),
    "equal numbers": pa.array([7] * 10),
    "equal numbers and nulls": pa.array([7, None, 7]),
    "nulls": pa.array([None] * 4, pa.int32()),
    "untyped nulls": pa.nulls(4),
    "flags": pa.array([True, False, None]),
    "text": pa.array(["a", "", None, "long" * 20]),
    "long text": pa.array(["x" * 300, "y"]),
    "texts": pa.array([f"text number {number}" for number in range(60)]),
    "texts and nulls": pa.array(
        ["some text of a size" * (n % 3) if n % 5 else None for n in range(80)]
    ),
    "equal texts": pa.array(["the same text of all"] * 50),
    "equal texts and nulls": pa.array(["the same text of all", None] * 25),
    "empty large texts": pa.array([""] * 64, pa.large_string()),
    "texts that repeat": pa.array(["one of two texts, and", "the other one of them"] * 50),
    "large text": pa.array(["a", "b"], pa.large_string()),
    "bytes": pa.array([b"\x00", b"", None]),
    "fixed bytes": pa.array([b"abc", b"def"], pa.binary(3)),
    "dates": pa.array([date(2020, 1, 1), None]),
    "decimals": pa.array([Decimal("1.5"), Decimal("-2.5")]),
    "vectors": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "lists": pa.array([[1, 2], None, []]),
    "structs": pa.array([{"a": 1, "b": "x"}, None]),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "a slice": pa.array(range(100)).slice(40, 9),
    "a slice of text": pa.array([str(number) for number in range(100)]).slice(40, 9),
    "many numbers": pa.array(range(5_000)),
    "some numbers": pa.array([number * 2**40 for number in range(65)]),
}


def written(tmp_path: Path, tables: Sequence[pa.Table], version: str) -> bytes:
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(tables[0].schema)
    writer = create_writer(store, f"{len(tables)}.lance", schema, version)
    for table in tables:
        writer.write(table)
    writer.finish()
    return store.get(f"{len(tables)}.lance").to_pybytes()


def in_parts(tmp_path: Path, table: pa.Table, version: str) -> bytes:
    """The same rows in two parts."""
    return written(tmp_path, [table.slice(0, 1), table.slice(1)], version)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("name", COLUMNS)
def test_the_bytes_are_the_same(tmp_path: Path, name: str, version: str) -> None:
    column = COLUMNS[name]
    # Between other columns: pages in the file have the order of the columns.
    table = pa.table(
        {"first": pa.array([[0]] * len(column)), "it": column, "last": ["z"] * len(column)}
    )
    assert written(tmp_path, [table], version) == in_parts(tmp_path, table, version)


@pytest.mark.parametrize("key", ["structural-encoding", "minichunk-size"])
def test_options_of_a_column_are_not_ignored(tmp_path: Path, key: str) -> None:
    value = {"structural-encoding": "miniblock", "minichunk-size": "128"}[key]
    field = pa.field("it", pa.int64(), metadata={f"lance-encoding:{key}": value})
    table = pa.table([pa.array(range(10))], schema=pa.schema([field]))
    assert written(tmp_path, [table], "2.2") == in_parts(tmp_path, table, "2.2")


def test_equal_texts_are_stored_once(tmp_path: Path) -> None:
    equal = pa.table({"it": ["x" * 200] * 20})
    assert len(written(tmp_path, [equal], "2.2")) < 1000
    assert len(written(tmp_path, [equal], "2.1")) > 4000


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_few_numbers_are_stored_as_in_memory(tmp_path: Path, version: str) -> None:
    runs = pa.array([number // 25 for number in range(100)])
    data = runs.buffers()[1]
    assert data is not None
    assert data.to_pybytes() in written(tmp_path, [pa.table({"it": runs})], version)


@pytest.mark.parametrize("version", ["2.2", "2.3"])
@pytest.mark.parametrize("name", COLUMNS)
def test_few_values_are_read_back(tmp_path: Path, name: str, version: str) -> None:
    table = pa.table({"it": COLUMNS[name]})
    dataset = write_dataset(table, tmp_path / "t", data_storage_version=version)
    assert dataset.to_table().equals(table)
    assert dataset.take([len(table) - 1])["it"].equals(table["it"].slice(len(table) - 1))
