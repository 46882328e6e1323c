"""Fixed-size lists are ordered item by item, however many items they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive
from glaive import ColumnOrdering
from glaive.errors import UnsupportedFeatureError
from glaive.scan.run.compare import sorted_rows

SIZE = 3
ITEMS: dict[str, Any] = {
    "int8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int64": (pa.int64(), [-(2**63), -256, -1, 0, 255, 256, 2**63 - 1]),
    "uint16": (pa.uint16(), [0, 1, 255, 256, 2**16 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**32, 2**63, 2**64 - 1]),
    "half": (pa.float16(), np.array([-2, -0.0, 0.0, 1, np.inf, np.nan], np.float16)),
    "float": (pa.float32(), [float("-inf"), -1.5, -0.0, 0.0, 2.5, float("nan")]),
    "double": (pa.float64(), [-1e300, -0.0, 0.0, 5e-324, float("inf"), float("nan")]),
    "flags": (pa.bool_(), [False, True]),
    "days": (pa.date32(), [-1, 0, 1, 40_000]),
    "times": (pa.timestamp("us", "UTC"), [-(10**15), -1, 0, 10**15]),
    "texts": (pa.string(), ["", "a", "a\0", "b", "ä"]),
    "decimals": (pa.decimal128(20, 2), [-100, 0, 1, 10**10]),
    "nulls": (pa.null(), [None]),
}


def made(name: str, rows: int, nulls: str) -> pa.FixedSizeListArray:
    """Lists of which many begin alike, a few of them null."""
    kind, few = ITEMS[name]
    random = np.random.default_rng(len(name) + rows)
    values: Any = pa.array(few, kind).take(pa.array(random.integers(0, len(few), rows * SIZE)))
    if "items" in nulls:
        gaps = pa.array(random.random(rows * SIZE) < 0.3)
        values = pc.if_else(gaps, pa.scalar(None, kind), values)
    mask = pa.array(random.random(rows) < 0.2) if "lists" in nulls else None
    return pa.FixedSizeListArray.from_arrays(values, SIZE, mask=mask)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("nulls", ["none", "items", "lists", "items and lists"])
@pytest.mark.parametrize("name", ITEMS)
def test_the_order_is_that_of_their_items_in_turn(name: str, nulls: str) -> None:
    lists = made(name, 200, nulls)
    absent = lists.is_null().cast(pa.int8())
    for part, flags in ((lists, absent), (lists.slice(7, 90), absent.slice(7, 90))):
        items = [pc.list_element(part, at) for at in range(SIZE)]
        for ascending in (True, False):
            for nulls_first in (True, False):
                how = ColumnOrdering("v", ascending, nulls_first)
                first = ColumnOrdering("v", not nulls_first)
                wanted = sorted_rows([flags, *items], [first, *[how] * SIZE])
                assert sorted_rows([part], [how]).tolist() == wanted.tolist()


@pytest.mark.parametrize("kind", [pa.decimal128(5, 0), pa.uint8()])
def test_lists_of_many_items_have_no_order(kind: pa.DataType, tmp_path: Path) -> None:
    """Each item is a key of its own: a file of some kilobytes would take minutes and gigabytes."""
    lists = pa.FixedSizeListArray.from_arrays(pa.nulls(10_000, kind), 5000)
    dataset = glaive.write_dataset(pa.table({"v": lists}), tmp_path)
    with pytest.raises(UnsupportedFeatureError, match="'v' has lists of 5,000 items of type"):
        dataset.to_table(order_by=["v"])
