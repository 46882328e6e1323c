"""Lower bounds of distances by tables of bytes: none is above the distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from tests.kernels.code_blocks import LANES, blocks_of

from glaive.kernels.graph_search import CodeQuery, CodeRows, RowPlaces, ScannedPartition, scan_codes
from glaive.kernels.loops.codes import pick, pick_one_by_one
from glaive.kernels.loops.memory import lanes_of, load, store


@pytest.mark.parametrize("width", [1, 8, 48, 256])
@pytest.mark.parametrize("apart", [0.0, 1e3, 1e6])
def test_rows_at_the_limit_are_kept_however_far_numbers_are_rounded(
    width: int, apart: float
) -> None:
    """Of rows that are equally far, the lowest keys are kept, which come last here."""
    count = LANES * 40
    number = np.arange(count)
    places = RowPlaces(number, number, number[::-1].astype(np.uint64))
    for seed in range(10):
        random = np.random.default_rng(seed)
        entries = random.standard_normal((width, 256))
        # Numbers far from zero, of which sums are rounded.
        entries += apart * random.standard_normal((width, 1))
        query = CodeQuery("tables", entries.astype(np.float32))
        some = random.integers(0, 256, (LANES, width)).astype(np.uint8)
        codes, terms = np.tile(some, (count // LANES, 1)), np.zeros(count, np.float32)
        bounded, summed = (
            scan_codes(
                [ScannedPartition(CodeRows(codes, terms, blocks=blocks), places, 0)], query, 10
            )
            for blocks in (blocks_of(codes), None)
        )
        assert bounded.key.tolist() == summed.key.tolist()
        assert bounded.distance.tolist() == summed.distance.tolist()


def compiled(picks: Any) -> Any:
    """A function of four addresses: two tables of 64 bytes, 64 numbers, and the result."""

    @intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
    def picked(_context: Any, _first: Any, _second: Any, _numbers: Any, _out: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            registers = [load(builder, at, lanes_of(8, LANES)) for at in args[:3]]
            store(builder, args[3], picks(builder, *registers))
            return ir.Constant(ir.IntType(64), 0)

        return types.int64(*(types.int64,) * 4), codegen

    @njit  # type: ignore[untyped-decorator]  # as above
    def call(first: int, second: int, numbers: int, out: int) -> int:
        done: int = picked(first, second, numbers, out)
        return done

    return call


@pytest.mark.parametrize("picks", [pick, pick_one_by_one])
def test_bytes_are_picked_with_and_without_an_instruction_for_it(picks: Any) -> None:
    random = np.random.default_rng(1)
    tables = random.permutation(256).astype(np.uint8)[: 2 * LANES].reshape(2, LANES)
    call = compiled(picks)
    for _ in range(20):
        numbers, out = random.integers(0, 256, LANES).astype(np.uint8), np.zeros(LANES, np.uint8)
        call(tables[0].ctypes.data, tables[1].ctypes.data, numbers.ctypes.data, out.ctypes.data)
        assert out.tolist() == tables.reshape(-1)[numbers & 127].tolist()
