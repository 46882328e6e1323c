"""Reading without deleted rows gives what reading and dropping them gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.errors import CorruptFileError
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumn
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore
from glaive.kernels._tier import as_buffer, force_tier
from glaive.kernels.bitpack import chunk_widths, pack_inline
from glaive.kernels.keep import Gone, keep_inline
from glaive.scan.deletions import LiveRows

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
    live = LiveRows(deleted.astype(np.uint32), rows)
    start = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(start, rows))
    (expected,) = live.keep(start, stop, [column.read(start, stop)])
    for tier in ("numpy", "numba"):
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            found = live.read(column, start, stop)
        found.validate(full=True)
        assert found.equals(expected)
        assert found.null_count == expected.null_count


def test_packed_chunks_are_read_without_all_of_their_values(tmp_path: Path) -> None:
    column = column_of(tmp_path, pa.array(np.arange(5000)))
    gone = Gone(np.arange(0, 4000, 7)[1:], 1, 4000)
    found: Any = column.read_live(1, 4001, gone)
    assert found.to_pylist() == [row for row in range(1, 4001) if row % 7 or row >= 4000]


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_other_columns_are_left_to_the_caller(tmp_path: Path, version: str) -> None:
    texts = pa.array([f"{i * 7919 % 4001} and more" for i in range(4000)])
    column = column_of(tmp_path, texts, version)
    assert column.read_live(0, 4000, Gone(np.array([5]), 0, 4000)) is None
    live = LiveRows(np.arange(0, 4000, 2, dtype=np.uint32), 4000)
    expected = texts.take(pa.array(range(1, 4000, 2)))
    assert live.read(column, 0, 4000).equals(expected)


@pytest.mark.parametrize("tier", ["numpy", "numba"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_damage_and_wrong_rows_are_refused(tier: Any, bits: int) -> None:
    values = as_buffer((np.arange(2000) % 100).astype(f"<u{bits // 8}"))
    raw, sizes = pack_inline(values, 2000, bits, chunk_widths(values, 2000, bits))
    data, starts, counts = as_buffer(raw), np.cumsum(sizes) - sizes, np.array([1024, 976])
    gone = Gone(np.array([10, 20]), 0, 1990)
    with force_tier(tier):
        kept = keep_inline(data, starts, sizes, counts, bits, 10, gone, "a.lance")
        expected = np.delete(np.arange(10, 2000) % 100, [10, 20])
        assert np.frombuffer(kept, f"<u{bits // 8}").tolist() == expected.tolist()
        with pytest.raises(CorruptFileError, match="bit-packed chunk"):
            keep_inline(data, starts, sizes + 1, counts, bits, 10, gone, "a.lance")
        with pytest.raises(ValueError, match="1990 rows from value 11"):
            keep_inline(data, starts, sizes, counts, bits, 11, gone, "a.lance")
        wrong = Gone(np.array([20, 10]), 0, 1990)
        with pytest.raises(ValueError, match="row numbers"):
            keep_inline(data, starts, sizes, counts, bits, 0, wrong, "a.lance")


def test_loops_do_not_write_more_rows_than_the_numbers_leave() -> None:
    values = as_buffer(np.arange(1000, dtype="<u2"))
    raw, sizes = pack_inline(values, 1000, 16, chunk_widths(values, 1000, 16))
    every = np.full(1000 // 8 + 17, 0xFF, np.uint8)
    each = np.zeros(1, np.int64), sizes, np.array([1000])
    with force_tier("numba"), pytest.raises(ValueError, match="row numbers"):
        keep_inline(as_buffer(raw), *each, 16, 0, Gone(np.array([3]), 0, 1000, every), "a.lance")


def test_bits_that_end_too_early_are_refused() -> None:
    with pytest.raises(ValueError, match="18 bytes for the bits 0 to 20"):
        Gone(np.array([3]), 0, 20, np.zeros(18, np.uint8))
