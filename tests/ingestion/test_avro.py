"""Avro files are ingested with their types."""

from __future__ import annotations

import io
import json
import sys
import zlib
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

import glaive
from glaive.errors import FormatError, GlaiveError, MissingDependencyError, UnsupportedFeatureError
from glaive.ingestion.columnar import Avro
from glaive.ingestion.sources import Piece, Rejects, list_sources

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "wide", "type": ["int", "null", "double"]},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "other_kind", "type": ["null", "Kind"]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "x", "type": "float"}, {"name": "y", "type": "float"}],
            },
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


def record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "small": None if number % 3 else number,
        "wide": [1.5, None, 7][number % 3],
        "name": f"é{number}",
        "raw": bytes([number % 256]),
        "code": b"abc",
        "kind": "OLD" if number % 2 else "NEW",
        "other_kind": None if number % 2 else "OLD",
        "tags": ["a", None][: number % 3],
        "counts": {"n": number, "m": 1},
        "place": {"x": 0.5, "y": float(number)},
        "day": date(2026, 1, 1 + number % 28),
        "clock": time(12, 30, 15, 250),
        "at": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC),
        "price": Decimal(number).scaleb(-2),
        "key": UUID(int=number),
    }


def expected(rows: list[dict[str, Any]]) -> pa.Table:
    types = {
        "id": pa.int64(),
        "small": pa.int32(),
        "wide": pa.float64(),
        "name": pa.string(),
        "raw": pa.binary(),
        "code": pa.binary(3),
        "kind": pa.string(),
        "other_kind": pa.string(),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int32()),
        "place": pa.struct([("x", pa.float32()), ("y", pa.float32())]),
        "day": pa.date32(),
        "clock": pa.time64("us"),
        "at": pa.timestamp("ms", "UTC"),
        "price": pa.decimal128(9, 2),
        "key": pa.string(),
    }
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in types}
    columns["counts"] = [list(value.items()) for value in columns["counts"]]
    columns["key"] = [str(value) for value in columns["key"]]
    return pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()})


