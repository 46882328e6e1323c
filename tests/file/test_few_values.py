"""A few values are written straight away: the file is the one that the long way leads to."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from glaive.encodings.protocol import EncodedPage
from glaive.encodings.writing.page import encode_few
from glaive.file.open import create_writer
from glaive.file.v2.writing.writer import FileV2Writer
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
    "a slice of text": pa.array([str(one) for one in range(100)]).slice(40, 9),
    "many numbers": pa.array(range(5_000)),
    "some numbers": pa.array([one * 2**40 for one in range(65)]),
}


def written(tmp_path: Path, name: str, table: pa.Table, version: str) -> bytes:
    store = LocalStore(tmp_path)
    writer = create_writer(store, name, LanceSchema.from_arrow(table.schema), version)
    writer.write(table)
    writer.finish()
    return store.get(name).to_pybytes()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", COLUMNS)
def test_the_bytes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str
) -> None:
    column = COLUMNS[name]
    # Between others: the order of the pages in the file is that of the columns, too.
    table = pa.table(
        {"first": pa.array([[0]] * len(column)), "it": column, "last": ["z"] * len(column)}
    )
    few = written(tmp_path, "few", table, version)
    monkeypatch.setattr(FileV2Writer, "few_at_once", False)
    assert few == written(tmp_path, "all", table, version)


@pytest.mark.parametrize("key", ["structural-encoding", "minichunk-size"])
def test_what_an_author_asks_for_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    value = {"structural-encoding": "miniblock", "minichunk-size": "128"}[key]
    field = pa.field("it", pa.int64(), metadata={f"lance-encoding:{key}": value})
    table = pa.table([pa.array(range(10))], schema=pa.schema([field]))
    few = written(tmp_path, "few", table, "2.2")
    monkeypatch.setattr(FileV2Writer, "few_at_once", False)
    assert few == written(tmp_path, "all", table, "2.2")


def test_the_way_is_taken_for_few_values_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []

    def spied(*args: Any) -> EncodedPage | None:
        page = encode_few(*args)
        taken.append(page is not None)
        return page

    monkeypatch.setattr("glaive.file.v2.writing.writer.encode_few", spied)
    table = pa.table({"few": [1, 2], "list": [[1], [2]], "text": ["a", "b"]})
    written(tmp_path, "a", table, "2.2")
    assert taken == [True, True]
    taken.clear()
    written(tmp_path, "b", pa.table({"many": range(5_000)}), "2.2")
    assert taken == [False]
    written(tmp_path, "c", pa.table({"few": [1, 2]}), "2.0")
    written(tmp_path, "d", pa.table({"few": [1, 2]}), "2.3")
    assert taken == [False]
