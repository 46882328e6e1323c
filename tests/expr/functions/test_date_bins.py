"""Bins of points in time: far from today, with an origin, and with intervals of any length."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.errors import FilterError
from glaive.expr.filters import bind_value
from glaive.expr.functions.registry import find
from glaive.format.fields import LanceSchema

TICK = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds of a tick of each unit."""

FAR = [datetime.fromisoformat(f"{day}T05:00") for day in ("9999-12-31", "0001-01-01", "2024-02-03")]
DAY = datetime.fromisoformat("2024-02-03T05:07")


def computed(text: str, values: pa.Array) -> Any:
    """The values of an expression over a column ``t``."""
    batch = pa.record_batch({"t": values})
    return bind_value(text, LanceSchema.from_arrow(batch.schema)).evaluate(batch).to_pylist()


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_that_nanoseconds_do_not_hold_are_in_bins_like_others(unit: str) -> None:
    times = pa.array(FAR, pa.timestamp(unit))
    assert computed("date_bin(interval '1 day', t)", times) == [
        time.replace(hour=0) for time in FAR
    ]
    assert computed("date_bin(interval '1 month', t)", times) == [
        time.replace(day=1, hour=0) for time in FAR
    ]


@given(
    st.sampled_from(list(TICK)),
    st.integers(-(2**63), 2**63 - 1),
    st.one_of(st.sampled_from([10**9, 3_600 * 10**9]), st.integers(1, 2**63 - 1)),
    st.integers(-(2**63), 2**63 - 1),
)
def test_bins_are_those_of_exact_numbers(unit: str, value: int, size: int, origin: int) -> None:
    tick = TICK[unit]
    exact = (origin + (value * tick - origin) // size * size) // tick
    stride = pa.scalar((0, *divmod(size, 86_400 * 10**9)), pa.month_day_nano_interval())
    times: Any = pa.array([value], pa.int64()).cast(pa.timestamp(unit))
    begin = pa.scalar(origin, pa.int64()).cast(pa.timestamp("ns"))
    try:
        binned = find("date_bin").evaluate([stride, times, begin], 1)
    except FilterError:
        assert exact < -(2**63) or size % tick
    else:
        assert binned.cast(pa.int64()).to_pylist() == [exact]


@pytest.mark.parametrize(
    "origin",
    ["timestamp '2024-01-31 00:30:00'", "to_timestamp('2024-01-31T00:30:00')", "date '2024-01-31'"],
)
def test_bins_begin_at_a_constant_of_any_form(origin: str) -> None:
    times = pa.array([DAY, None], pa.timestamp("us"))
    start = 0 if origin.startswith("date") else 30
    hour = 5 if start == 0 else 4
    binned = computed(f"date_bin(interval '1 hour', t, {origin})", times)
    assert binned == [DAY.replace(hour=hour, minute=start), None]


@pytest.mark.parametrize("unit", list(TICK))
def test_bins_of_months_begin_on_the_last_day_of_one_that_is_too_short(unit: str) -> None:
    """Others began after the times in them: on 1 March, at 2 March."""
    found = {
        "2024-01-31T02": "2024-01-31T01",
        "2024-02-28": "2024-01-31T01",
        "2024-02-29T02": "2024-02-29T01",
        "2024-03-01": "2024-02-29T01",
        "2023-03-01": "2023-02-28T01",
        "2024-04-30": "2024-03-31T01",
    }
    times = pa.array([datetime.fromisoformat(time) for time in found], pa.timestamp(unit))
    origin = "timestamp '2001-01-31 01:00:00'"
    binned = computed(f"date_bin(interval '1 month', t, {origin})", times)
    assert binned == [datetime.fromisoformat(time) for time in found.values()]


def test_a_column_is_no_origin() -> None:
    times = pa.array([DAY], pa.timestamp("us"))
    with pytest.raises(FilterError, match="argument 3 must be a constant"):
        computed("date_bin(interval '1 hour', t, t)", times)


@pytest.mark.parametrize("interval", ["200000 days", "2147483647 days", "-1000000 days 3 hours"])
def test_intervals_of_centuries_are_refused(interval: str) -> None:
    times = pa.array([DAY], pa.timestamp("us"))
    with pytest.raises(FilterError, match="less than 292 years; use months"):
        computed(f"date_bin(interval '{interval}', t)", times)


def test_bins_that_begin_before_the_first_time_are_refused() -> None:
    times: Any = pa.array([1 - 2**63], pa.int64()).cast(pa.timestamp("ns"))
    for interval in ("1 day", "1 month", "2147483647 months"):
        with pytest.raises(FilterError, match="begins before the first timestamp"):
            computed(f"date_bin(interval '{interval}', t)", times)
