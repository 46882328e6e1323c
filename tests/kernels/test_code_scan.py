"""Scans of codes keep the nearest rows, whichever tier compares them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.code_blocks import blocks_of
from tests.kernels.tiers import force_tier

from glaive.kernels.graph_search import (
    COMPARISONS,
    AllowedBits,
    CodeQuery,
    CodeRows,
    PartitionTable,
    RowPlaces,
    ScannedPartition,
    code_blocks,
    join_tables,
    scan_codes,
    scan_table,
)
from glaive.kernels.machine import processor

TIERS = ("numpy", "numba")
WIDTH = 5


def query_of(comparison: Any, random: Any, **others: float) -> CodeQuery:
    if comparison == "tables":
        tables = random.integers(-9, 9, (WIDTH, 256)).astype(np.float32)
        return CodeQuery(comparison, tables, **others)
    kind = np.uint8 if comparison == "gap" else np.float32
    return CodeQuery(comparison, random.integers(0, 9, WIDTH).astype(kind), **others)


def partition_of(
    comparison: str, count: int, random: Any, first_key: int, *, terms: bool, scales: bool
) -> ScannedPartition:
    kind = np.float32 if comparison in ("squared", "product") else np.uint8
    codes = random.integers(0, 9, (count, WIDTH)).astype(kind)
    numbers = random.integers(-3, 4, (2, count)).astype(np.float32)
    rows = CodeRows(codes, numbers[0] if terms else None, numbers[1] if scales else None)
    places = RowPlaces(
        random.integers(0, 3, count), random.integers(0, 9, count),
        np.arange(first_key, first_key + count, dtype=np.uint64), random.random(count) < 0.8,
    )  # fmt: skip
    return ScannedPartition(rows, places, float(random.integers(0, 4)), 2.0)


@given(
    comparison=st.sampled_from(COMPARISONS),
    sizes=st.lists(st.integers(0, 40), max_size=4),
    count=st.integers(1, 30),
    terms=st.booleans(),
    scales=st.booleans(),
    restricted=st.booleans(),
    seed=st.integers(0, 500),
)
def test_both_tiers_keep_the_same_rows(
    comparison: str,
    sizes: list[int],
    count: int,
    terms: bool,
    scales: bool,
    restricted: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    parts = [
        partition_of(comparison, size, random, 100 * at, terms=terms, scales=scales)
        for at, size in enumerate(sizes)
    ]
    query = query_of(comparison, random, factor=2.0, shift=1.0)
    allowed = None
    if restricted:
        bits = random.integers(0, 256, 2).astype(np.uint8)
        allowed = AllowedBits(np.array([0, 8]), np.array([7, 6]), bits)
    found = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            found.append(scan_codes(parts, query, count, low=-50, high=400, allowed=allowed))
    first, second = found
    assert [array.tolist() for array in first[:4]] == [array.tolist() for array in second[:4]]
    assert first.compared == second.compared
    order = list(zip(first.distance.tolist(), first.key.tolist(), strict=True))
    assert order == sorted(order)
    assert len(order) <= count


@pytest.mark.parametrize("scale", [0.0, 2.0**-110, 2.0**-10, 1.0, 2.0**13, 2.0**90])
@pytest.mark.parametrize("odd", [0.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_bounds_of_codes_by_tables_lose_no_row(
    scale: float, odd: float, live: bool, bits: int
) -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        # Whole numbers, so that sums are the same in whatever order.
        shape = (WIDTH, 256) if bits == 8 else (2 * WIDTH, 16)
        tables = (random.integers(-999, 1000, shape) * scale).astype(np.float32)
        tables[0, seed : seed + 9] += np.float32(odd)
        tables = tables if bits == 8 else join_tables(tables)
        made = []
        for at, size in enumerate((300, 40, 190)):
            codes = random.integers(0, 256, (size, WIDTH)).astype(np.uint8)
            terms = (random.integers(-8000, 8000, size) * scale).astype(np.float32)
            number = np.arange(size)
            is_live = random.random(size) < 0.9 if live else None
            places = RowPlaces(number, number, (number + 1000 * at).astype(np.uint64), is_live)
            made.append((codes, terms, places))
        found = []
        for tier in TIERS:
            with force_tier(tier):  # type: ignore[arg-type]  # a tier
                parts = [
                    ScannedPartition(CodeRows(c, t, blocks=blocks_of(c)), p, at * scale, -2.0)
                    for at, (c, t, p) in enumerate(made)
                ]
                query = CodeQuery("tables", tables, bits=bits)
                found += [scan_codes(parts, query, 20, low=low * scale) for low in (-9e9, -3000)]
        for first, second in zip(found[:2], found[2:], strict=True):
            assert first.key.tolist() == second.key.tolist()
            assert first.distance.tolist() == second.distance.tolist()
            assert first.compared == second.compared


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_whose_blocks_say_that_they_are_far_are_not_compared(bits: int) -> None:
    count = 64 * 4
    near, far = np.zeros((count, WIDTH), np.uint8), np.full((count, WIDTH), 200, np.uint8)
    tables = np.zeros((WIDTH, 256), np.float32)
    tables[:, 200] = 1
    if bits == 4:
        halves = np.zeros((2 * WIDTH, 16), np.float32)
        halves[1::2, 200 >> 4] = 1
        tables = join_tables(halves)
    number = np.arange(count)
    places = RowPlaces(number, number, number[::-1].astype(np.uint64))
    # Blocks of other codes than the rows have show which of the two are looked at.
    part = ScannedPartition(
        CodeRows(near, np.zeros(count, np.float32), blocks=blocks_of(far)), places, 0
    )
    found = scan_codes([part], CodeQuery("tables", tables, bits=bits), 10)
    assert found.compared == [count]
    assert found.key.min() == count - 64


@pytest.mark.parametrize("count", [63, 64, 200])
@pytest.mark.parametrize(("bits", "needed"), [(8, "+avx512vbmi"), (4, "+avx2")])
def test_blocks_are_made_where_the_processor_can_compare_them(
    count: int, bits: int, needed: str
) -> None:
    codes = np.random.default_rng(count).integers(0, 256, (count, WIDTH)).astype(np.uint8)
    blocks = code_blocks(codes, bits)

    is_able = needed in processor()[1].split(",")
    expected = blocks_of(codes).tolist() if is_able and count >= 64 else None
    assert (None if blocks is None else blocks.tolist()) == expected


@pytest.mark.parametrize("bits", [1, 5, 8])
@pytest.mark.parametrize("size", [2.0**-120, 1.0, 2.0**40])
@pytest.mark.parametrize("odd", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("width", [32, 96, 40])
def test_bounds_of_products_with_bytes_lose_no_row(
    bits: int, size: float, odd: float, width: int
) -> None:
    random = np.random.default_rng(width)
    count = 900
    # Whole numbers, so that sums are the same in whatever order.
    numbers = (random.integers(-70, 70, width) * size).astype(np.float32)
    numbers[0] += np.float32(odd)
    codes = random.integers(0, 1 << bits, (count, width)).astype(np.uint8)
    codes[: count // 2, 0] = 0
    scales = random.integers(-3, 4, count).astype(np.float32)
    terms = (random.integers(-99, 99, count) * size).astype(np.float32)
    number = np.arange(count)
    places = RowPlaces(number, number, number[::-1].astype(np.uint64))
    part = ScannedPartition(CodeRows(codes, terms, scales), places, 3 * size, 2.0)
    query = CodeQuery("bytes", numbers, shift=7 * size, bits=bits)
    found = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            found.append(scan_codes([part], query, 20))
    first, second = found
    assert first.key.tolist() == second.key.tolist()
    assert first.distance.tolist() == second.distance.tolist()
    assert first.compared == second.compared


@pytest.mark.parametrize("tier", TIERS)
def test_tables_of_two_codes_have_the_sums_of_their_entries(tier: Any) -> None:
    halves = np.arange(2 * 3 * 16, dtype=np.float32).reshape(-1, 16)
    with force_tier(tier):
        tables = join_tables(halves)
    for part, low, high in ((0, 0, 0), (1, 3, 15), (2, 15, 2)):
        assert tables[part, 16 * high + low] == halves[2 * part, low] + halves[2 * part + 1, high]


def test_a_table_answers_only_for_partitions_in_memory() -> None:
    number = np.arange(4)
    places = RowPlaces(number, number, number.astype(np.uint64))
    rows = CodeRows(np.arange(8, dtype=np.float32).reshape(4, 2))
    table = PartitionTable.of(3).joined({1: (rows, places)}, 5)
    query = CodeQuery("squared", np.zeros((1, 2), np.float32))

    def search(*numbers: int) -> Any:
        one, count = np.ones((1, len(numbers)), np.float32), [len(numbers)]
        return scan_table(table, np.array([numbers]), one, one, count, query, 2, high=[9e9])

    assert search(1).distance.tolist() == [2, 14]
    assert [search(*numbers) for numbers in ((0,), (1, 2), (3,), (-1,))] == [None] * 4
    assert table.nbytes == PartitionTable.of(3).nbytes + 5


@pytest.mark.parametrize("tier", TIERS)
def test_rows_that_are_far_not_live_or_not_allowed_are_passed_over(tier: Any) -> None:
    codes = np.array([[0], [1], [2], [3], [4], [np.nan]], np.float32)
    places = RowPlaces(
        np.array([0, 0, 0, 1, 7, 0]), np.array([0, 1, 2, 0, 0, 3]), np.arange(6, dtype=np.uint64),
        np.array([True, False, True, True, True, True]),
    )  # fmt: skip
    part = ScannedPartition(CodeRows(codes), places, 0)
    query = CodeQuery("squared", np.zeros(1, np.float32))
    allowed = AllowedBits(np.array([0, 4]), np.array([4, 1]), np.array([0b11111], np.uint8))
    with force_tier(tier):
        assert scan_codes([part], query, 9).key.tolist() == [0, 2, 3, 4]
        assert scan_codes([part], query, 9, low=1, high=9).key.tolist() == [2, 3]
        near = scan_codes([part], query, 2, allowed=allowed)
    assert near.key.tolist() == [0, 2]
    assert near.compared == [4]
    assert (near.fragment.tolist(), near.row.tolist()) == ([0, 0], [0, 2])


@pytest.mark.parametrize("tier", TIERS)
def test_of_equal_distances_the_lowest_keys_are_kept(tier: Any) -> None:
    keys = np.random.default_rng(3).permutation(50).astype(np.uint64)
    places = RowPlaces(np.zeros(50, np.int64), np.arange(50), keys)
    part = ScannedPartition(CodeRows(np.ones((50, 3), np.uint8)), places, 0)
    with force_tier(tier):
        near = scan_codes([part], CodeQuery("gap", np.zeros(3, np.uint8)), 7)
    assert near.key.tolist() == list(range(7))


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("comparison", ["squared", "product", "gap", "bytes", "tables"])
def test_several_queries_find_what_each_alone_finds(comparison: str, count: int) -> None:
    random = np.random.default_rng(count)
    parts = [
        partition_of(comparison, size, random, 100 * at, terms=True, scales=True)
        for at, size in enumerate((9, 0, 30))
    ]
    table = PartitionTable.of(3).joined({at: part[:2] for at, part in enumerate(parts)}, 0)
    queries = [query_of(comparison, random, factor=2.0, shift=float(at)) for at in range(4)]
    numbers, counts = np.array([[0, 2], [2, 1], [1, 0], [2, 0]]), [2, 1, 1, 2]
    offsets = random.integers(-9, 9, (4, 2)).astype(np.float32)
    weights, high = -offsets, [900, np.inf, 5, 70]
    batch = queries[0]._replace(
        query=np.stack([one.query for one in queries]), shift=[0.0, 1, 2, 3]
    )
    found = scan_table(table, numbers, offsets, weights, counts, batch, count, high=high)
    alone = [
        scan_codes(
            [
                parts[number]._replace(offset=offset, weight=weight)
                for number, offset, weight in zip(
                    numbers[at, :some].tolist(), offsets[at].tolist(), weights[at].tolist(),
                    strict=False,
                )
            ],
            query, count, high=high[at],
        )
        for at, (query, some) in enumerate(zip(queries, counts, strict=True))
    ]  # fmt: skip
    assert found is not None
    assert found.sizes == [len(one.key) for one in alone]
    assert [[count] for count in found.compared] == [one.compared for one in alone]
    for name in ("distance", "key", "fragment", "row"):
        expected = np.concatenate([getattr(one, name) for one in alone])
        assert getattr(found, name).tolist() == expected.tolist()


NUMBERS = np.zeros(2, np.int64)
ROWS = CodeRows(np.zeros((2, 3), np.uint8))
PLACES = RowPlaces(NUMBERS, NUMBERS, NUMBERS.astype(np.uint64))
ONE = RowPlaces(NUMBERS[:1], NUMBERS[:1], PLACES.key[:1])
GAP = CodeQuery("gap", np.zeros(3, np.uint8))
GAPS = GAP._replace(query=GAP.query[None])
FLOATS = np.zeros((1, 2), np.float32)
SCANNED = PartitionTable.of(2), NUMBERS[None]


@pytest.mark.parametrize(
    "call",
    [
        lambda: CodeRows(np.zeros((2, 3))),
        lambda: CodeRows(np.zeros((3, 2), np.uint8).T),
        lambda: CodeRows(ROWS.codes, np.zeros(3, np.float32)),
        lambda: CodeRows(ROWS.codes, np.zeros(2, np.float32), blocks=np.zeros(192, np.uint8)),
        lambda: CodeRows(ROWS.codes, blocks=np.zeros(0, np.uint8)),
        lambda: RowPlaces(NUMBERS[:1], NUMBERS, PLACES.key),
        lambda: RowPlaces(NUMBERS, NUMBERS, PLACES.key, np.zeros(1, np.bool_)),
        lambda: AllowedBits(NUMBERS[:1], np.array([9]), np.zeros(1, np.uint8)),
        lambda: AllowedBits(NUMBERS[:1] - 1, NUMBERS[:1], np.zeros(1, np.uint8)),
        lambda: PartitionTable.of(1).joined({0: (ROWS, ONE)}, 0),
        lambda: scan_table(*SCANNED, FLOATS[:, :1], FLOATS, [1], GAPS, 1, high=[1]),
        lambda: scan_table(*SCANNED, FLOATS, FLOATS[:, :1], [1], GAPS, 1, high=[1]),
        lambda: scan_table(*SCANNED, FLOATS, FLOATS, [1, 1], GAPS, 1, high=[1]),
        lambda: scan_table(*SCANNED, FLOATS, FLOATS, [1], GAP, 1, high=[1]),
        lambda: join_tables(np.zeros((3, 16), np.float32)),
        lambda: scan_codes([ScannedPartition(ROWS, PLACES, 0)], GAP, 0),
        lambda: scan_codes([ScannedPartition(ROWS, ONE, 0)], GAP, 1),
        lambda: scan_codes([], GAP._replace(query=np.zeros(3, np.float32)), 1),
        lambda: scan_codes(
            [ScannedPartition(ROWS, PLACES, 0)], GAP._replace(query=np.zeros(2, np.uint8)), 1
        ),
    ],
    ids=[
        "kind",
        "order",
        "terms",
        "blocks",
        "no terms",
        "fragments",
        "live",
        "bits",
        "start",
        "places",
        "offsets",
        "weights",
        "counts",
        "queries",
        "halves",
        "count",
        "rows",
        "query",
        "width",
    ],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(ValueError, match=r"codes|rows|bits|query|fragments|shape|tables|offsets"):
        call()
