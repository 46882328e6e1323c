"""Points in time and durations at the limits: of years, of the digits of floats, of integers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.expr.functions.calls import evaluate

from glaive.errors import FilterError
from glaive.expr.casts import cast

CYCLE = 146_097
"""Days of 400 years."""

PARTS = ("month", "week", "quarter", "day", "doy", "dow", "isodow")
NEAR = np.arange(-1500, 1500, 7) + 11_000


def moments(days: Any, kind: pa.DataType) -> Any:
    if pa.types.is_date32(kind):
        return pa.array(days, pa.int32()).cast(kind)
    return pa.array(days * 86_400, pa.timestamp("s")).cast(kind)


def part(name: str, moment: Any) -> Any:
    return evaluate(f"date_part('{name}', t)", pa.table({"t": moment}))


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("s"), pa.timestamp("us")], ids=str)
@pytest.mark.parametrize("cycles", [-600, -100, 0, 100, 600])
def test_parts_repeat_every_400_years(kind: Any, cycles: int) -> None:
    near, far = moments(NEAR, kind), moments(NEAR + cycles * CYCLE, kind)
    for name in PARTS:
        assert part(name, far).equals(part(name, near)), name
    for name in ("year", "isoyear"):
        years = pc.add(part(name, near), pa.scalar(400 * cycles, pa.int32()))
        assert part(name, far).equals(years), name


def test_parts_of_years_that_the_reference_lacks_are_null() -> None:
    days = moments(np.array([-96_465_293, -96_465_292, 95_026_236, 95_026_237]), pa.date32())
    assert part("year", days).to_pylist() == [None, -262_143, 262_142, None]
    assert part("doy", days).to_pylist() == [None, 1, 365, None]


def test_a_unit_that_begins_out_of_range_is_an_error() -> None:
    first = pa.table({"t": pa.array([-(2**63) + 1], pa.timestamp("ns"))})
    for unit in ("year", "week", "day", "hour"):
        with pytest.raises(FilterError, match="begins out of range"):
            evaluate(f"date_trunc('{unit}', t)", first)
    assert evaluate("to_date(t)", first).cast(pa.int32()).to_pylist() == [-106_752]


def test_decimals_become_timestamps_exactly() -> None:
    numbers = [Decimal("2156.97"), Decimal("-71250387.48"), None, Decimal("99999999.99")]
    rows = pa.table({"p": pa.array(numbers, pa.decimal128(10, 2))})
    nanos = [2_156_970_000_000, -71_250_387_480_000_000, None, 99_999_999_990_000_000]
    assert evaluate("to_timestamp(p)", rows).cast(pa.int64()).to_pylist() == nanos
    seconds = evaluate("to_timestamp_seconds(p)", rows).cast(pa.int64()).to_pylist()
    assert seconds == [2156, -71_250_387, None, 99_999_999]


def test_decimals_of_any_scale_become_timestamps() -> None:
    for kind, number in ((pa.decimal128(38, 38), "0.25"), (pa.decimal256(65, 0), "-2000")):
        rows = pa.table({"p": pa.array([Decimal(number), None], kind)})
        for name, factor in (("to_timestamp", 10**9), ("to_timestamp_millis", 1)):
            found = evaluate(f"{name}(p)", rows).cast(pa.int64()).to_pylist()
            assert found == [int(Decimal(number) * factor), None]


def test_seconds_are_those_of_the_local_time() -> None:
    moment = pa.array([-5_512_501_476, 1_593_000_007], pa.timestamp("s", "America/New_York"))
    assert part("second", moment).to_pylist() == [22, 7]
    assert part("minute", moment).to_pylist() == [39, 0]


def test_parts_of_durations_that_do_not_fit_are_null() -> None:
    rows = pa.table({"t": pa.array([33_083_330_988_206_629, 5], pa.duration("us"))})
    assert evaluate("date_part('nanosecond', t)", rows).to_pylist() == [None, 5000]
    assert evaluate("date_part('microsecond', t)", rows).to_pylist() == [None, 5]


def test_no_part_of_the_text_of_a_duration_is_a_negative_zero() -> None:
    moments = pa.array([-60, -61, 0, -86_400], pa.duration("s"))
    assert cast(moments, pa.string()).to_pylist() == [
        "0 days 0 hours -1 mins 0 secs",
        "0 days 0 hours -1 mins -1 secs",
        "0 days 0 hours 0 mins 0 secs",
        "-1 days 0 hours 0 mins 0 secs",
    ]
    assert cast(pa.array([-500], pa.duration("ms")), pa.string())[0].as_py().endswith("-0.500 secs")


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("text", ["9999 366", "0001 000", "2023 366", "2023 0", "2023 999"])
def test_days_that_a_year_lacks_are_no_moments(text: str) -> None:
    rows = pa.table({"t": [text]})
    with pytest.raises(FilterError, match="Error parsing timestamp"):
        evaluate("to_timestamp(t, '%Y %j')", rows)
    (last,) = evaluate("to_date(t, '%Y %j')", pa.table({"t": ["2024 366"]})).to_pylist()
    assert str(last) == "2024-12-31"
