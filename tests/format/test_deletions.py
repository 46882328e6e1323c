"""Deletion files of both kinds hold the same set, and damage is reported."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from pyroaring import BitMap

from glaive.errors import CorruptFileError
from glaive.format.deletions import decode_deletions, encode_deletions


@given(st.sets(st.integers(0, 2**32 - 2), max_size=50), st.booleans())
def test_deleted_rows_come_back(rows: set[int], bitmap: bool) -> None:
    offsets = np.array(sorted(rows), np.uint32)
    data = encode_deletions(offsets, bitmap=bitmap)
    back = decode_deletions(pa.py_buffer(data), bitmap=bitmap, rows=2**32 - 1, where="d")
    np.testing.assert_array_equal(back, offsets)
    assert back.dtype == np.uint32


def arrow_file(values: pa.Array[Any], name: str = "row_id", *, nullable: bool = False) -> pa.Buffer:
    schema = pa.schema([pa.field(name, values.type, nullable)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([values], schema=schema))
    return sink.getvalue()


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
        (arrow_file(pa.array([1], pa.uint32()), "rowid"), False),
        (arrow_file(pa.array([1], pa.uint32()), nullable=True), False),
    ],
)
def test_damaged_files_are_reported(data: pa.Buffer, *, bitmap: bool) -> None:
    with pytest.raises(CorruptFileError, match=r"in d/x"):
        decode_deletions(data, bitmap=bitmap, rows=10, where="d/x")
