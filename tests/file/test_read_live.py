"""Reading without deleted rows gives what reading and dropping them gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumn
from glaive.format.deletions import DeletedRuns
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore
from glaive.kernels.compact import DeletionMask
from glaive.scan.snapshot import LiveRows
from glaive.types import as_buffer

KINDS: list[Any] = [
    pa.int8(),
    pa.uint16(),
    pa.int32(),
    pa.float32(),
    pa.int64(),
    pa.timestamp("us"),
]


def column_of(folder: Path, array: pa.Array, version: str = "2.1") -> BoundColumn:
    store = LocalStore(str(folder))
    schema = LanceSchema.from_arrow(pa.schema([("c", array.type)]))
    writer = create_writer(store, "file.lance", schema, version)
    writer.write(pa.table({"c": array}))
    writer.finish()
    reader = open_reader(store, "file.lance")
    (column,) = reader.bind(reader.schema.fields).columns
    return column


def packed(kind: Any, rows: int, *, nulls: bool) -> Any:
    """Values that are bit-packed with several widths, some chunks of width 0."""
    random = np.random.default_rng(rows)
    top = 1 << min(kind.bit_width - 2, 40)
    words = random.integers(0, top, rows) >> (3 * (np.arange(rows) // 1024 % 3))
    words[2048:3072] = 0
    raw = words.astype(f"<i{kind.bit_width // 8}")
    array: Any = pa.Array.from_buffers(kind, rows, [None, as_buffer(raw)])
    if not nulls:
        return array
    bits = np.packbits(random.random(rows) < 0.8, bitorder="little")
    return pa.Array.from_buffers(kind, rows, [as_buffer(bits), *array.buffers()[1:]])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
@given(data=st.data())
def test_numbers_without_deleted_rows(
    tmp_path_factory: Any, kind: Any, nulls: bool, data: st.DataObject
) -> None:
    rows = data.draw(st.sampled_from([65, 1025, 5000]))
    column = column_of(tmp_path_factory.mktemp("f"), packed(kind, rows, nulls=nulls))
    share = data.draw(st.sampled_from([0.001, 0.03, 0.5, 1.0]))
    deleted = np.flatnonzero(np.random.default_rng(rows).random(rows) < share)
    live = LiveRows(DeletedRuns.of(deleted.astype(np.uint32)), rows)
    start = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(start, rows))
    (expected,) = live.keep(start, stop, [column.read(start, stop)])
    live_rows = live.read(column, start, stop)
    live_rows.validate(full=True)
    assert live_rows.equals(expected)
    assert live_rows.null_count == expected.null_count


def test_packed_chunks_are_read_without_all_of_their_values(tmp_path: Path) -> None:
    column = column_of(tmp_path, pa.array(np.arange(5000)))
    deleted = DeletionMask(np.arange(0, 4000, 7)[1:], 1, 4000)
    array: Any = column.read_live(1, 4001, deleted)
    assert array.to_pylist() == [row for row in range(1, 4001) if row % 7 or row >= 4000]


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_other_columns_are_left_to_the_caller(tmp_path: Path, version: str) -> None:
    strings = pa.array([f"{i * 7919 % 4001} and more" for i in range(4000)])
    column = column_of(tmp_path, strings, version)
    assert column.read_live(0, 4000, DeletionMask(np.array([5]), 0, 4000)) is None
    live = LiveRows(DeletedRuns.of(np.arange(0, 4000, 2, dtype=np.uint32)), 4000)
    expected = strings.take(pa.array(range(1, 4000, 2)))
    assert live.read(column, 0, 4000).equals(expected)
