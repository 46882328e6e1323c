"""Statistics of pages: bounds that hold, for every type and the special values."""

from __future__ import annotations

import datetime as dt
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.legacy_statistics import page_statistics

from glaive.encodings.legacy import measure_pages
from glaive.file.legacy import LegacyFile, LegacyFileWriter
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

NAN, INF = math.nan, math.inf


def bounds_of(values: list[Any], kind: pa.DataType) -> tuple[int, Any, Any]:
    """Null count and bounds of one page."""
    measured = measure_pages(pa.array(values, kind), np.array([0, len(values)]))
    assert measured.min_value.type == measured.max_value.type == kind
    return int(measured.null_count[0]), measured.min_value[0].as_py(), measured.max_value[0].as_py()


@pytest.mark.spec("stats-4", "stats-5")
@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int16(), [3, None, -1], (1, -1, 3)),
        (pa.int16(), [None, None], (2, -(2**15), 2**15 - 1)),
        (pa.uint64(), [None], (1, 0, 2**64 - 1)),
        (pa.uint8(), [200, 5], (0, 5, 200)),
        (pa.date32(), [dt.date(2024, 1, 2), None], (1, dt.date(2024, 1, 2), dt.date(2024, 1, 2))),
        (pa.bool_(), [True, None, True], (1, True, True)),
        (pa.bool_(), [False, True], (0, False, True)),
        (pa.bool_(), [None], (1, False, True)),
        (pa.string(), ["b", None, "a"], (1, "a", "b")),
        (pa.binary(), [None, None], (2, None, None)),
    ],
)
def test_bounds_without_nulls_and_without_values(
    kind: pa.DataType, values: list[Any], expected: tuple[int, Any, Any]
) -> None:
    assert bounds_of(values, kind) == expected


@pytest.mark.spec("stats-6")
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([NAN, 1.0, None, 2.0], 1.0, 2.0),
        ([NAN, NAN, None], -INF, INF),
        ([None], -INF, INF),
        ([0.0, 5.0], -0.0, 5.0),
        ([-5.0, -0.0], -5.0, 0.0),
        ([-0.0], -0.0, 0.0),
        ([INF, 1.0], 1.0, INF),
        ([-INF], -INF, -INF),
    ],
)
def test_floats_leave_nan_aside_and_bound_zero_on_both_sides(
    kind: pa.DataType, values: list[Any], low: float, high: float
) -> None:
    nulls, found_low, found_high = bounds_of(values, kind)
    assert (nulls, found_low, found_high) == (values.count(None), low, high)
    assert math.copysign(1, found_low) == math.copysign(1, low)
    assert math.copysign(1, found_high) == math.copysign(1, high)


@pytest.mark.spec("stats-7")
@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (["x" * 64], "x" * 64, "x" * 64),
        (["x" * 65], "x" * 64, "x" * 63 + "y"),
        (["é" * 40], "é" * 32, "é" * 31 + "ê"),
        (["a" + "é" * 40], "a" + "é" * 31, "a" + "é" * 30 + "ê"),
        (["\U0010ffff" * 20], "\U0010ffff" * 16, None),
        (["a" + "\U0010ffff" * 20], "a" + "\U0010ffff" * 15, "b"),
        (["\ud7ff" * 30], "\ud7ff" * 21, "\ud7ff" * 20 + "\ue000"),
        (["a\x7f" * 40], "a\x7f" * 32, "a\x7f" * 31 + "b"),
    ],
)
def test_long_strings_are_cut_between_characters(
    values: list[str], low: str, high: str | None
) -> None:
    assert bounds_of(values, pa.string()) == (0, low, high)
    assert bounds_of(values, pa.large_string()) == (0, low, high)


@pytest.mark.spec("stats-7")
def test_long_bytes_are_cut_and_rounded_up() -> None:
    high = b"a" * 62 + b"\xff" * 9
    assert bounds_of([high], pa.binary()) == (0, high[:64], b"a" * 61 + b"b")
    assert bounds_of([b"\xff" * 65], pa.large_binary()) == (0, b"\xff" * 64, None)


def test_decimals_without_a_value_have_the_widest_bounds() -> None:
    measured = measure_pages(pa.array([None, 3, None], pa.decimal128(9, 2)), np.array([0, 1, 3]))
    buffers: list[Any] = [bound.buffers()[1] for bound in (measured.min_value, measured.max_value)]
    raw = b"".join(buffer.to_pybytes() for buffer in buffers)
    words = [int.from_bytes(raw[at : at + 16], "little", signed=True) for at in (0, 16, 32, 48)]
    assert words == [-(2**127), 300, 2**127 - 1, 300]


@given(st.lists(st.text(max_size=90) | st.none(), min_size=1), st.integers(1, 5))
def test_no_text_lies_outside_of_its_bounds(values: list[str | None], pages: int) -> None:
    cuts = np.unique(np.linspace(0, len(values), pages + 1).astype(np.int64))
    measured = measure_pages(pa.array(values, pa.string()), cuts)
    for at, (start, stop) in enumerate(pairwise(cuts.tolist())):
        page = [value.encode() for value in values[start:stop] if value is not None]
        low, high = measured.min_value[at].as_py(), measured.max_value[at].as_py()
        assert measured.null_count[at] == stop - start - len(page)
        assert all(value >= low.encode() for value in page)
        assert high is None or all(value <= high.encode() for value in page)


@given(
    st.lists(st.floats(width=32) | st.none(), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1),
)
def test_no_number_lies_outside_of_its_bounds(
    floats: list[float | None], wholes: list[int | None]
) -> None:
    for values, kind in ((floats, pa.float32()), (wholes, pa.int64())):
        _, low, high = bounds_of(values, kind)
        known = [value for value in values if value is not None and not math.isnan(value)]
        assert all(low <= value <= high for value in known)


@pytest.mark.spec("stats-1", "stats-2", "stats-3")
def test_a_file_has_statistics_per_batch(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "n": np.arange(25),
            "list": [[i] for i in range(25)],
            "s": pa.StructArray.from_arrays(
                [pa.array(np.arange(25.0)), pa.array(["x"] * 25)], names=["f", "t"]
            ),
            "when": pa.array(np.arange(25), pa.timestamp("us", "UTC")),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(50)), 2),
        }
    )
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(rows.schema)
    writer = LegacyFileWriter(store, "a.lance", schema, rows_per_batch=10)
    writer.write(rows)
    writer.finish()
    file = LegacyFile(store.open("a.lance"))
    statistics = page_statistics(file)
    assert statistics is not None
    assert statistics.num_rows == len(file.batches) - 1 == 3
    # Ids: n 0, list 1 and 2, s 3, f 4, t 5, when 6, vector 7.
    assert statistics.column_names == ["0", "4", "5", "6"]
    assert statistics["0"].to_pylist()[2] == {"null_count": 0, "min_value": 20, "max_value": 24}
    assert statistics["4"].to_pylist()[1] == {"null_count": 0, "min_value": 10.0, "max_value": 19.0}
    assert statistics["6"].type.field("max_value").type == rows["when"].type
