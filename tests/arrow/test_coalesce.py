"""Small batches are joined; their rows, and what must not be joined, stay."""

from __future__ import annotations

import pyarrow as pa
import pytest

from glaive.arrow.chunked import coalesced, slices_of_rows


def batches(*sizes: int) -> list[pa.RecordBatch]:
    """Batches of numbers that go on from one to the next."""
    numbers = iter(range(sum(sizes)))
    columns = [pa.array([next(numbers) for _ in range(size)], pa.int64()) for size in sizes]
    return [pa.record_batch({"n": column}) for column in columns]


def test_small_batches_become_one_with_their_rows_in_order() -> None:
    (joined,) = coalesced(batches(3, 1, 0, 5))
    assert joined["n"].to_pylist() == list(range(9))


def test_a_batch_ends_with_the_one_that_reaches_the_bytes_or_the_rows() -> None:
    assert [part.num_rows for part in coalesced(batches(4, 4, 4, 4, 1), target_bytes=64)] == [
        8,
        8,
        1,
    ]
    large = pa.record_batch({"n": pa.nulls(40_000)})
    assert [part.num_rows for part in coalesced([large, large, large])] == [80_000, 40_000]


def test_tables_pass_between_the_rows_before_and_after_them() -> None:
    first, second, third, fourth = batches(1, 2, 3, 4)
    table = pa.Table.from_batches([third])
    assert list(coalesced([first, second, table, fourth])) == [
        *pa.Table.from_batches([first, second]).combine_chunks().to_batches(),
        table,
        fourth,
    ]


def test_batches_with_dictionaries_stay_as_they_are() -> None:
    parts = [pa.record_batch({"s": pa.array([text]).dictionary_encode()}) for text in "ab"]
    assert list(coalesced(parts)) == parts


def test_of_no_batches_there_are_none() -> None:
    assert list(coalesced([])) == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 9, 10])
def test_slices_have_as_many_rows_as_were_asked_for_but_the_last(size: int) -> None:
    groups = list(slices_of_rows(batches(3, 1, 0, 5), size))
    rows = [number for group in groups for part in group for number in part["n"].to_pylist()]
    assert rows == list(range(9))
    counts = [sum(part.num_rows for part in group) for group in groups]
    assert counts[:-1] == [size] * ((9 - 1) // size)
    assert all(part.num_rows for group in groups for part in group)
