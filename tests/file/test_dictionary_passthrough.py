"""Text that comes to a writer with a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.errors import SchemaError
from glaive.file.files import LanceFileReader, LanceFileWriter
from glaive.file.v2.writer import _with_items, decode_or_keep, is_passed_through

ITEMS = ["red", "green", "blue", "violet"]


def encoded_text(rows: int = 1_000, items: list[str] | None = None, kind: Any = None) -> Any:
    rng = np.random.default_rng(3)
    words = pa.array(items or ITEMS, kind or pa.string())
    numbers = pa.array(
        rng.integers(0, len(words), rows).astype(np.int32), mask=rng.random(rows) < 0.2
    )
    return pa.DictionaryArray.from_arrays(numbers, words)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_few_items_stay(kind: pa.DataType) -> None:
    array = encoded_text(kind=kind)
    assert decode_or_keep(array, kind, AUTOMATIC) is array


@pytest.mark.parametrize("wanted", [None, EncodingOptions(compression="fsst")])
def test_values_are_plain_where_something_else_is_wanted(wanted: EncodingOptions | None) -> None:
    array = encoded_text()
    encoded = decode_or_keep(array, pa.string(), wanted)
    assert encoded.type == pa.string()
    assert encoded.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("items", [["one"], [f"item {at}" for at in range(600)]])
def test_items_that_bring_nothing_are_left(items: list[str]) -> None:
    array = encoded_text(items=items)
    encoded = decode_or_keep(array, pa.string(), AUTOMATIC)
    assert encoded.type == pa.string()
    assert encoded.to_pylist() == array.to_pylist()


def test_items_without_a_value_are_dropped() -> None:
    array = encoded_text()
    array = array.filter(pa.array([value != "green" for value in array.to_pylist()]))
    encoded = decode_or_keep(array.slice(3), pa.string(), AUTOMATIC)
    assert sorted(encoded.dictionary.to_pylist()) == ["blue", "red", "violet"]
    assert encoded.to_pylist() == array.to_pylist()[3:]
    assert encoded.null_count == array.slice(3).null_count


def test_a_slice_is_renumbered_from_where_it_begins() -> None:
    array = encoded_text().slice(13, 100)
    renumbered = _with_items(array, np.array([3, 2, 1, 0]), pa.array(ITEMS[::-1]))
    renumbered.validate(full=True)
    assert renumbered.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("other", [pa.int8(), pa.int64()])
def test_other_indices_are_not_meant(other: pa.DataType) -> None:
    assert is_passed_through(encoded_text().type, pa.string())
    assert not is_passed_through(encoded_text().type, pa.large_string())
    assert not is_passed_through(pa.dictionary(other, pa.string()), pa.string())


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_writers_take_text_with_and_without_a_dictionary(tmp_path: Path, version: str) -> None:
    path = tmp_path / "f.lance"
    schema = pa.schema([pa.field("t", pa.string())])
    first, second = encoded_text(), encoded_text(items=["yellow", "red"])
    parts = [first, second, second.cast(pa.string()), first.slice(20)]
    with LanceFileWriter(path, schema, version=version) as writer:
        for part in parts:
            writer.write_batch(pa.record_batch({"t": part}))
    expected = [value for part in parts for value in part.to_pylist()]
    table = LanceFileReader(path).read_all().to_table()
    assert table.schema == schema
    assert table["t"].to_pylist() == expected


def test_items_that_are_null_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("t", pa.string(), nullable=False)])
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0], pa.int32()), pa.array(["a", None], pa.string())
    )
    with LanceFileWriter(tmp_path / "f.lance", schema) as writer:
        with pytest.raises(SchemaError, match="Cast the batch"):
            writer.write_batch(pa.record_batch({"t": array}))
        writer.write_batch(pa.record_batch({"t": ["a"]}, schema=schema))
