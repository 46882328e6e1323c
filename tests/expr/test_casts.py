"""Casts of values whose unit, zone or type changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.expr.casts import cast


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+05:30", "America/New_York"])
def test_local_times_are_truncated_before_they_are_times_of_a_zone(zone: str) -> None:
    local: Any = pa.array([500_000, 1, 3_599_999_999, 1_577_836_800_500_001, None], pa.int64())
    seconds = cast(local.cast(pa.timestamp("us")), pa.timestamp("s", zone))
    shown = [None if at is None else at.replace(tzinfo=None) for at in seconds.to_pylist()]
    whole = pa.array([0, 0, 3599, 1_577_836_800, None], pa.int64()).cast(pa.timestamp("s"))
    assert shown == whole.to_pylist()
