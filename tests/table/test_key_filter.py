"""Hashes of keys: those of all columns, whichever way they are computed."""

from __future__ import annotations

import pyarrow as pa

from glaive.table.key_filter import hash_keys


def test_each_column_of_a_key_counts() -> None:
    first, second = pa.array([1, 1, 2], pa.int64()), pa.array([7, 8, 7], pa.int64())
    hashes = hash_keys([first, second])
    assert hashes is not None
    assert len(set(hashes.tolist())) == 3


def test_an_integer_is_hashed_as_its_eight_bytes() -> None:
    numbers = [0, -1, 2**40]
    words = hash_keys([pa.array(numbers, pa.int64())])
    raw = pa.array([number.to_bytes(8, "little", signed=True) for number in numbers], pa.binary())
    as_bytes = hash_keys([raw])
    assert words is not None
    assert as_bytes is not None
    assert words.tolist() == as_bytes.tolist()
