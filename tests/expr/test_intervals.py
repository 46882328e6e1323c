"""Intervals: parsed from strings, and added to dates and timestamps."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from glaive.errors import FilterError
from glaive.expr.filters import bind_value
from glaive.expr.functions.library import engine_cast
from glaive.format.fields import LanceSchema

DAY, HOUR = 86_400 * 10**9, 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1 month", (1, 0, 0)),
        ("2 years -3 days", (24, -3, 0)),
        ("15 minutes", (0, 0, HOUR // 4)),
        ("1.5 months", (1, 15, 0)),
        ("1.5 weeks", (0, 7, 7 * DAY // 2)),
        (".5 secs 1 ms", (0, 0, 501_000_000)),
        ("1 century 2 hrs 3 nanoseconds", (1200, 0, 2 * HOUR + 3)),
        ("", None),
        ("day", None),
        ("99999999999 days", None),
    ],
)
def test_intervals_are_parsed_by_their_units(text: str, parts: Any) -> None:
    if parts is None:
        with pytest.raises(FilterError):
            engine_cast(pa.array([text]), pa.month_day_nano_interval(), attempt=False)
        return
    found = engine_cast(pa.array([text]), pa.month_day_nano_interval(), attempt=False)
    assert tuple(found[0].as_py()) == parts


def computed(text: str, array: pa.Array) -> list[Any]:
    batch = pa.record_batch({"t": array})
    result = bind_value(text, LanceSchema.from_arrow(batch.schema)).evaluate(batch)
    assert result.type == array.type
    return result.to_pylist()


def test_months_end_on_the_last_day_there_is() -> None:
    days = pa.array([dt.date(2020, 1, 31), dt.date(2019, 12, 1), None])
    moved = [dt.date(2020, 2, 29), dt.date(2020, 1, 1), None]
    assert computed("coalesce(t + interval '1 month')", days) == moved
    assert computed("coalesce(t - interval '11 months')", days)[0] == dt.date(2019, 2, 28)


def test_days_drop_hours_and_timestamps_keep_them() -> None:
    day = pa.array([dt.date(2020, 1, 1)])
    assert computed("coalesce(t + interval '30 hours')", day) == [dt.date(2020, 1, 2)]
    moment = pa.array([dt.datetime(2020, 1, 31, 12, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    assert computed("coalesce(interval '1 month 1 hour' + t)", moment) == [
        dt.datetime(2020, 2, 29, 13, tzinfo=dt.UTC)
    ]


def test_a_month_is_one_of_the_calendar_of_a_zone() -> None:
    moment = pa.array([dt.datetime(2020, 3, 1, 12, tzinfo=dt.UTC)])
    in_paris = moment.cast(pa.timestamp("us", "Europe/Paris"))
    moved = computed("coalesce(t + interval '1 month')", in_paris)
    assert moved == [dt.datetime(2020, 4, 1, 11, tzinfo=dt.UTC)]  # summer time began
