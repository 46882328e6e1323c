"""Damaged files of format 0.1 end in a GlaiveError or in right data, and in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.cases import COLUMNS, table
from tests.legacy_statistics import page_statistics

from glaive.arrow.conditions import IsOneOf
from glaive.errors import CorruptFileError, GlaiveError, NotLanceError
from glaive.file.legacy import LegacyFile, LegacyFileWriter
from glaive.file.open import open_reader
from glaive.format.fields import LanceSchema
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore

ROWS = 1100
MOST_MEMORY = 64 * 1024 * 1024


def _write(folder: Path, rows: pa.Table) -> bytes:
    store = LocalStore(folder)
    schema = LanceSchema.from_arrow(rows.schema)
    writer = LegacyFileWriter(store, "file.lance", schema, rows_per_batch=300)
    writer.write(rows)
    writer.finish()
    return (folder / "file.lance").read_bytes()


def _read_everything(folder: Path, content: bytes) -> None:
    (folder / "damaged.lance").write_bytes(content)
    try:
        file = open_reader(LocalStore(folder), "damaged.lance")
        columns = file.bind(file.schema.fields)
        for array in columns.read(0, columns.num_rows):
            array.validate(full=False)
        if columns.num_rows > 10:
            columns.read(3, 9)
            columns.take(np.array([7, 0, 7, columns.num_rows - 1]))
        if isinstance(file, LegacyFile):
            page_statistics(file)
    except GlaiveError:
        pass


@pytest.mark.sampled(every=27)
@pytest.mark.parametrize("name", [*COLUMNS, "dictionary"])
def test_flipped_bytes_never_crash(tmp_path: Path, name: str) -> None:
    if name == "dictionary":
        keys = pa.array((np.arange(ROWS) % 3).astype(np.int8))
        rows = pa.table({"k": pa.DictionaryArray.from_arrays(keys, pa.array(["p", "q", "r"]))})
    else:
        rows = table(name, ROWS)
    whole = _write(tmp_path, rows)
    rng = np.random.default_rng([2, *name.encode()])
    tail = len(whole) - min(len(whole), 1200)
    positions = [rng.integers(0, len(whole), 12), rng.integers(tail, len(whole), 30)]
    for at in np.concatenate(positions).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(0, 8)) if rng.random() < 0.5 else 0xFF
        _read_everything(tmp_path, bytes(damaged))


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    whole = _write(tmp_path, table("string", ROWS))
    for size in (0, 1, 15, 16, 100, len(whole) // 2, len(whole) - 17, len(whole) - 1):
        (tmp_path / "damaged.lance").write_bytes(whole[:size])
        with pytest.raises(NotLanceError, match="not a Lance file"):
            open_reader(LocalStore(tmp_path), "damaged.lance")


@pytest.mark.nightly(reason="reads many damaged files")
def test_memory_stays_bounded_when_tables_lie(tmp_path: Path) -> None:
    whole = _write(tmp_path, table("string", ROWS))
    tracemalloc.start()
    before = pa.default_memory_pool().bytes_allocated()
    for at in range(len(whole) - 1500, len(whole) - 16, 11):
        damaged = bytearray(whole)
        damaged[at] = 0x7F
        _read_everything(tmp_path, bytes(damaged))
        assert pa.default_memory_pool().bytes_allocated() - before < MOST_MEMORY
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY


def _table_place(raw: bytes) -> int:
    """Where the page table of a file with one column begins."""
    return LegacyFile(open_memory(raw).open("a.lance")).page_table_position


def open_memory(raw: bytes) -> ObjectStore:
    store = open_store("memory://damage-legacy")
    store.put("a.lance", [raw])
    return store


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        (0, -1, "page table"),
        (0, 1 << 60, "page table"),
        (1, -5, "page table"),
        (1, 1 << 62, "page table"),
        (1, 299, "page: expected 300 values or more, found 299"),
    ],
)
def test_entries_of_the_page_table_are_checked(
    tmp_path: Path, entry: int, value: int, message: str
) -> None:
    raw = bytearray(_write(tmp_path, pa.table({"a": np.arange(ROWS)})))
    at = _table_place(bytes(raw)) + 8 * entry
    raw[at : at + 8] = value.to_bytes(8, "little", signed=True)
    file = LegacyFile(open_memory(bytes(raw)).open("a.lance"))
    with pytest.raises(CorruptFileError, match=message):
        file.bind(file.schema.fields).read(0, ROWS)


@pytest.mark.parametrize("at", [0, 1, 150, 300])
@pytest.mark.parametrize("value", [-1, -(2**63), 2**62, 2**63 - 1])
@pytest.mark.parametrize("mapped", [True, False])
def test_offsets_of_strings_are_checked(
    tmp_path: Path, at: int, value: int, *, mapped: bool
) -> None:
    rows = pa.table({"a": [f"row {i}" for i in range(ROWS)]})
    raw = bytearray(_write(tmp_path, rows))
    table_at = _table_place(bytes(raw))
    position = int.from_bytes(raw[table_at : table_at + 8], "little") + 8 * at
    raw[position : position + 8] = value.to_bytes(8, "little", signed=True)
    (tmp_path / "a.lance").write_bytes(raw)
    store: ObjectStore = LocalStore(tmp_path) if mapped else open_memory(bytes(raw))
    file = LegacyFile(store.open("a.lance"))
    columns = file.bind(file.schema.fields)
    with pytest.raises(CorruptFileError, match=r"offsets|page"):
        columns.read(0, ROWS)
    with pytest.raises(CorruptFileError, match=r"offsets|page"):
        columns.take(np.arange(ROWS))


def test_keys_beyond_the_items_are_refused(tmp_path: Path) -> None:
    keys = pa.array(np.zeros(ROWS, np.int8))
    raw = bytearray(
        _write(tmp_path, pa.table({"k": pa.DictionaryArray.from_arrays(keys, pa.array(["p"]))}))
    )
    raw[5] = 1
    file = LegacyFile(open_memory(bytes(raw)).open("a.lance"))
    with pytest.raises(CorruptFileError, match="keys of a dictionary: expected 0 to 0, found"):
        file.bind(file.schema.fields).read(0, ROWS)


@pytest.mark.parametrize(
    ("part", "damaged"),
    [
        (b"null_count\x18\x05 \x04", b"null_count\x18\x05 \x00"),  # is part of another field
        (b"null_count\x18\x01*\x05int64", b"null_count\x18\x01*\x05float"),
    ],
)
def test_incomplete_statistics_leave_no_page_out(
    tmp_path: Path, part: bytes, damaged: bytes
) -> None:
    raw = _write(tmp_path, pa.table({"a": np.arange(ROWS), "b": np.arange(ROWS)}))
    assert raw.count(part) == 1
    condition = IsOneOf(pa.array([7]))
    for content, ranges in ((raw, [(0, 300)]), (raw.replace(part, damaged), [(0, ROWS)])):
        file = LegacyFile(open_memory(content).open("a.lance"))
        first, _ = file.bind(file.schema.fields).columns
        assert [tuple(part) for part in first.prune(condition, 0, ROWS)] == ranges
