"""Dates in years that Arrow does not have: more than 32,767, and less than -32,768."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.expr.functions.calls import evaluate

from glaive.errors import FilterError

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


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms", "UTC")], ids=str)
@pytest.mark.parametrize("unit", ["year", "quarter", "month", "week", "day"])
def test_truncated_moments_repeat_every_400_years(kind: Any, unit: str) -> None:
    near, far = (moments(NEAR + shift, kind) for shift in (0, 300 * CYCLE))
    first, other = (
        evaluate(f"date_trunc('{unit}', t)", pa.table({"t": moment})) for moment in (near, far)
    )
    ahead = pc.subtract(other.cast(pa.int64()), first.cast(pa.int64()))
    ticks = 86_400 * (1 if kind.unit == "s" else 1000)
    assert set(ahead.to_pylist()) == {300 * CYCLE * ticks}


def test_a_unit_that_begins_out_of_range_is_an_error() -> None:
    first = pa.table({"t": pa.array([-(2**63) + 1], pa.timestamp("ns"))})
    for unit in ("year", "week", "day", "hour"):
        with pytest.raises(FilterError, match="begins out of range"):
            evaluate(f"date_trunc('{unit}', t)", first)
    assert evaluate("to_date(t)", first).cast(pa.int32()).to_pylist() == [-106_752]
