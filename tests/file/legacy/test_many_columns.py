"""Files of format 0.1 of many columns: their schemas are read once, not once per column."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.legacy_statistics import page_statistics

from glaive.errors import CapacityError, CorruptFileError
from glaive.file import protocol
from glaive.file.legacy import LegacyFile, number_ids
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import FileColumns
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.pb import file_pb2, table_pb2
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
    statistics = page_statistics(reader)
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


def _texts(directory: Path, data: bytes, ends: list[list[int]], rows: int) -> FileColumns:
    """Columns of texts, with a page of these offsets each; further ones share the last page."""
    positions = []
    for page in ends:
        positions.append(len(data))
        data += struct.pack(f"<{rows + 1}q", *page)
    positions += positions[-1:] * (COLUMNS - len(positions))
    metadata = file_pb2.Metadata(page_table_position=len(data), batch_offsets=[0, rows])
    data += b"".join(struct.pack("<qq", position, rows) for position in positions)
    footer = struct.pack("<QHH4s", len(data), 0, 1, b"LANC")
    message = metadata.SerializeToString()
    store = LocalStore(directory)
    store.put("a.lance", [data + struct.pack("<I", len(message)) + message + footer])
    schema = LanceSchema.from_arrow(pa.schema([(f"c{at}", pa.string()) for at in range(COLUMNS)]))
    columns: Any = open_reader(store, "a.lance").bind(schema.fields, number_ids(schema.field_ids()))
    return columns


@pytest.mark.spec("rel-24")
def test_pages_of_different_columns_do_not_share_their_bytes(tmp_path: Path) -> None:
    """Each column had offsets of its own in memory: half a megabyte took more than a gigabyte."""
    assert len(_texts(tmp_path, b"", [[0] * 10] * COLUMNS, 9).read(0, 9)) == COLUMNS
    with pytest.raises(CorruptFileError, match="in all columns, as the file has"):
        _texts(tmp_path, b"", [[0] * 1000], 999)


@pytest.mark.spec("rel-24")
def test_dictionaries_of_different_columns_do_not_share_their_items(tmp_path: Path) -> None:
    """Each column had the offsets of all items in memory."""
    long = pa.DictionaryArray.from_arrays([0], [f"{at}" for at in range(1000)])
    table = pa.table({"c0": long})
    for at in range(1, COLUMNS):
        table = table.append_column(f"c{at}", pa.array(["x"]).dictionary_encode().cast(long.type))
    schema, store = LanceSchema.from_arrow(table.schema), LocalStore(tmp_path)
    writer = create_writer(store, "a.lance", schema, "0.1")
    writer.write(table)
    writer.finish()
    file = open_reader(store, "a.lance")
    assert file.bind(file.schema.fields).read(0, 1)[1].to_pylist() == ["x"]

    raw = store.get("a.lance").to_pybytes()
    metadata = file_pb2.Metadata.FromString(_message(raw, struct.unpack("<Q", raw[-16:-8])[0]))
    manifest = table_pb2.Manifest.FromString(_message(raw, metadata.manifest_position))
    for field in manifest.fields[1:]:
        field.dictionary.CopyFrom(manifest.fields[0].dictionary)
    metadata.manifest_position = len(raw)
    tail = struct.pack("<Q", len(raw) + len(_with_length(manifest))) + raw[-8:]
    raw += _with_length(manifest)
    store.put("a.lance", [raw + _with_length(metadata) + tail])
    file = open_reader(store, "a.lance")
    columns = file.bind(file.schema.fields)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="in all columns, as the file has"):
            columns.read(0, 1)


def _message(raw: bytes, position: int) -> bytes:
    (size,) = struct.unpack_from("<I", raw, position)
    return raw[position + 4 : position + 4 + size]


def _with_length(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return struct.pack("<I", len(written)) + written


@pytest.mark.spec("rel-24")
def test_texts_of_different_columns_have_a_limit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be the same bytes, which single rows copy for each column."""
    monkeypatch.setattr(protocol, "MAX_IMPLIED_BYTES", 20_000)
    monkeypatch.setattr(protocol, "USUAL_RATIO", 1)
    columns = _texts(tmp_path, b"x" * 1000, [[0, 0, 1000, 1000]] * COLUMNS, 3)
    with pytest.raises(CapacityError, match="take fewer rows at a time"):
        columns.take(np.array([1, 0]))
    assert columns.take(np.array([1]))[-1].to_pylist() == ["x" * 1000]
