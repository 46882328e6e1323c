"""Casts of values whose unit, zone or type changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from glaive.expr.casts import cast
from glaive.expr.filters import bind_value
from glaive.format.fields import LanceSchema


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+05:30", "America/New_York"])
def test_local_times_are_truncated_before_they_are_times_of_a_zone(zone: str) -> None:
    local: Any = pa.array([500_000, 1, 3_599_999_999, 1_577_836_800_500_001, None], pa.int64())
    seconds = cast(local.cast(pa.timestamp("us")), pa.timestamp("s", zone))
    shown = [None if at is None else at.replace(tzinfo=None) for at in seconds.to_pylist()]
    whole = pa.array([0, 0, 3599, 1_577_836_800, None], pa.int64()).cast(pa.timestamp("s"))
    assert shown == whole.to_pylist()


@pytest.mark.parametrize("call", ["coalesce(t, {})", "least(t, {})", "nullif(t, {})"])
def test_constants_in_calls_do_not_cut_nanoseconds_of_a_column(call: str) -> None:
    ticks = [1, -1, 10**15 + 7]
    batch = pa.record_batch({"t": pa.array(ticks, pa.timestamp("ns"))})
    schema = LanceSchema.from_arrow(batch.schema)
    value = bind_value(call.format("timestamp '2020-01-01'"), schema)
    assert value.type == pa.timestamp("ns")
    assert [one.value for one in value.evaluate(batch)] == ticks


def test_constants_in_calls_that_nanoseconds_do_not_hold_are_in_microseconds() -> None:
    batch = pa.record_batch({"t": pa.array([None, 1], pa.timestamp("us"))})
    schema = LanceSchema.from_arrow(batch.schema)
    value = bind_value("coalesce(t, timestamp '9999-12-31')", schema)
    assert value.type == pa.timestamp("us")
    assert [one.value for one in value.evaluate(batch)] == [253_402_214_400_000_000, 1]


def test_times_in_lists_are_truncated_like_others() -> None:
    lists: Any = pa.array([[1_999, -1_999], None, []], pa.list_(pa.timestamp("ns")))
    cut = cast(lists, pa.list_(pa.timestamp("us")))
    assert cut == pa.array([[1, -1], None, []], pa.list_(pa.timestamp("us")))


def test_texts_of_floats_have_exponents_from_where_their_type_has() -> None:
    numbers = [1e-7, 1e-6, 1e-5, 1e12, 9999998951424.0, 1e13, 9007199254740992.0]
    floats = cast(pa.array(numbers, pa.float32()), pa.string()).to_pylist()
    assert floats[:4] == ["1e-7", "0.000001", "0.00001", "1000000000000.0"]
    assert floats[4:] == ["9999999000000.0", "1e13", "9.007199e15"]
    doubles = cast(pa.array(numbers), pa.string()).to_pylist()
    assert doubles[:3] == ["1e-7", "1e-6", "0.00001"]
    assert doubles[5:] == ["10000000000000.0", "9007199254740992.0"]


@pytest.mark.parametrize(
    "kind", [pa.decimal32(9, 2), pa.decimal64(10, 2), pa.decimal128(10, 2)], ids=str
)
def test_decimals_become_the_closest_float_of_64_bits(kind: Any) -> None:
    cents = [Decimal(cent).scaleb(-2) for cent in range(-20_000, 20_000)]
    found = cast(pa.array([None, *cents], kind), pa.float64()).to_pylist()
    assert found == [None, *map(float, cents)]


@pytest.mark.parametrize("kind", [pa.decimal128(38, 0), pa.decimal256(76, 0)], ids=str)
def test_large_decimals_are_rounded_once(kind: Any) -> None:
    halves = [2**bits + 2 ** (bits - 53) for bits in range(53, 126)]
    numbers = [sign * (half + more) for half in halves for more in (-1, 0, 1) for sign in (-1, 1)]
    numbers += [2**64, -(2**64), 2**63, -(2**63), 10**38 - 1, 0]
    stored = pa.array([Decimal(number) for number in numbers], kind)
    assert cast(stored[3:], pa.float64()).to_pylist() == [float(number) for number in numbers[3:]]


def test_texts_of_zoned_times_have_the_offset_of_their_day() -> None:
    seconds = [-109_583_551, -100_000_000, 0, 1_593_000_000, -5_512_501_476, -(10**11)]
    moments = pa.array(seconds, pa.timestamp("s", "America/New_York"))
    assert cast(moments, pa.string()).to_pylist() == [
        "1966-07-12T12:07:29-04:00",
        "1966-10-31T09:13:20-05:00",
        "1969-12-31T19:00:00-05:00",
        "2020-06-24T08:00:00-04:00",
        "1795-04-25T16:39:22-04:56",
        "-1199-02-15T09:17:18-04:56",
    ]
