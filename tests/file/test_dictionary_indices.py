"""Indices of dictionary arrays that are written: all visible ones have an item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import SchemaError
from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

WORDS = pa.dictionary(pa.int8(), pa.string())
MEMBERS: Any = pa.struct({"word": WORDS, "x": pa.int32()})


def _written(directory: Path, array: pa.Array, version: str) -> Any:
    table = pa.table({"c": array})
    store = LocalStore(directory)
    writer = create_writer(store, "a.lance", LanceSchema.from_arrow(table.schema), version)
    writer.write(table)
    writer.finish()
    reader = open_reader(store, "a.lance")
    return reader.bind(reader.schema.fields).columns[0].read(0, len(array))


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("values", [[None, {"word": None, "x": 1}], [None, None]])
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_below_nulls_there_are_indices_of_empty_dictionaries(
    tmp_path: Path, version: str, values: list[Any]
) -> None:
    array = pa.array(values, MEMBERS)
    below: Any = array.field(0)
    assert below.indices.to_pylist()[0] == 0  # pyarrow makes such
    assert len(below.dictionary) == 0
    found = _written(tmp_path / "structs", array, version)
    found.validate(full=True)
    assert found.to_pylist() == values
    lists: Any = pa.array([[value] for value in values], pa.list_(MEMBERS))
    found = _written(tmp_path / "lists", lists, version)
    found.validate(full=True)
    assert found.to_pylist() == lists.to_pylist()


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.3"])
@pytest.mark.parametrize("index", [2, 5, -1])
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_an_index_without_an_item_is_refused(tmp_path: Path, version: str, index: int) -> None:
    """No reader would open the page."""
    indices = pa.array([0, 1, index], pa.int8())
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    struct = pa.StructArray.from_arrays([words, pa.array([1, 2, 3], pa.int32())], fields=MEMBERS)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), struct)
    for array in (words, struct, lists):
        with pytest.raises(SchemaError, match=f"'c' .*: expected indices below 2.*found {index}"):
            _written(tmp_path, array, version)
    assert not (tmp_path / "a.lance").exists()


def test_an_index_without_an_item_in_a_later_chunk_or_a_map_is_refused(tmp_path: Path) -> None:
    right = pa.array(["a"]).dictionary_encode().cast(WORDS)
    wrong = pa.DictionaryArray.from_arrays(pa.array([3], pa.int8()), pa.array(["a"]), safe=False)
    chunks: Any = pa.chunked_array([right, wrong])
    keys = pa.array(["k"])
    maps: Any = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), keys, wrong)
    for array in (chunks, maps):
        with pytest.raises(SchemaError, match="expected indices below 1"):
            _written(tmp_path, array, "2.2")


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_pages_of_lists_have_more_items_together_than_indices_can_number(
    tmp_path: Path, version: str
) -> None:
    rows = 40_000
    batches = []
    for at in range(3):
        items = pa.array([f"{at}-{item}" for item in range(100)])
        indices = pa.array(np.arange(2 * rows) % 100, pa.int8())
        words = pa.DictionaryArray.from_arrays(indices, items)
        offsets = pa.array(np.arange(0, 2 * rows + 1, 2), pa.int32())
        batches.append(pa.record_batch({"c": pa.ListArray.from_arrays(offsets, words)}))
    made = glaive.write_dataset(batches, tmp_path, data_storage_version=version)
    wanted = [0, rows - 1, rows, 2 * rows + 7, 3 * rows - 1]
    expected = [[f"{row // rows}-{(2 * row + at) % 100}" for at in (0, 1)] for row in wanted]
    assert made.take(wanted)["c"].to_pylist() == expected
    whole = made.to_table()
    whole.validate(full=True)
    assert [whole["c"][row].as_py() for row in wanted] == expected
