"""Scalars made without pandas are those of pyarrow."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.arrow.conditions import constants, scalar

CASES: list[tuple[Any, pa.DataType]] = [
    *[(value, pa.int8()) for value in (0, -128, 127, None)],
    *[(value, pa.uint64()) for value in (0, 2**64 - 1)],
    *[(value, pa.int64()) for value in (-(2**63), 2**63 - 1)],
    *[(value, pa.float32()) for value in (0.1, 3, float("inf"))],
    *[(value, pa.float64()) for value in (0.1, -0.0, 3)],
    (True, pa.bool_()),
    (False, pa.bool_()),
    *[("Grüße", kind) for kind in (pa.string(), pa.large_string(), pa.string_view())],
    ("", pa.string()),
    *[(value, kind) for value in (b"\x00", b"") for kind in (pa.binary(), pa.large_binary())],
    (5, pa.date32()),
    (5, pa.time32("ms")),
    (-7, pa.timestamp("us", "UTC")),
    (7, pa.duration("ns")),
    (7, pa.time64("us")),
    ([1, 2], pa.list_(pa.int64())),
    (1.5, pa.float16()),
    *[(value, pa.float32()) for value in (2**24, -(2**24))],
    *[(Decimal(value), pa.decimal128(5, 2)) for value in ("1.5", "-999.99", "0", "1E2")],
    *[(Decimal(value), pa.decimal256(76, -2)) for value in ("7E70", "-100")],
    *[(value, pa.decimal128(38, 0)) for value in (10**38 - 1, -(10**38) + 1, Decimal(5))],
    (7, pa.decimal32(5, 2)),
    (Decimal("0.5"), pa.decimal64(18, 18)),
]


@pytest.mark.parametrize(("value", "kind"), CASES)
def test_a_scalar_is_that_of_pyarrow(value: Any, kind: pa.DataType) -> None:
    made = scalar(value, kind)
    assert made.type == kind
    assert made.equals(pa.scalar(value, kind))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (128, pa.int8()),
        (-1, pa.uint8()),
        (1e300, pa.float32()),
        ("x", pa.int32()),
        (2**70, pa.int64()),
        (2**60 + 1, pa.float64()),
        (Decimal("1.555"), pa.decimal128(5, 2)),
        (Decimal(1000), pa.decimal128(5, 2)),
        (1000, pa.decimal128(5, 2)),
        (Decimal("5." + 120 * "0" + "1"), pa.decimal128(5, 2)),
        (Decimal("NaN"), pa.decimal128(5, 2)),
        (Decimal("Infinity"), pa.decimal128(5, 2)),
        (Decimal("9E999999"), pa.decimal128(5, 2)),
        (1.5, pa.decimal128(5, 2)),
    ],
)
def test_what_pyarrow_refuses_is_refused(value: Any, kind: pa.DataType) -> None:
    def outcome(make: Any) -> Any:
        try:
            return make(value, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            return type(error), str(error)

    assert outcome(scalar) == outcome(pa.scalar)


def test_an_ordinary_filter_does_not_load_pandas(tmp_path: Path) -> None:
    glaive.write_dataset({"id": [1, 2, 3], "s": ["a", "b", "c"]}, tmp_path / "t")
    code = """
import sys
import glaive

dataset = glaive.dataset(sys.argv[1])
assert dataset.to_table(filter="id > 1 AND s < 'c'").num_rows == 1
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=True)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 3], pa.int16()),
        ([], pa.int64()),
        ([1, None], pa.int64()),
        (["a", "", "ü"], pa.string()),
        (["a", None], pa.large_string()),
        ([0.5, 1], pa.float64()),
        ([True, False], pa.bool_()),
        ([True], pa.bool_()),
        ([True, False, True] * 5, pa.bool_()),
        ([], pa.bool_()),
        ([], pa.string()),
        ([], pa.large_binary()),
        ([1, 2], pa.timestamp("s")),
        ([b"x"], pa.binary()),
    ],
)
def test_constants_are_those_of_pyarrow(values: list[Any], kind: pa.DataType) -> None:
    made = constants(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))
