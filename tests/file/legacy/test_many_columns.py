"""Files of format 0.1 of many columns: their schemas are read once, not once per column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from glaive.file.legacy.reader import LegacyFile
from glaive.file.open import create_writer, open_reader
from glaive.format.fields import Field, LanceSchema
from glaive.io.local import LocalStore

COLUMNS = 50


def _opened(directory: Path, values: pa.Array) -> LegacyFile:
    table = pa.table({f"c{at}": values for at in range(COLUMNS)})
    store = LocalStore(directory)
    writer = create_writer(store, "a.lance", LanceSchema.from_arrow(table.schema), "0.1")
    writer.write(table)
    writer.finish()
    reader = open_reader(store, "a.lance")
    assert isinstance(reader, LegacyFile)
    return reader


@pytest.mark.spec("rel-25")
def test_statistics_of_many_columns_have_one_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = _opened(tmp_path, pa.array([3, 1, 2]))
    ids = reader.schema.field_ids()
    parsed: list[int] = []
    from_wire = LanceSchema.from_wire

    def counted(*arguments: Any, **options: Any) -> LanceSchema:
        parsed.append(1)
        return from_wire(*arguments, **options)

    monkeypatch.setattr(LanceSchema, "from_wire", counted)
    bounds = [reader.page_bounds(field_id) for field_id in ids]
    assert [page.min_value.to_pylist() for page in bounds if page is not None] == [[1]] * COLUMNS
    statistics = reader.page_statistics()
    assert statistics is not None
    assert statistics.column_names == [str(field_id) for field_id in ids]
    assert len(parsed) == 1


@pytest.mark.spec("rel-25")
def test_dictionaries_of_many_columns_are_found_in_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = pa.array(["b", "a", "b"]).dictionary_encode()
    reader = _opened(tmp_path, values)
    fields = reader.schema.fields
    walked: list[int] = []
    walk = LanceSchema.walk

    def counted(schema: LanceSchema) -> Iterator[Field]:
        walked.append(1)
        return walk(schema)

    monkeypatch.setattr(LanceSchema, "walk", counted)
    columns = reader.bind(fields).columns
    assert all(column.read(0, 3).equals(values) for column in columns)
    assert len(walked) < 10
