"""Arithmetic by a constant gives what arithmetic by a column of it gives."""

from __future__ import annotations

import operator
import random

import numpy as np
import pyarrow as pa
import pytest

from glaive.errors import FilterError
from glaive.expr.evaluate import combine

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


@pytest.mark.parametrize("op", ["+", "-", "*"])
@pytest.mark.parametrize("largest", [0, 9, 10**6, 10**18, 10**37])
@pytest.mark.parametrize("scales", [(2, 2), (0, 4), (15, 3)])
def test_decimals_whose_types_add_up_to_more_than_38_digits(
    op: str, largest: int, scales: tuple[int, int]
) -> None:
    rng = random.Random(largest)
    left, right = (
        [None if not rng.randrange(9) else rng.randint(-largest, largest) for _ in range(50)]
        for _ in scales
    )
    exact = {"+": operator.add, "-": operator.sub, "*": operator.mul}[op]
    kind = {"*": sum(scales)}.get(op, max(scales))
    steps = [0 if op == "*" else kind - scale for scale in scales]
    wanted = [
        None if a is None or b is None else exact(a * 10 ** steps[0], b * 10 ** steps[1])
        for a, b in zip(left, right, strict=True)
    ]
    first, second = (
        decimals([7, *numbers, 7], scale)[1:-1]
        for numbers, scale in zip((left, right), scales, strict=True)
    )
    try:
        found = combine(op, first, second, 50)
    except FilterError:
        assert any(value is not None and abs(value) >= 2**127 for value in wanted)
        return
    assert (found.type.scale, unscaled(found)) == (kind, wanted)


def decimals(numbers: list[int | None], scale: int) -> pa.Array[pa.Scalar[pa.Decimal128Type]]:
    """Decimals of 38 digits."""
    raw = b"".join((number or 0).to_bytes(16, "little", signed=True) for number in numbers)
    valid = pa.array([number is not None for number in numbers]).buffers()[1]
    kind = pa.decimal128(38, scale)
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(raw)])


def unscaled(array: pa.Array[pa.Scalar[pa.Decimal128Type]]) -> list[int | None]:
    raw = memoryview(array.buffers()[1])[array.offset * 16 :]
    valid = array.is_valid().to_pylist()
    return [
        int.from_bytes(raw[at * 16 : at * 16 + 16], "little", signed=True) if valid[at] else None
        for at in range(len(array))
    ]


@pytest.mark.parametrize("largest", [9, 2**31, 2**63 - 1, 2**64 - 1, 10**19])
def test_remainders_of_integers_that_are_decimals_have_the_sign_of_the_dividend(
    largest: int,
) -> None:
    rng = random.Random(largest)
    kind = pa.decimal128(20, 0)
    over = [None, 0, largest, -largest, *(rng.randint(-largest, largest) for _ in range(60))]
    by = [rng.choice([-1, 1]) * rng.randint(1, largest) for _ in over]
    by[5] = largest
    wanted = [
        None if a is None else (a % abs(b) if a >= 0 else -(-a % abs(b)))
        for a, b in zip(over, by, strict=True)
    ]
    left, right = (pa.array(numbers, kind) for numbers in (over, by))
    found = combine("%", left, right, len(over))
    assert found.type == kind
    assert [None if one is None else int(one) for one in found.to_pylist()] == wanted
    with pytest.raises(FilterError, match=r"[Dd]ivi.* zero"):
        combine("%", left, pa.scalar(0, kind), len(over))
