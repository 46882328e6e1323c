"""Arrays are cut into fewer pages where every page would repeat a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from glaive.encodings.writing.page import page_count

ROWS = 200_000
RNG = np.random.default_rng(3)
LONG = pa.array([f"{at:06d}" * 60 for at in range(300)])
PICKS = pa.array(RNG.integers(0, 300, ROWS))
FEW_LONG = LONG.take(PICKS)


def lists_of(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(0, len(items) + 1, 4), pa.int32()), items)


@pytest.mark.parametrize(
    "array",
    [
        FEW_LONG,
        FEW_LONG.slice(1000, 150_000),
        FEW_LONG.cast(pa.large_binary()),
        lists_of(FEW_LONG),
        pa.StructArray.from_arrays([FEW_LONG, PICKS], names=["text", "number"]),
        pa.DictionaryArray.from_arrays(PICKS.cast(pa.int32()), LONG),
        pa.MapArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), FEW_LONG, PICKS),
    ],
    ids=["text", "slice", "binary", "list", "struct", "dictionary", "map"],
)
def test_few_long_values_stay_in_one_page(array: pa.Array) -> None:
    assert page_count(array, 9) == 1


@pytest.mark.parametrize(
    "array",
    [
        pa.array(RNG.integers(0, 300, ROWS).astype("i4")),
        pa.array(RNG.integers(0, 2**62, ROWS)),
        pa.array([str(at) for at in range(ROWS)]),
        pa.array(["a", "b", "c", "d"] * (ROWS // 4)),
        pa.nulls(ROWS),
        pa.array(np.zeros((2000, 64), "f4").tolist(), pa.list_(pa.float32(), 64)),
    ],
    ids=["numbers", "wide numbers", "distinct", "short", "null", "vectors"],
)
def test_other_columns_are_cut_as_wanted(array: pa.Array) -> None:
    assert page_count(array, 4) == 4


def test_no_page_becomes_larger_than_64_of_the_usual() -> None:
    assert page_count(FEW_LONG, 200) == 4


def test_lists_without_items_are_cut_as_wanted() -> None:
    assert page_count(pa.array([[]] * ROWS, pa.list_(pa.string())), 3) == 3
