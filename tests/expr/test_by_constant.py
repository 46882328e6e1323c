"""Numbers computed with a constant are those computed with an array, for every type and edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.expr.compare import compare
from glaive.expr.evaluate import combine
from glaive.expr.filters import bind_value
from glaive.format.fields import LanceSchema

ROWS = 40_000

WHOLE = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float32(), pa.float64()]


def column(kind: pa.DataType, seed: int, *, nulls: bool = True) -> Any:
    """Numbers of all sizes with the edges among them, cut from a longer array."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(kind.to_pandas_dtype())
    count = ROWS + 5
    if dtype.kind == "f":
        near = rng.integers(-50, 50, count).astype(dtype) / 2
        far = (rng.standard_normal(count) * 10.0 ** rng.integers(-30, 30, count)).astype(dtype)
        edges = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 5e-324, 1.5, -1.5]
    else:
        limits = np.iinfo(dtype)
        near = rng.integers(0, 100, count).astype(dtype)
        far = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
        edges = [limits.min, limits.max, 0, 1]
    numbers = np.where(rng.random(count) < 0.5, near, far)
    numbers[: ROWS // 2][::97] = rng.choice(np.array(edges, dtype), len(numbers[: ROWS // 2][::97]))
    return pa.array(numbers, kind, mask=rng.random(count) < 0.1 if nulls else None)[5:]


def bits(array: Any) -> tuple[Any, bytes]:
    """Whether rows are valid, and the bits of those that are."""
    valid = np.asarray(array.is_valid())
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    return valid.tobytes(), np.where(np.isnan(numbers), numbers.dtype.type(0), numbers).tobytes()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", [*WHOLE, *FLOATS], ids=str)
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
def test_arithmetic_is_that_of_whole_arrays(kind: pa.DataType, op: str) -> None:
    left = column(kind, 1)
    constants = (1, 2, 3, 7, 100, 127) if kind in WHOLE else (1.0, 2.0, 7.0, 1.5, 1e6, -3.0)
    with np.errstate(all="ignore"):
        for value in constants:
            constant = pa.scalar(value, kind)
            result = combine(op, left, constant, ROWS)
            result.validate(full=True)
            assert result.type == kind
            assert bits(result) == bits(combine(op, left, pa.repeat(constant, ROWS), ROWS)), value


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [*WHOLE, *FLOATS], ids=str)
@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_comparisons_are_those_of_whole_arrays(kind: pa.DataType, op: str) -> None:
    left = column(kind, 3)
    constants = (0, 1, 50) if kind in WHOLE else (0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"))
    for value in constants:
        constant = pa.scalar(value, kind)
        result = compare(op, left, constant)
        result.validate(full=True)
        assert result.equals(compare(op, left, pa.repeat(constant, ROWS))), value


def test_the_order_of_floats_sets_zeros_and_signed_nan_apart() -> None:
    numbers = pa.array(np.array([-np.nan, -np.inf, -1.5, -0.0, 0.0, 1.5, np.inf, np.nan]))
    for at, value in enumerate(numbers.to_pylist()):
        if at == 0:
            continue  # Python's NaN has no sign to speak of
        result = compare("<", numbers, pa.scalar(value))
        assert result.to_pylist() == [i < at for i in range(8)], value


@pytest.mark.parametrize("rows", [0, 1, 7, 16_384, 16_385])
def test_long_expressions_of_several_types(rows: int) -> None:
    rng = np.random.default_rng(7)
    i, k, x = (
        rng.integers(-100, 100, rows, np.int32),
        rng.integers(-(10**6), 10**6, rows),
        rng.random(rows, np.float32),
    )
    batch = pa.record_batch({"i": i, "k": k, "x": x})
    schema = LanceSchema.from_arrow(batch.schema)
    text = "-(i * 3 - k) % 7 + k / 5 * (2 - i) + abs(k) - (k + k * k) * (i - 1)"
    result = bind_value(text, schema).evaluate(batch)
    wide = i.astype(np.int64)
    wanted = (
        np.fmod(-(wide * 3 - k), 7)
        + np.trunc(k / 5).astype(np.int64) * (2 - wide)
        + np.abs(k)
        - (k + k * k) * (wide - 1)
    )
    assert np.array_equal(np.asarray(result), wanted)
    mixed = bind_value("x * 2.5 + i - 1", schema).evaluate(batch)
    assert np.array_equal(np.asarray(mixed), x.astype(np.float64) * 2.5 + i - 1)


def test_a_chain_of_a_hundred_operations_is_one_pass() -> None:
    batch = pa.record_batch({"k": pa.array([1, None, 3])})
    schema = LanceSchema.from_arrow(batch.schema)
    text = "k" + " + k % 2 - (k - 1)" * 30
    assert bind_value(text, schema).evaluate(batch).to_pylist() == [31, None, -27]
