"""TRY_CAST gives the values that pylance gives, for whole columns of usual, rare and bad values."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

NUMBERS = """0 1 -1 +5 007 -0 0x1F 1e5 1. .5 -.5 2.5 0.005 1e400 1e-400 inf -inf NaN +inf 1_0 1e abc
    127 128 -129 256 2147483647 2147483648 -2147483649 9223372036854775807 9223372036854775808
    18446744073709551615 18446744073709551616 12345678.995 9999999.995 1e38 3.4028236e38 16777217
    99999999999999999999999999999999999999 --5 1.2.3 \u0661"""
MOMENTS = """2020-01-01 2020-02-30 2020-02-29 2021-02-29 1900-02-29 2000-02-29 2020-1-5 20200105
    2020-01-01T00:00:00Z 2020-01-01T00:00:00.5 2020-01-01T00:00:00.1234567891 9999-12-31 2020/01/01
    2020-01-01T00:00:00+05:30 2020-01-01T00:00:00-0800 2020-01-01T24:00:00 2020-01-01T12:30
    1677-09-21T00:12:43 2262-04-11T23:47:17 2020-01-01t12:30:00 12:34:56 2020-13-01 n/a"""
TEXTS = [None, "", " 5", "5 ", "5\n", "0" * 50 + "7", "2020-01-01 00:00:00", "TRUE ", "Yes", "of"]
TEXTS += [*NUMBERS.split(), *MOMENTS.split()]
FLOATS: list[float | None] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    1e-5,
    9.99e-6,
    1.5e-6,
    1e-7,
    5e-324,
    1e10,
    12345678901.5,
    1e15,
]
FLOATS += [1e16, 1.5e16, 1e17, 1e20, 1e300, -1e300, np.nan, np.inf, -np.inf, 127.9, 128.0, -128.9]
FLOATS += [2147483648.0, 2.0**63, -(2.0**63), 2.0**64, 0.005, 0.015, 1.005, 1 / 3, 9e9 + 0.5, None]
TICKS: list[int | None] = [
    0,
    1,
    -1,
    999,
    -1000,
    10**6,
    253402300799 * 10**6,
    253402300800 * 10**6,
    -62135596801 * 10**6,
]
TICKS += [-62167219200 * 10**6, 2**62, -(2**62), 1593000000123456, 1593000000123000, None]
INTEGERS = [0, 127, 128, -129, 2**31, -(2**31) - 1, 2**32, 2**63 - 1, -(2**63), 99999, None]
DECIMALS = [*map(Decimal, ("0", "-1.5", "2.5", "127.999", "128", "0.005", "99999999.999")), None]

COLUMNS: dict[str, Any] = {
    "text": pa.array(TEXTS),
    "dictionary": pa.array(TEXTS, pa.large_string()).dictionary_encode(),
    "double": pa.array(FLOATS),
    "float": pa.array(FLOATS).cast(pa.float32(), safe=False),
    "bigint": pa.array(INTEGERS, pa.int64()),
    "decimal": pa.array(DECIMALS, pa.decimal128(13, 3)),
    "micros": pa.array(TICKS, pa.timestamp("us")),
    "zoned": pa.array(TICKS[:6], pa.timestamp("us", "Europe/Berlin")),
    "shifted": pa.array(TICKS[:6], pa.timestamp("us", "+05:30")),
    "day": pa.array([0, -1, 18262, 2932896, 2932897, -719528, -719529, 10**6, None], pa.date32()),
    "clock": pa.array([0, 1, 86399999999, 3600 * 10**6, 123456, None], pa.time64("us")),
    "length": pa.array([0, -1, 10**6, -86400 * 10**6 - 5, None], pa.duration("us")),
    "nothing": pa.nulls(3, pa.string()),
}
KINDS = """Int8 Int32 Int64 UInt8 UInt64 Float16 Float32 Float64 Boolean Decimal128(12,3)
    Decimal128(5,2) Decimal128(38,0) Decimal256(76,40) Date32 Timestamp(Second,None)
    Timestamp(Microsecond,Some("UTC")) Timestamp(Nanosecond,None) Utf8 LargeUtf8 Utf8View"""


@pytest.mark.parametrize("name", COLUMNS)
def test_values_that_do_not_fit_are_null_and_others_are_those_of_pylance(
    name: str, tmp_path: Path
) -> None:
    table = pa.table({"x": COLUMNS[name]})
    theirs = lance.write_dataset(table, tmp_path / "t", data_storage_version="2.2")
    ours = glaive.dataset(tmp_path / "t")
    compared = 0
    for kind in KINDS.split():
        call = {"y": f"arrow_try_cast(x, '{kind}')"}
        try:
            expected = theirs.to_table(columns=call)["y"].combine_chunks()
        except (ValueError, OSError):  # pylance has no such cast
            continue
        found = ours.to_table(columns=call)["y"].combine_chunks()
        assert found.type == expected.type, kind
        assert _texts(found) == _texts(expected), kind
        compared += 1
    assert compared >= 4


def _texts(values: Any) -> list[str | None]:
    """Values with all their digits, one NaN, the sign of zero, and any year."""
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return [repr(value) for value in values.to_pylist()]