def written(path: Path, schema: dict[str, Any], rows: list[Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, **options)
    return path


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_rows_have_the_types_that_files_state(tmp_path: Path, codec: str) -> None:
    rows = [record(number) for number in range(1000)]
    written(tmp_path / "in" / "a.avro", SCHEMA, rows[:600], codec=codec, sync_interval=4000)
    written(tmp_path / "in" / "b.avro", SCHEMA, rows[600:], codec=codec)
    glaive.ingest(tmp_path / "in", tmp_path / "t.lance")
    found = glaive.dataset(tmp_path / "t.lance").to_table().sort_by("id")
    assert found.cast(expected(rows).schema).equals(expected(rows))


def test_values_in_names_of_folders_are_a_column(tmp_path: Path) -> None:
    written(tmp_path / "in" / "region=north" / "a.avro", SCHEMA, [record(1)])
    glaive.ingest(tmp_path / "in", tmp_path / "t.lance")
    assert glaive.dataset(tmp_path / "t.lance").to_table()["region"].to_pylist() == ["north"]


def test_a_damaged_block_is_a_bad_record_and_those_before_it_are_kept(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    rows = [{"id": number} for number in range(10_000)]
    path = written(tmp_path / "in" / "a.avro", schema, rows, codec="deflate", sync_interval=1000)
    whole = path.read_bytes()
    marker = whole[-16:]  # behind each block
    half = whole.index(marker, len(whole) // 2)
    path.write_bytes(whole[:half] + bytes(16) + whole[half + 16 :])
    with pytest.raises(FormatError, match=r"a\.avro.*block \d+ is damaged"):
        glaive.ingest(path, tmp_path / "t.lance")
    done = glaive.ingest(path, tmp_path / "t.lance", bad_records=tmp_path / "bad.lance")
    assert done.bad_records == 1
    ids = glaive.dataset(tmp_path / "t.lance").to_table()["id"].to_pylist()
    assert 0 < len(ids) < 10_000
    assert ids == list(range(len(ids)))


NESTED = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


@pytest.mark.parametrize(
    ("kind", "message"), [(["string", "int"], "union of"), (NESTED, "N contains itself")]
)
@pytest.mark.spec("rel-25")
def test_values_that_columns_cannot_hold_are_refused_by_name(
    tmp_path: Path, kind: Any, message: str
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    path = written(tmp_path / "a.avro", schema, [])
    with pytest.raises(UnsupportedFeatureError, match=rf"a\.avro.*{message}"):
        glaive.ingest(path, tmp_path / "t.lance")


def test_a_schema_may_have_20_000_columns_with_nulls(tmp_path: Path) -> None:
    fields = [{"name": f"c{number}", "type": ["null", "long"]} for number in range(20_000)]
    path = written(tmp_path / "a.avro", {"type": "record", "name": "R", "fields": fields}, [])
    (file,) = list_sources([str(path)])
    assert Avro({}).schema(file).types == [pa.int64()] * 20_000


def test_a_logical_type_of_another_type_means_nothing(tmp_path: Path) -> None:
    kinds: dict[str, Any] = {
        "text": {"type": "string", "logicalType": "date"},
        "key": {"type": "fixed", "name": "Key", "size": 16, "logicalType": "uuid"},
        "number": {"type": "long", "logicalType": "time-millis"},
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    row = {"text": "today", "key": bytes(range(16)), "number": 7}
    path = written(tmp_path / "a.avro", {"type": "record", "name": "R", "fields": fields}, [row])
    glaive.ingest(path, tmp_path / "t.lance")
    assert glaive.dataset(tmp_path / "t.lance").to_table().to_pylist() == [row]


@pytest.mark.spec("rel-43")
def test_damage_anywhere_ends_in_an_error_or_in_rows(tmp_path: Path) -> None:
    rows = [record(number) for number in range(40)]
    memory = io.BytesIO()
    fastavro.writer(memory, fastavro.parse_schema(SCHEMA), rows, codec="deflate", sync_interval=500)
    whole = memory.getvalue()
    path = tmp_path / "a.avro"
    for number in range(0, len(whole), 23):
        damaged = bytearray(whole)
        damaged[number : number + 9] = b"\xff" * 9 if number % 2 else b"\xfe" + bytes(8)
        path.write_bytes(damaged[: len(whole)])
        target = tmp_path / f"{number}.lance"
        try:
            glaive.ingest(path, target, bad_records=tmp_path / f"{number}-bad.lance")
        except GlaiveError:
            assert not target.exists() or glaive.dataset(target).count_rows() == 0
        else:
            assert glaive.dataset(target).count_rows() <= 40


def test_the_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.avro", SCHEMA, [])
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingDependencyError, match=r"glaive\[avro\]"):
        glaive.ingest(path, tmp_path / "t.lance")


def as_long(number: int) -> bytes:
    """A long as Avro stores it: 7 bits in each byte."""
    number, stored = number << 1, b""
    while number > 127:
        stored, number = stored + bytes([number & 127 | 128]), number >> 7
    return stored + bytes([number])


def put_together(path: Path, kinds: list[Any], count: int, data: bytes) -> Path:
    """A file of one deflated block, with anything in its schema and in the block."""
    fields = [{"name": f"c{number}", "type": kind} for number, kind in enumerate(kinds)]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    parts = [b"avro.schema", schema, b"avro.codec", b"deflate"]
    header = b"".join(as_long(len(part)) + part for part in parts)
    packed, marker = packer.compress(data) + packer.flush(), bytes(16)
    block = as_long(count) + as_long(len(packed)) + packed
    path.write_bytes(b"Obj\x01" + as_long(2) + header + b"\0" + marker + block + marker)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "fixed", "name": "F", "size": 1 << 40},
        {"type": "bytes", "logicalType": "decimal", "precision": 1 << 40, "scale": 1 << 40},
    ],
)
def test_sizes_that_no_type_has_are_damage(tmp_path: Path, kind: Any) -> None:
    path = put_together(tmp_path / "a.avro", [kind], 0, b"")
    with pytest.raises(FormatError, match=r"a\.avro: its Avro schema is damaged"):
        glaive.ingest(path, tmp_path / "t.lance")


def test_decimals_may_have_more_bytes_than_they_need(tmp_path: Path) -> None:
    price = {"type": "fixed", "name": "P", "size": 40, "logicalType": "decimal"}
    price |= {"precision": 5, "scale": 2}
    kinds = [price, ["null", "P"], {"type": "array", "items": "P"}]
    high, low = (number.to_bytes(40, "big", signed=True) for number in (99999, -99999))
    data = high + as_long(1) + low + as_long(1) + low + as_long(0)
    glaive.ingest(put_together(tmp_path / "a.avro", kinds, 1, data), tmp_path / "t.lance")
    found = glaive.dataset(tmp_path / "t.lance").to_table()
    assert found.schema.types[:2] == [pa.decimal128(5, 2)] * 2
    assert [*found.to_pylist()[0].values()] == [
        Decimal("999.99"),
        Decimal("-999.99"),
        [Decimal("-999.99")],
    ]


@pytest.mark.spec("rel-24")
def test_records_of_a_block_come_some_at_a_time(tmp_path: Path) -> None:
    path = put_together(tmp_path / "a.avro", ["int"], 200_000, bytes(200_000))
    (file,) = list_sources([str(path)])
    piece, schema = Piece(file, 0, None, file.size), pa.schema([("c0", pa.int32())])
    batches = Avro({}).read(piece, schema, Rejects(keep=False))
    assert [batch.num_rows for batch in batches] == [65_536, 65_536, 65_536, 3_392]
