"""How large a value is taken to be before it is read: scans cut their work by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore


def value_bytes(folder: Path, version: str, values: Any) -> int:
    """What a column of these values in a new file says."""
    rows = pa.table({"value": values})
    schema, store = LanceSchema.from_arrow(rows.schema), LocalStore(folder)
    writer = create_writer(store, "file.lance", schema, version)
    writer.write(rows)
    writer.finish()
    reader = open_reader(store, "file.lance")
    return reader.bind(reader.schema.fields).columns[0].value_bytes


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2", "2.3"])
def test_numbers_have_the_size_of_their_type(tmp_path: Path, version: str) -> None:
    assert value_bytes(tmp_path, version, pa.array(range(100), pa.int32())) == 4


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("items", [0, 1, 50])
def test_lists_have_as_many_items_as_their_pages_say(
    tmp_path: Path, version: str, items: int
) -> None:
    lists = pa.array([list(range(items))] * 1000, pa.list_(pa.int32()))
    assert value_bytes(tmp_path, version, lists) in range(4 * items, 4 * items + 13)
    pairs = [(key, key) for key in range(items)]
    maps = pa.array([pairs] * 1000, pa.map_(pa.int64(), pa.int16()))
    if version != "2.1":
        assert value_bytes(tmp_path, version, maps) in range(10 * items, 10 * items + 19)
    vectors = pa.array([[[0.5] * 300] * items] * 100, pa.list_(pa.list_(pa.float32(), 300)))
    assert value_bytes(tmp_path, version, vectors) in range(1200 * items, 1200 * items + 1209)


@pytest.mark.parametrize("version", ["0.1", "2.0"])
def test_where_pages_do_not_say_lists_are_taken_to_have_a_few_items(
    tmp_path: Path, version: str
) -> None:
    lists = pa.array([[1]] * 1000, pa.list_(pa.int32()))
    assert value_bytes(tmp_path, version, lists) == 32
