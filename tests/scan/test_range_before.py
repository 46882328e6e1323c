"""Scans of a range of rows, counted before the filter: together they are the whole scan."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import OptionError

ROWS = 900


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    table = pa.table({"id": range(ROWS), "few": [i % 7 for i in range(ROWS)]})
    place = str(tmp_path_factory.mktemp("range") / "t")
    made = glaive.write_dataset(table, place, max_rows_per_file=250)
    made.delete("id % 10 = 3 or (id >= 240 and id < 260)")
    return made


@given(cuts=st.lists(st.integers(0, ROWS + 50), max_size=6), filtered=st.booleans())
def test_ranges_that_meet_make_the_whole(
    dataset: LanceDataset, cuts: list[int], filtered: bool
) -> None:
    options: dict[str, Any] = {"filter": "few in (1, 4)"} if filtered else {}
    bounds = [0, *sorted(cuts), 2 * ROWS]

    parts = [
        dataset.to_table(range_before=(start, stop), **options) for start, stop in pairwise(bounds)
    ]

    assert (
        pa.concat_tables(parts)["id"].to_pylist() == dataset.to_table(**options)["id"].to_pylist()
    )


def test_the_range_counts_live_rows_before_the_filter(dataset: LanceDataset) -> None:
    live: list[Any] = dataset.to_table()["id"].to_pylist()

    found = dataset.to_table(filter="few = 2", range_before=(100, 300))

    assert found["id"].to_pylist() == [one for one in live[100:300] if one % 7 == 2]
    assert dataset.scanner(filter="few = 2", range_before=(100, 300)).count_rows() == len(found)


def test_limit_and_offset_count_within_the_range(dataset: LanceDataset) -> None:
    live: list[Any] = dataset.to_table()["id"].to_pylist()
    some = {"range_before": (100, 300), "limit": 5, "offset": 3}

    assert dataset.to_table(**some)["id"].to_pylist() == live[103:108]
    assert dataset.to_table(range_before=(100, 102), limit=5)["id"].to_pylist() == live[100:102]
    few = [one for one in live[100:300] if one % 7 == 2]
    assert dataset.to_table(filter="few = 2", **some)["id"].to_pylist() == few[3:8]
    top = dataset.to_table(order_by=["few"], **some)
    assert top["few"].to_pylist() == sorted(one % 7 for one in live[100:300])[3:8]


def test_the_range_is_of_the_fragments_named(dataset: LanceDataset) -> None:
    third = dataset.to_table(fragments=[2])["id"].to_pylist()

    assert dataset.to_table(fragments=[2], range_before=(10, 20))["id"].to_pylist() == third[10:20]
    plan = dataset.scanner(fragments=[2], range_before=(10, 20), filter="few = 2").explain_plan()
    assert "of 1 fragments" in plan


@pytest.mark.parametrize("given", [5, (1,), (-1, 3), ("a", "b"), (1, 2, 3)])
def test_what_is_no_range_is_refused(dataset: LanceDataset, given: object) -> None:
    with pytest.raises(OptionError, match="range_before: expected"):
        dataset.to_table(range_before=given)


def test_deleted_rows_have_no_place_in_a_range(dataset: LanceDataset) -> None:
    with pytest.raises(OptionError, match="range_before and include_deleted_rows"):
        dataset.to_table(range_before=(0, 5), include_deleted_rows=True, with_row_id=True)
