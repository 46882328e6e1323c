"""Geometries in filters: nulls, constants, damage. Answers beside pylance's are in ``interop``."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import FilterError, MissingDependencyError

pytest.importorskip("shapely", reason="install the extra 'geo'")

SQUARE = "'POLYGON((2 2, 7 2, 7 7, 2 7, 2 2))'"
TEXTS = ["POINT(3 3)", None, "LINESTRING(0 0, 1 1)", "POINT(2 5)"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    uri = str(tmp_path_factory.mktemp("geometries") / "d")
    return glaive.write_dataset({"id": range(4), "g": TEXTS}, uri)


def found(dataset: Any, condition: str) -> list[int]:
    rows: list[int] = dataset.to_table(["id"], filter=condition)["id"].to_pylist()
    return rows


def test_a_null_geometry_neither_meets_nor_misses(dataset: Any) -> None:
    assert found(dataset, f"st_intersects(g, {SQUARE})") == [0, 3]
    assert found(dataset, f"NOT st_intersects(g, {SQUARE})") == [2]
    assert found(dataset, f"st_intersects(g, {SQUARE}) IS NULL") == [1]
    assert found(dataset, "st_intersects(g, NULL) IS NULL") == [0, 1, 2, 3]
    assert found(dataset, f"st_intersects(g, {SQUARE}) OR id = 1") == [0, 1, 3]
    assert found(dataset, f"st_intersects(g, {SQUARE}) AND id > 0") == [3]


def test_a_constant_may_stand_first(dataset: Any) -> None:
    assert found(dataset, f"st_contains({SQUARE}, g)") == found(dataset, f"st_within(g, {SQUARE})")
    assert found(dataset, f"st_contains({SQUARE}, g)") == [0]
    assert found(dataset, f"st_covers({SQUARE}, g)") == [0, 3]


@pytest.mark.spec("sec-1")
def test_collections_with_empty_parts_do_not_end_the_process(tmp_path: Path) -> None:
    texts = [
        "GEOMETRYCOLLECTION(POINT EMPTY, POINT(2 5))",
        "GEOMETRYCOLLECTION(POINT(3 3), LINESTRING EMPTY)",
        None,
        "MULTILINESTRING(EMPTY, (2 2, 7 2))",
        "GEOMETRYCOLLECTION(GEOMETRYCOLLECTION(POINT EMPTY, POINT(3 3)), POINT(4 4))",
        "POINT EMPTY",
        "GEOMETRYCOLLECTION EMPTY",
        "MULTIPOINT(3 3, 9 9)",
        "GEOMETRYCOLLECTION(POINT(3 3))",
    ]
    dataset = glaive.write_dataset({"id": range(len(texts)), "g": texts}, tmp_path / "d")
    for condition in (f"st_contains({SQUARE}, g)", f"st_within(g, {SQUARE})"):
        assert found(dataset, condition) == [1, 4, 8]
        assert found(dataset, f"{condition} IS NULL") == [2]
    assert found(dataset, f"st_contains({SQUARE}, '{texts[4]}')") == list(range(len(texts)))


@pytest.mark.parametrize(
    "point",
    [
        "'POINT(3 3)'", "st_geomfromtext('POINT(3 3)')", "st_point(3, 1 + 2)",
        "st_point(id + 3, 3)",
        "st_geomfromwkb(x'010100000000000000000008400000000000000840')",
        "x'010100000000000000000008400000000000000840'",
    ],
)  # fmt: skip
def test_points_are_written_in_several_ways(dataset: Any, point: str) -> None:
    assert found(dataset, f"st_equals(g, {point})") == [0]


def test_what_has_no_end_is_infinitely_far(dataset: Any) -> None:
    endless = "st_point(arrow_cast('inf', 'Float64'), 0.0)"
    assert found(dataset, f"id = 0 AND st_xmax({endless}) = arrow_cast('inf', 'Float64')") == [0]


@pytest.mark.filterwarnings("error")
def test_coordinates_that_are_no_numbers_are_told_without_warnings(tmp_path: Path) -> None:
    line = struct.pack("<BII6d", 1, 2, 3, 0, 0, float("nan"), 1, 2, 2)
    dataset = glaive.write_dataset({"id": [0], "g": [line]}, tmp_path / "d")
    assert found(dataset, "st_npoints(g) = 3") == [0]
    with pytest.raises(FilterError, match=r"st_distance cannot be computed: .*another test"):
        found(dataset, "st_distance(g, g) = 0")


def test_an_empty_geometry_meets_nothing(dataset: Any) -> None:
    assert found(dataset, "st_intersects(g, 'POINT EMPTY')") == []
    assert found(dataset, "st_isempty(st_geomfromtext('POINT EMPTY'))") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("st_intersects(g, 3)", "argument 2 must be a geometry"),
        ("st_intersects(g)", "number of arguments must be 2, not 1"),
        ("st_intersects(g, 'POINT(1')", "no geometry in WKT or WKB"),
        ("st_point('a', 2) IS NULL", "must be a number"),
    ],
)
def test_wrong_arguments_are_refused(dataset: Any, condition: str, said: str) -> None:
    with pytest.raises(FilterError, match=said.replace("(", "\\(")):
        found(dataset, condition)


RING = b"\1" + struct.pack("<III6d", 3, 1, 3, 0, 0, 1, 1, 2, 0)


@pytest.mark.parametrize(
    ("damaged", "said"), [(b"\1\2\0\0\0\xff\xff\xff\xff", "smaller"), (RING, "ring")]
)
def test_damaged_bytes_name_the_column_and_the_row(
    tmp_path: Path, damaged: bytes, said: str
) -> None:
    point = b"\1" + struct.pack("<I2d", 1, 3, 3)
    rows = {"id": [0, 1, 2, 3], "g": [point, None, damaged, point]}
    dataset = glaive.write_dataset(rows, str(tmp_path / "d"))
    with pytest.raises(FilterError, match=f"column 'g': the value in row 2 .*{said}"):
        found(dataset, f"st_intersects(g, {SQUARE})")
    assert found(dataset, f"id != 2 AND st_intersects(g, {SQUARE})") == [0, 3]


def test_parts_without_points_are_empty(tmp_path: Path) -> None:
    point: Any = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    corners = [{"x": float(x), "y": float(y)} for x, y in ((0, 0), (4, 0), (4, 4), (0, 0))]
    given = [[[corners]], [[]], [], None, [[[]], [corners], []]]
    said = {"ARROW:extension:name": "geoarrow.multipolygon"}
    field = pa.field("g", pa.list_(pa.list_(pa.list_(point))), metadata=said)
    table = pa.table([pa.array(given, field.type)], schema=pa.schema([field]))
    dataset = glaive.write_dataset(table, str(tmp_path / "d"))
    areas = dataset.to_table({"area": "st_area(g)", "none": "st_isempty(g)"})
    assert areas["area"].to_pylist() == [8, 0, 0, None, 8]
    assert areas["none"].to_pylist() == [False, True, True, None, False]


def test_without_shapely_the_extra_is_named(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(MissingDependencyError, match=r"st_distance needs shapely.*glaive\[geo\]"):
        found(dataset, f"st_distance(g, {SQUARE}) < 1")
