"""RTREE: nulls beside what a box meets, and files that claim more geometries than they have."""

from __future__ import annotations

import cProfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glaive.indices import IndexConfig

import glaive
from glaive.errors import CorruptFileError
from glaive.index.protocol import MeetsBox
from glaive.index.row_sets import ROWSETS

from .built import opened
from .test_damage import replaced

ROWS = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Points on a diagonal, each seventh of them null, in pages of four."""
    kind = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    said = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": "{}"}
    points = [None if at % 7 == 3 else {"x": at, "y": at} for at in range(ROWS)]
    schema = pa.schema([pa.field("x", kind, metadata=said)])
    made = glaive.write_dataset(pa.table([pa.array(points, kind)], schema=schema), tmp_path / "d")
    made.create_scalar_index("x", IndexConfig("rtree", {"page_size": 4}))
    return tmp_path / "d"


BOX = MeetsBox((2.0, 2.0, 5.0, 5.0))


def test_a_search_tells_nulls_apart_if_it_is_asked_to(path: Path) -> None:
    (index,) = opened(path)
    assert index.search(BOX).nulls is None
    found = index.search(BOX, nulls=True)
    assert sorted(found.rows.rows().tolist()) == [2, 4, 5]
    assert found.nulls is not None
    assert found.nulls.rows().tolist() == [3, 10, 17]


def test_neither_a_test_nor_its_opposite_finds_nulls(path: Path) -> None:
    square = "st_geomfromtext('POLYGON((2 2, 5 2, 5 5, 2 5, 2 2))')"
    dataset = glaive.dataset(path)
    counts = []
    for test in (f"st_intersects(x, {square})", f"NOT st_intersects(x, {square})"):
        counts.append(dataset.count_rows(test))
        assert dataset.scanner(filter=test, use_scalar_index=False).count_rows() == counts[-1]
    assert counts == [3, ROWS - 3 - 3]


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("boxes", [1, "text", [1.0]], ids=["number", "text", "list"])
def test_boxes_that_are_no_structs_are_damaged(path: Path, boxes: object) -> None:
    def change(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.schema.get_field_index("bbox"), "bbox", [[boxes] * len(rows)])

    replaced(path, "page_data.lance", change)
    with pytest.raises(CorruptFileError, match=r"column 'bbox' of an index.*page_data"):
        opened(path)


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        (25, "metadata 'num_items': expected at most 24, found 25"),
        (20, "rows of a tree: expected 20 geometries and 5 pages, found 24 rows"),
    ],
)
def test_a_tree_that_claims_too_many_geometries_is_damaged(
    path: Path, claimed: int, message: str
) -> None:
    replaced(path, "page_data.lance", lambda rows: rows, num_items=str(claimed))
    with pytest.raises(CorruptFileError, match=message):
        opened(path)


@pytest.mark.spec("rel-24")
def test_more_geometries_than_a_file_can_hold_are_refused(tmp_path: Path) -> None:
    """Equal boxes of one row take no bytes: merging those of 71 KB took 20 s and 1.2 GB."""
    kind = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    said = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": "{}"}
    schema = pa.schema([pa.field("x", kind, metadata=said)])
    rows = pa.table([pa.array([{"x": 3, "y": 4}], kind)], schema=schema)
    made = glaive.write_dataset(rows, tmp_path / "d", data_storage_version="2.2")
    made.create_scalar_index("x", "RTREE")
    claimed = 3 << 19

    def change(rows: pa.Table) -> pa.Table:
        return rows.take(pa.array(np.zeros(claimed + 384, np.int64)))

    replaced(tmp_path / "d", "page_data.lance", change, num_items=str(claimed), note="x" * 8192)
    message = rf"metadata 'num_items': expected at most {1 << 20}, found {claimed}.*page_data"
    with pytest.raises(CorruptFileError, match=message):
        opened(tmp_path / "d")
    glaive.write_dataset(rows, tmp_path / "d", mode="append")
    with pytest.raises(CorruptFileError, match=message):
        glaive.dataset(tmp_path / "d").optimize.optimize_indices(num_indices_to_merge=2)


def test_points_that_are_infinitely_far_away_raise_no_warning(tmp_path: Path) -> None:
    far = float("inf")
    kind = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    said = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": "{}"}
    places = [far] * 4 + [-far, far] * 4 + [3.0] * 8
    points = pa.array([{"x": place, "y": 3.0} for place in places], kind)
    schema = pa.schema([pa.field("x", kind, metadata=said)])
    made = glaive.write_dataset(pa.table([points], schema=schema), tmp_path / "d")
    made.create_scalar_index("x", IndexConfig("rtree", {"page_size": 4}))
    (index,) = opened(tmp_path / "d")
    with np.errstate(all="raise"):
        estimate = index.estimate(BOX)
        assert index.search(BOX).rows.rows().tolist() == list(range(12, 20))
    assert 0 < estimate <= len(places)


def repeated(rows: pa.Table, times: int) -> pa.Table:
    return rows.take(pa.array([0] * times))


def test_null_rows_that_are_told_again_and_again_are_joined_once(path: Path) -> None:
    calls = []
    for repeats in (1, 5_000):
        replaced(path, "nulls.lance", partial(repeated, times=repeats))
        profile = cProfile.Profile()
        (index,) = profile.runcall(opened, path)
        calls.append(sum(entry.callcount for entry in profile.getstats()))
        found = index.search(BOX, nulls=True).nulls
        assert found is not None
        assert found.rows().tolist() == [3, 10, 17]
    assert calls[1] < calls[0] + 1_000


@pytest.mark.spec("rtree-3")
def test_null_rows_of_several_sets_are_all_null(path: Path) -> None:
    more = [ROWSETS.of(np.array(rows, np.uint64)) for rows in ([1], [2, 3], [1 << 32])]

    def told(rows: pa.Table) -> pa.Table:
        sets = pa.array([*rows["nulls"].to_pylist(), *more], pa.binary())
        return pa.table([sets], schema=rows.schema)

    replaced(path, "nulls.lance", told)
    (index,) = opened(path)
    found = index.search(BOX, nulls=True).nulls
    assert found is not None
    assert found.rows().tolist() == [1, 2, 3, 10, 17, 1 << 32]
