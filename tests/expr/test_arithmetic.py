"""Arithmetic by a constant gives what arithmetic by a column of it gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from glaive.expr.arithmetic import combine

TYPES = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
def test_whole_numbers_by_a_constant(kind: pa.DataType, op: str) -> None:
    rng = np.random.default_rng(0)
    limits = np.iinfo(kind.to_pandas_dtype())
    some = rng.integers(limits.min, limits.max, 500, limits.dtype, endpoint=True)
    edges = np.array([limits.min, limits.max, 0, 1], limits.dtype)
    numbers = np.concatenate([some, edges, np.arange(100).astype(limits.dtype)])
    column = pa.array(numbers, kind, mask=rng.random(len(numbers)) < 0.1)
    for constant in (1, 2, 3, 7, 100, limits.max - 1, limits.max):
        number = pa.scalar(int(constant), kind)
        repeated = pa.repeat(number, len(column))
        result = combine(op, column, number, len(column))
        assert result.equals(combine(op, column, repeated, len(column))), constant


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
def test_floats_by_a_constant(op: str) -> None:
    column = pa.array([1.5, -2.5, None, 0.0, float("inf"), 7.0])
    for constant in (2.0, -0.5, 0.0):
        number = pa.scalar(constant)
        result = combine(op, column, number, len(column))
        wanted = combine(op, column, pa.repeat(number, len(column)), len(column))
        assert result.to_numpy(zero_copy_only=False).tobytes() == (
            wanted.to_numpy(zero_copy_only=False).tobytes()
        )
