"""Vectors are rotated, and rotated ones encoded, alike by both tiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.tiers import force_tier

from glaive.kernels.products import quantize_rotated, rotate


def rows_of(dimension: int, count: int = 50) -> Any:
    return np.random.default_rng(dimension).standard_normal((count, dimension)).astype(np.float32)


@pytest.mark.parametrize("dimension", [8, 16, 24, 32, 40, 128, 192, 768])
def test_rotations_keep_angles_and_lengths(dimension: int) -> None:
    rows = rows_of(dimension)
    signs = np.random.default_rng(0).integers(0, 256, dimension // 2, dtype=np.uint8)
    rotated = []
    for tier in ("numpy", "numba"):
        with force_tier(tier):  # type: ignore[arg-type]  # one of its names
            rotated.append(rotate(rows, signs))
    assert np.array_equal(*rotated)
    assert np.allclose(rotated[0] @ rotated[0].T, rows @ rows.T, atol=1e-4 * dimension)
    assert not np.allclose(rotated[0], rows)


@pytest.mark.spec("vector-23", "vector-29")
@pytest.mark.parametrize("dimension", [8, 24, 32, 72])
@pytest.mark.parametrize("tier", ["numpy", "numba"])
def test_rotations_flip_signs_and_transform_four_times(tier: Any, dimension: int) -> None:
    rows, random = rows_of(dimension), np.random.default_rng(1)
    signs = random.integers(0, 256, dimension // 2, dtype=np.uint8)
    size = 1 << dimension.bit_length() - 1
    at = np.arange(size)
    matrix = (-1.0) ** np.bitwise_count(at[:, None] & at) / np.sqrt(size)
    found = rows.astype(np.float64)
    for number, octets in enumerate(np.split(signs, 4)):
        flipped = [byte >> bit & 1 for byte in octets.tolist() for bit in range(8)]
        found = np.where(flipped, -found, found)
        first = 0 if number % 2 == 0 else dimension - size
        found[:, first : first + size] = found[:, first : first + size] @ matrix
        if size < dimension:
            one, other = np.split(found, 2, axis=1)
            found = np.concatenate([one + other, one - other], axis=1)
    expected = found / (4 if size < dimension else 1)
    with force_tier(tier):
        assert np.allclose(rotate(rows, signs), expected, atol=1e-4)


@pytest.mark.parametrize("most", [1, 3, 15, 255])
def test_both_tiers_choose_the_factor_that_fits(most: int) -> None:
    rows = np.round(np.abs(rows_of(32)) * 4) / 4
    factors = np.array([most / 8, most / 2, most / 4], np.float32)
    codes = []
    for tier in ("numpy", "numba"):
        with force_tier(tier):  # type: ignore[arg-type]  # same
            codes.append(quantize_rotated(rows.astype(np.float32), factors, most))
    assert np.array_equal(*codes)
    values = codes[0] + 0.5
    cosines = (rows * values).sum(axis=1) / np.linalg.norm(values, axis=1)
    for factor in factors:
        others = np.minimum(np.floor(rows * factor), most) + 0.5
        assert (
            cosines >= (rows * others).sum(axis=1) / np.linalg.norm(others, axis=1) - 1e-4
        ).all()


@pytest.mark.parametrize("tier", ["numpy", "numba"])
def test_the_first_of_equally_good_factors_is_taken(tier: Any) -> None:
    rows = np.ones((3, 8), np.float32)
    with force_tier(tier):
        for factors in ([1, 2], [2, 1]):
            codes = quantize_rotated(rows, np.array(factors, np.float32), 3)
            assert np.unique(codes).tolist() == factors[:1]


def test_numbers_that_do_not_fit_are_refused() -> None:
    rows, factors = np.abs(rows_of(16)), np.ones(1, np.float32)
    with pytest.raises(ValueError, match="multiple of 8"):
        rotate(rows_of(12), np.zeros(6, np.uint8))
    with pytest.raises(ValueError, match="bytes of signs"):
        rotate(rows, np.zeros(7, np.uint8))
    with pytest.raises(ValueError, match="multiple of 8"):
        quantize_rotated(rows[:, :12], factors, 3)
    with pytest.raises(ValueError, match="up to 256"):
        quantize_rotated(rows, factors, 256)
    for wrong in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match="negative or not finite"):
            quantize_rotated(np.full((1, 8), wrong, np.float32), factors, 3)
