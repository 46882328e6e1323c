"""Delta tables as sources: versions, partitions, deleted rows."""

from __future__ import annotations

import json
import string
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError, UnsupportedFeatureError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    place = tmp_path / "delta"
    rows = {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "day": [date(2026, 1, 1), date(2026, 1, 1), None, date(2026, 1, 2)],
        "zone": ["a b", "a/b", "ü%20", None],
        "at": pa.array([datetime(2026, 1, n, tzinfo=UTC) for n in range(1, 5)]),
        "price": [Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00")],
        "tags": [["x"], [], None, ["y", "z"]],
    }
    deltalake.write_deltalake(str(place), pa.table(rows), partition_by=["day", "zone"])
    return place


def rows_of(place: Path, version: int | None = None) -> list[dict[str, Any]]:
    opened = deltalake.DeltaTable(str(place), version=version)
    return sorted(opened.to_pyarrow_table().to_pylist(), key=lambda row: int(row["id"]))


def ingested(place: Path, **options: Any) -> list[dict[str, Any]]:
    uri = place.parent / "t.lance"
    glaive.ingest(place, uri, format="delta", mode="overwrite", **options)
    return sorted(glaive.dataset(uri).to_table().to_pylist(), key=lambda row: int(row["id"]))


def test_a_version_has_the_rows_columns_and_types_of_the_table(table: Path) -> None:
    opened = deltalake.DeltaTable(str(table))
    assert ingested(table) == rows_of(table)
    made = glaive.dataset(table.parent / "t.lance")
    assert made.schema.names == pa.schema(opened.schema().to_arrow()).names
    assert made.schema.field("day").type == pa.date32()
    opened.delete("id = 2")
    more = pa.table({"id": [5], "extra": ["new"]})
    deltalake.write_deltalake(str(table), more, mode="append", schema_mode="merge")
    assert ingested(table) == rows_of(table)
    assert [row["id"] for row in ingested(table)] == [1, 3, 4, 5]
    assert ingested(table, reader_options={"version": 0}) == rows_of(table, 0)


def test_the_transaction_names_the_version(table: Path) -> None:
    deltalake.DeltaTable(str(table)).delete("id = 2")
    ingested(table)
    made = glaive.dataset(table.parent / "t.lance")
    transaction = made.read_transaction(made.version)
    assert transaction is not None
    properties = transaction.transaction_properties or {}
    assert properties["delta.version"] == "1"
    assert properties["delta.table"].rstrip("/").endswith("/delta")


def log_of(
    place: str | Path, version: int, entries: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Read the log of a version, or write it."""
    log = Path(place) / "_delta_log" / f"{version:020}.json"
    if entries is not None:
        log.write_text("\n".join(map(json.dumps, entries)))
    return [json.loads(line) for line in log.read_text().splitlines()]


def inline_vector(rows: list[int]) -> dict[str, Any]:
    """An even number of rows as a Roaring bitmap in Z85, as Delta's protocol describes it."""
    high = sorted({row >> 16 for row in rows})
    low = [[row & 0xFFFF for row in rows if row >> 16 == key] for key in high]
    data = struct.pack("<IQI", 1681511377, 1, 0) + struct.pack("<II", 12346, len(high))
    for key, some in zip(high, low, strict=True):
        data += struct.pack("<HH", key, len(some) - 1)
    start = 8 + 8 * len(high)
    for some in low:
        data += struct.pack("<I", start)
        start += 2 * len(some)
    data += struct.pack(f"<{len(rows)}H", *(one for some in low for one in some))
    digits = string.digits + string.ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(digits[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


@pytest.mark.parametrize(
    ("rows", "deleted"),
    [(40, [3, 4, 7, 11, 18, 29]), (150_000, [0, 65_535, 65_536, 70_000, 100_001, 149_999])],
)
def test_rows_in_a_deletion_vector_are_left_out(
    tmp_path: Path, rows: int, deleted: list[int]
) -> None:
    place = tmp_path / "delta"
    small_groups = deltalake.WriterProperties(max_row_group_size=50_000)
    numbers = pa.table({"id": list(range(rows))})
    deltalake.write_deltalake(str(place), numbers, writer_properties=small_groups)
    [add] = [entry["add"] for entry in log_of(place, 0) if "add" in entry]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    entries: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "deletionVector": inline_vector(deleted)}},
    ]
    log_of(place, 1, entries)
    found = [row["id"] for row in ingested(place, task_bytes=1)]
    assert found == [number for number in range(rows) if number not in deleted]


def test_what_cannot_be_read_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no such Delta table or version"):
        ingested(tmp_path / "nothing")
    with pytest.raises(OptionError, match="no such Delta table or version"):
        ingested(table, reader_options={"version": 7})
    with pytest.raises(OptionError, match="version"):
        ingested(table, reader_options={"version": -1})


def test_mapped_columns_are_refused(table: Path) -> None:
    log = table / "_delta_log" / f"{0:020}.json"
    text = log.read_text()
    mapped = '"configuration":{"delta.columnMapping.mode":"name"}'
    assert '"configuration":{}' in text
    log.write_text(text.replace('"configuration":{}', mapped))
    with pytest.raises(UnsupportedFeatureError, match="maps columns by name"):
        ingested(table)
