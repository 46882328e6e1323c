"""Hashes of keys: those of all columns, whichever way they are computed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from glaive.errors import CorruptFileError
from glaive.table.operations.update import Filter, hash_keys, key_filter, may_share_keys


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


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str
)
def test_text_and_bytes_are_hashed_alike_whatever_their_offsets(kind: pa.DataType) -> None:
    hashes = hash_keys([pa.array(["a", "bc"]).cast(kind)])
    expected = hash_keys([pa.array([b"a", b"bc"], pa.binary())])
    assert hashes is not None
    assert expected is not None
    assert hashes.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "column", [pa.array([1.5]), pa.array([1], pa.int16()), pa.array([1, None], pa.int64())]
)
def test_other_keys_have_no_hash(column: pa.Array) -> None:
    assert hash_keys([column]) is None


# --- filters of two writers -------------------------------------------------------------------


def listed(*hashes: int, field: int = 0) -> Filter:
    made = Filter(field_ids=[field])
    made.exact.key_hashes.extend(hashes)
    return made


def bloom(*numbers: int, field: int = 0) -> Filter:
    hashes = hash_keys([pa.array(numbers, pa.int64())])
    assert hashes is not None
    return key_filter([field], hashes)


def hash_of(number: int) -> int:
    hashes = hash_keys([pa.array([number], pa.int64())])
    assert hashes is not None
    return int(hashes[0])


def test_listed_keys_are_shared_if_both_have_one_of_them() -> None:
    assert may_share_keys(listed(1, 2), listed(2, 3))
    assert not may_share_keys(listed(1, 2), listed(3))


def test_keys_are_looked_up_in_a_bloom_filter() -> None:
    filled = bloom(*range(50))
    for number, shared in ((7, True), (1000, False)):
        assert may_share_keys(listed(hash_of(number)), filled) == shared
        assert may_share_keys(filled, listed(hash_of(number))) == shared
        assert may_share_keys(bloom(number), filled) == shared


def test_filters_that_cannot_be_compared_may_share_keys() -> None:
    short = bloom(1)
    short.bloom.bitmap = short.bloom.bitmap[: len(short.bloom.bitmap) // 2]
    nothing = Filter(field_ids=[0])
    for one, other in (
        (listed(1), listed(2, field=4)),
        (listed(1), nothing),
        (nothing, bloom(1)),
        (bloom(1), nothing),
        (bloom(1), short),
    ):
        assert may_share_keys(one, other)


@pytest.mark.parametrize("bitmap", [b"", bytes(33)])
def test_a_bloom_filter_that_is_no_blocks_is_damage(bitmap: bytes) -> None:
    damaged = bloom(1)
    damaged.bloom.bitmap = bitmap
    with pytest.raises(CorruptFileError, match="filter of inserted keys"):
        may_share_keys(listed(1), damaged)
