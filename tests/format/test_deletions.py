"""Deletion files of both kinds hold the same set, and damage is reported before memory is taken."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from pyroaring import BitMap
from tests.traced import traced_peak

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.deletions import (
    MAX_DELETED_ROWS,
    MIN_BITMAP_ROWS,
    decode_deletions,
    decode_runs,
    encode_deletions,
)

NOT_NULL = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
MANY = 2**32 - 1


@given(st.sets(st.integers(0, 2**32 - 2), max_size=50), st.booleans())
def test_deleted_rows_come_back(rows: set[int], bitmap: bool) -> None:
    offsets = np.array(sorted(rows), np.uint32)
    data = encode_deletions(offsets, bitmap=bitmap)
    back = decode_deletions(
        pa.py_buffer(data), bitmap=bitmap, rows=2**32 - 1, count=len(rows), where="d"
    )
    np.testing.assert_array_equal(back, offsets)
    assert back.dtype == np.uint32


def arrow_file(
    values: Any,
    name: str = "row_id",
    *,
    nullable: bool = False,
    compression: str | None = None,
    batches: int = 1,
    declared: pa.Schema | None = None,
) -> pa.Buffer:
    """The file of a column; ``declared`` is what its batches say they are."""
    schema = pa.schema([pa.field(name, values.type, nullable)])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, declared or schema, options=options) as writer:
        batch = pa.record_batch([values], schema=declared or schema)
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue()


@given(
    st.sets(st.integers(0, 2**16), min_size=MIN_BITMAP_ROWS, max_size=300), st.integers(0, 2**31)
)
def test_a_bitmap_of_many_rows_is_smaller_than_an_arrow_file(rows: set[int], first: int) -> None:
    offsets = np.array(sorted(rows), np.uint32) + np.uint32(first)
    size = len(encode_deletions(offsets, bitmap=True))
    for codec in (None, "zstd"):
        assert size < arrow_file(pa.array(offsets), "row_id", compression=codec).size


@given(st.sets(st.integers(0, 2**32 - 2), min_size=1, max_size=MIN_BITMAP_ROWS - 1))
def test_an_arrow_file_of_few_rows_is_smallest_without_compression(rows: set[int]) -> None:
    offsets = np.array(sorted(rows), np.uint32)
    size = len(encode_deletions(offsets, bitmap=False))
    assert size <= arrow_file(pa.array(offsets), "row_id", compression="zstd").size


@pytest.mark.spec("del-5")
@given(
    parts=st.lists(st.lists(st.integers(0, 99), max_size=40), max_size=4),
    compression=st.sampled_from([None, "lz4", "zstd"]),
)
def test_arrow_files_of_any_writer_are_read(parts: list[list[int]], compression: Any) -> None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, NOT_NULL, options=options) as writer:
        for part in parts:
            writer.write_batch(pa.record_batch([pa.array(part, pa.uint32())], schema=NOT_NULL))
    rows = sorted({row for part in parts for row in part})
    given = sum(map(len, parts))
    back = decode_deletions(sink.getvalue(), bitmap=False, rows=max(100, given), where="d")
    assert back.tolist() == rows


def test_rows_may_come_in_any_order_and_with_runs() -> None:
    file = arrow_file(pa.array([5, 1, 3], pa.uint32()))
    assert decode_deletions(file, bitmap=False, rows=6, where="d").tolist() == [1, 3, 5]
    runs = BitMap(range(1000))
    runs.run_optimize()
    back = decode_deletions(pa.py_buffer(runs.serialize()), bitmap=True, rows=1000, where="d")
    assert len(back) == 1000


@pytest.mark.spec("del-2")
@pytest.mark.parametrize(
    ("data", "bitmap"),
    [
        (pa.py_buffer(b""), True),
        (pa.py_buffer(b""), False),
        (pa.py_buffer(b"ARROW1 and nothing else"), False),
        (pa.py_buffer(BitMap([1, 2, 70000]).serialize()[:-1]), True),
        (pa.py_buffer(BitMap(range(2**31)).serialize()), True),
        (arrow_file(pa.array([7, 10], pa.uint32())), False),
        (arrow_file(pa.array([1], pa.int32())), False),
        (arrow_file(pa.array([1], pa.uint64())), False),
        (arrow_file(pa.array(["a"])), False),
        (arrow_file(pa.array([1], pa.uint32()).dictionary_encode()), False),
        (arrow_file(pa.array([1], pa.uint32()), "rowid"), False),
        (arrow_file(pa.array([1], pa.uint32()), nullable=True), False),
        (arrow_file(pa.array([1, None], pa.uint32()), declared=NOT_NULL), False),
    ],
)
def test_damaged_files_are_reported(data: pa.Buffer, *, bitmap: bool) -> None:
    with pytest.raises(CorruptFileError, match=r"in d/x"):
        decode_deletions(data, bitmap=bitmap, rows=10, where="d/x")


@pytest.mark.spec("del-3")
@pytest.mark.parametrize("bitmap", [False, True])
@pytest.mark.parametrize("last", [10, 2**32 - 1])
def test_a_row_behind_the_last_of_the_fragment_is_damage(last: int, bitmap: bool) -> None:
    """Also where there are fewer of them than the fragment has rows, and as many as are said."""
    offsets = np.array([1, last], np.uint32)
    data = pa.py_buffer(encode_deletions(offsets, bitmap=bitmap))
    for count in (None, 2):
        with pytest.raises(CorruptFileError, match=rf"expected offsets below 10, found {last}"):
            decode_deletions(data, bitmap=bitmap, rows=10, count=count, where="d")
    kept = decode_deletions(data, bitmap=bitmap, rows=last + 1, count=2, where="d")
    assert kept.tolist() == [1, last]


@pytest.mark.parametrize("bitmap", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_another_number_of_rows_than_the_manifest_says_is_damage(count: int, bitmap: bool) -> None:
    data = pa.py_buffer(encode_deletions(np.array([1, 5, 7], np.uint32), bitmap=bitmap))
    with pytest.raises(CorruptFileError, match=rf"expected (at most )?{count}.*found 3"):
        decode_deletions(data, bitmap=bitmap, rows=10, count=count, where="d")


def most_memory(read: Callable[[], object]) -> int:
    """Bytes that reading takes at most; it ends in an error of ours."""
    pool = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(watched)
    tracemalloc.start()
    try:
        with pytest.raises((CorruptFileError, UnsupportedFeatureError), match=r"in d/x"):
            read()
        return tracemalloc.get_traced_memory()[1] + (watched.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(pool)


def listed_often(data: pa.Buffer, times: int) -> bytes:
    """An Arrow file whose footer lists its only batch many times."""
    raw = data.to_pybytes()
    (size,) = struct.unpack("<i", raw[-10:-6])
    footer = raw[-10 - size : -10]
    # The list of batches stands alone: a number of entries, then a block of 24 bytes.
    (start, head, body) = next(
        found
        for at in range(0, len(footer) - 24, 4)
        if (found := struct.unpack_from("<qi4xq", footer, at))[0] >= 8
        and 0 < found[1] < len(raw)
        and raw[found[0] : found[0] + 4] == b"\xff\xff\xff\xff"
        and footer[at - 4 : at] == struct.pack("<I", 1)
    )
    block = struct.pack("<qi4xq", start, head, body)
    at = footer.index(block)
    # The list is moved to the end, and the reference to it with it.
    reference = next(
        place for place in range(0, at - 4, 4)
        if place + struct.unpack_from("<I", footer, place)[0] == at - 4
    )  # fmt: skip
    moved = bytearray(footer + bytes(-len(footer) % 8) + bytes(4))
    struct.pack_into("<I", moved, reference, len(moved) - reference)
    moved += struct.pack("<I", times) + block * times
    return raw[: -10 - size] + bytes(moved) + struct.pack("<i", len(moved)) + b"ARROW1"


ZEROS = pa.array(np.zeros(4_000_000, np.uint32))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("count", [None, 10, MANY])
def test_an_arrow_file_of_zeros_takes_no_more_memory_than_its_bytes_are_worth(
    count: int | None,
) -> None:
    """Fifty kilobytes that would become gigabytes: batch after batch of compressed zeros."""
    data = arrow_file(ZEROS, compression="zstd", batches=300)
    assert data.size < 400_000
    decode_deletions(  # what is loaded once is not counted
        arrow_file(pa.array([1], pa.uint32()), compression="zstd"), bitmap=False, rows=9, where="d"
    )
    used = most_memory(
        lambda: decode_deletions(data, bitmap=False, rows=MANY, count=count, where="d/x")
    )
    assert used < 50 * data.size


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_batch_that_is_listed_often_is_read_once_at_most(compression: str | None) -> None:
    numbers = pa.array(np.arange(100_000, dtype=np.uint32))
    data = pa.py_buffer(listed_often(arrow_file(numbers, compression=compression), 50_000))
    assert pa.ipc.open_file(pa.BufferReader(data)).num_record_batches == 50_000
    used = most_memory(lambda: decode_deletions(data, bitmap=False, rows=MANY, where="d/x"))
    assert used < 50 * data.size


@pytest.mark.spec("del-6")
@pytest.mark.parametrize("count", [None, 10, 2**31])
def test_a_bitmap_of_billions_of_rows_is_counted_before_they_are_listed(count: int | None) -> None:
    runs = BitMap(range(2**31))
    runs.run_optimize()
    data = pa.py_buffer(runs.serialize())
    used = most_memory(
        lambda: decode_deletions(data, bitmap=True, rows=MANY, count=count, where="d/x")
    )
    assert used < 10_000_000
    assert MAX_DELETED_ROWS < 2**31


@pytest.mark.spec("del-6", "rel-24")
def test_billions_of_deleted_rows_of_few_runs_are_ranges() -> None:
    runs = BitMap(range(5, 2**31)) | BitMap(range(2**31 + 7, 2**32))
    runs.run_optimize()
    data = pa.py_buffer(runs.serialize())
    found = []

    def read() -> None:
        found.append(decode_runs(data, bitmap=True, rows=2**32, count=len(runs), where="d"))

    assert traced_peak(read) < 1_000_000
    assert found[0].begins.tolist() == [5, 2**31 + 7]
    assert found[0].ends.tolist() == [2**31, 2**32]


@given(st.sets(st.integers(0, 300)), st.booleans())
def test_runs_are_those_of_the_offsets(gone: set[int], bitmap: bool) -> None:
    offsets = np.array(sorted(gone), np.uint32)
    data = pa.py_buffer(encode_deletions(offsets, bitmap=bitmap))
    begins, ends = decode_runs(data, bitmap=bitmap, rows=301, count=len(gone), where="d")
    listed = [
        row for run in zip(begins.tolist(), ends.tolist(), strict=True) for row in range(*run)
    ]
    assert listed == offsets.tolist()
    assert (ends[:-1] < begins[1:]).all()


@pytest.mark.parametrize("more", [8, 16])
def test_a_message_ends_where_its_file_says(more: int) -> None:
    raw = bytearray(arrow_file(pa.array([3], pa.uint32())).to_pybytes())
    at = raw.index(b"\xff\xff\xff\xff", raw.index(b"\xff\xff\xff\xff") + 4) + 4
    struct.pack_into("<I", raw, at, struct.unpack_from("<I", raw, at)[0] + more)

    with pytest.raises(CorruptFileError):
        decode_deletions(pa.py_buffer(bytes(raw)), bitmap=False, rows=10, count=1, where="d")


def test_every_number_of_an_arrow_file_may_be_wrong() -> None:
    offsets = [3, 1, 9]
    for compression in (None, "zstd", "lz4"):
        raw = arrow_file(pa.array(offsets, pa.uint32()), compression=compression).to_pybytes()
        for at in range(0, len(raw) - 7, 4):
            for number in (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1):
                changed = raw[:at] + struct.pack("<Q", number) + raw[at + 8 :]
                try:
                    found = decode_deletions(
                        pa.py_buffer(changed), bitmap=False, rows=10, count=3, where="d"
                    )
                except CorruptFileError:
                    continue
                assert len(found) == 3


def test_a_list_of_an_arrow_file_has_as_many_entries_as_it_says() -> None:
    raw = arrow_file(pa.array([3, 1, 9], pa.uint32())).to_pybytes()
    columns = struct.pack("<qq", 3, 0)  # rows and nulls of the only one, at the end of a message
    assert raw.count(struct.pack("<i", 1) + columns) == 1
    changed = raw.replace(struct.pack("<i", 1) + columns, struct.pack("<i", 2) + columns)
    with pytest.raises(CorruptFileError, match="flatbuffer"):
        decode_deletions(pa.py_buffer(changed), bitmap=False, rows=10, count=3, where="d")


def test_a_part_of_an_arrow_file_does_not_lie_before_its_first_byte() -> None:
    """Nor at the end, which is where positions below 0 would be counted from."""
    raw = arrow_file(pa.array([3, 1, 9], pa.uint32())).to_pybytes()
    (size,) = struct.unpack_from("<i", raw, len(raw) - 10)
    footer = len(raw) - 10 - size
    at = footer + struct.unpack_from("<I", raw, footer)[0]
    (back,) = struct.unpack_from("<i", raw, at)
    changed = raw[:at] + struct.pack("<i", back + size) + raw[at + 4 :]
    with pytest.raises(CorruptFileError, match="flatbuffer"):
        decode_deletions(pa.py_buffer(changed), bitmap=False, rows=10, count=3, where="d")
