"""Keys are found again by their words or bytes: both tiers find what a dict finds."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import SchemaError
from glaive.kernels.hashing import StringTable, WordTable
from glaive.kernels.strings import Strings
from glaive.types import as_buffer

TIERS = ("numpy", "numba")

TOP = 2**64 - 1
# Neighbours, multiples of large powers of two, and the ends: what poor hashes put in one place.
WORDS = (
    st.integers(0, 40)
    | st.integers(0, 40).map(lambda number: number << 56 | number << 32)
    | st.integers(0, TOP)
    | st.sampled_from([TOP, TOP - 1, 2**63])
)
TEXTS = st.binary(max_size=3) | st.integers(0, 50).map(lambda number: b"key-%040d" % number)


def first_of(keys: list[Any], queries: list[Any]) -> list[int]:
    numbers_of: dict[Any, int] = {}
    for at, key in enumerate(keys):
        numbers_of.setdefault(key, at)
    return [numbers_of.get(key, -1) for key in queries]


@given(keys=st.lists(WORDS, max_size=80), others=st.lists(WORDS, max_size=40))
def test_words(keys: list[int], others: list[int]) -> None:
    queries = [*others, *keys]
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            table = WordTable(np.array(keys, np.uint64))
            assert table.firsts.tolist() == first_of(keys, keys)
            assert table.find(np.array(queries, np.uint64)).tolist() == first_of(keys, queries)


def strings_of(texts: list[bytes], bits: int, lead: int) -> Strings:
    ends = lead + np.cumsum([0, *map(len, texts)])
    data = pa.py_buffer(b"?" * lead + b"".join(texts))
    return Strings(as_buffer(ends.astype(f"<i{bits // 8}")), bits, data)


@given(
    keys=st.lists(TEXTS, max_size=60),
    others=st.lists(TEXTS, max_size=40),
    bits=st.sampled_from([32, 64]),
    lead=st.integers(0, 3),
)
def test_texts(keys: list[bytes], others: list[bytes], bits: int, lead: int) -> None:
    queries = [*others, *keys]
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            table = StringTable(strings_of(keys, bits, lead), len(keys))
            assert table.firsts.tolist() == first_of(keys, keys)
            numbers = table.find(strings_of(queries, 32, 0), len(queries))
            assert numbers.tolist() == first_of(keys, queries)


@pytest.mark.parametrize("tier", TIERS)
def test_many_keys_of_one_pattern_are_found_in_short_time(tier: Any) -> None:
    words = np.arange(100_000, dtype=np.uint64) << np.uint64(32)
    with force_tier(tier):
        table = WordTable(words)
        assert (table.find(words) == np.arange(len(words))).all()
        assert (table.find(words + np.uint64(1)) == -1).all()


def test_threads_that_build_a_table_at_once_use_the_same_slots() -> None:
    both = Barrier(2)

    def slots(table: WordTable) -> Any:
        both.wait(240)
        return table.slots

    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):  # large tables: both threads begin before one has finished
            table = WordTable(np.arange(500_000, dtype=np.uint64))
            first, second = pool.map(slots, [table, table])
            assert first is second is table.slots


def test_damaged_texts_are_refused() -> None:
    offsets = as_buffer(np.array([0, 5, 2], np.int32))
    damaged = Strings(offsets, 32, pa.py_buffer(b"abcdef"))
    with pytest.raises(SchemaError, match="must ascend"):
        StringTable(damaged, 2)
    table = StringTable(strings_of([b"a"], 32, 0), 1)
    with pytest.raises(SchemaError, match="must ascend"):
        table.find(damaged, 2)


@pytest.mark.spec("rel-25")
def test_keys_that_were_chosen_to_meet_lie_apart() -> None:
    """The factor of the hash is a secret of the table, so that none is a neighbour of all."""
    count = 20_000
    factor = pow(0x9E3779B97F4A7C15, -1, 1 << 64)  # of the factor that everybody knew
    with np.errstate(over="ignore"):
        words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(factor)
    words ^= words >> np.uint64(32)
    table = WordTable(words)
    assert table.firsts.tolist() == list(range(count))
    free = np.flatnonzero(table.slots == 0)
    assert np.diff(free).max() < 1000


def test_tables_have_secrets_of_their_own_and_keep_them_in_other_processes() -> None:
    words = np.arange(1000, dtype=np.uint64) * np.uint64(7)
    texts = [b"%d" % word for word in words]
    tables = [WordTable(words) for _ in range(2)]
    strings = [StringTable(strings_of(texts, 32, 0), len(texts)) for _ in range(2)]
    first, second = (table.slots.tolist() for table in tables)
    assert first != second
    for table in [*tables, pickle.loads(pickle.dumps(tables[0]))]:
        assert table.find(words[::-1]).tolist() == list(range(999, -1, -1))
    for known in [*strings, pickle.loads(pickle.dumps(strings[0]))]:
        assert known.find(strings_of(texts, 32, 0), len(texts)).tolist() == list(range(1000))
