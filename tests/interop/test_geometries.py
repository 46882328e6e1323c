"""Functions of geometries give pylance's answers, with RTREE indices of either and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glaive.indices import IndexConfig

import glaive

from .test_rtree import SQUARE, TYPES, table, written

lance = pytest.importorskip("lance", reason="install the 'interop' group")
shapely = pytest.importorskip("shapely", reason="install the extra 'geo'")

RELATIONS = (
    "contains", "coveredby", "covers", "crosses", "disjoint", "equals", "intersects", "overlaps",
    "touches", "within",
)  # fmt: skip
LINE = "st_geomfromtext('LINESTRING(0 0, 5 5, 9 1)')"
TRIANGLE = "'POLYGON((1 1, 9 2, 4 8, 1 1))'"


def same_rows(uri: str, *conditions: str) -> list[list[int]]:
    """What both libraries find without an index, and glaive with one."""
    theirs, ours = lance.dataset(uri), glaive.dataset(uri)
    answers = []
    for condition in conditions:
        found = theirs.to_table(["id"], filter=condition, use_scalar_index=False)["id"]
        answers.append(found.to_pylist())
        for use in (True, False):
            rows = ours.to_table(["id"], filter=condition, use_scalar_index=use)["id"].to_pylist()
            assert rows == answers[-1], (condition, use)
    return answers


@pytest.mark.sampled(every=8)
@pytest.mark.spec("rtree-4")
@pytest.mark.parametrize("name", TYPES)
def test_relations(tmp_path: Path, name: str) -> None:
    uri = written(tmp_path / "d", name)
    glaive.dataset(uri).create_scalar_index("g", IndexConfig("rtree", {"page_size": 8}))
    others = (SQUARE, LINE, TRIANGLE) if name in ("point", "polygon") else (SQUARE,)
    conditions = [f"st_{relation}(g, {other})" for relation in RELATIONS for other in others]
    conditions += [
        f"NOT st_intersects(g, {SQUARE})",
        f"st_intersects(g, {SQUARE}) AND id > 20 AND st_disjoint(g, {LINE})",
        f"st_intersects(g, {SQUARE}) OR id < 5",
    ]
    if name in ("point", "box"):  # pylance measures no distance of empty lines
        conditions.append(f"st_distance(g, {SQUARE}) < 0.5")
    assert sum(map(len, same_rows(uri, *conditions))) > 100


@pytest.mark.parametrize(("builder", "stable"), [("glaive", True), ("lance", False)])
def test_histories(tmp_path: Path, builder: str, *, stable: bool) -> None:
    uri = written(tmp_path / "d", "point", enable_stable_row_ids=stable)
    {"glaive": glaive, "lance": lance}[builder].dataset(uri).create_scalar_index("g", "RTREE")
    condition = f"st_within(g, {SQUARE})"
    (before,) = same_rows(uri, condition)
    glaive.dataset(uri).delete("id % 4 = 1")
    assert same_rows(uri, condition) == [[row for row in before if row % 4 != 1]]
    glaive.write_dataset(table("point", 60, 90), uri, mode="append")
    same_rows(uri, condition)
    plan = glaive.dataset(uri).scanner(filter=condition, use_scalar_index=True).explain_plan()
    assert "by index g_idx" in plan
    assert "1 fragments scanned" in plan
    glaive.dataset(uri).optimize.optimize_indices()
    same_rows(uri, condition)
    glaive.dataset(uri).optimize.compact_files()
    same_rows(uri, condition)


def test_texts_and_bytes(tmp_path: Path) -> None:
    texts = [
        "POINT(3 3)",
        "LINESTRING(0 0, 9 9)",
        None,
        "POLYGON((0 0, 4 0, 4 4, 0 0))",
        "POINT(2 5)",
    ]
    raw = [None if text is None else shapely.from_wkt(text).wkb for text in texts]
    stored = {
        "wkt": (pa.string(), texts, "geoarrow.wkt"), "wkb": (pa.binary(), raw, "geoarrow.wkb"),
        "large": (pa.large_binary(), raw, "geoarrow.wkb"), "text": (pa.string(), texts, None),
        "bytes": (pa.binary(), raw, None), "ogc": (pa.binary(), raw, "ogc.wkb"),
    }  # fmt: skip
    arrays, fields = [pa.array(range(5))], [pa.field("id", pa.int64())]
    for name, (kind, values, said) in stored.items():
        arrays.append(pa.array(values, kind))
        metadata = None if said is None else {"ARROW:extension:name": said}
        fields.append(pa.field(name, kind, metadata=metadata))
    uri = str(tmp_path / "d")
    lance.write_dataset(pa.table(arrays, schema=pa.schema(fields)), uri)
    lance.dataset(uri).create_scalar_index("wkb", "RTREE")
    for name in stored:
        conditions = (
            f"st_intersects({name}, {SQUARE})", f"st_touches({name}, {SQUARE})",
            f"st_equals({name}, wkb)",
        )  # fmt: skip
        assert all(same_rows(uri, *conditions))
    plan = glaive.dataset(uri).scanner(filter=f"st_within(wkb, {SQUARE})").explain_plan()
    assert "by index wkb_idx" in plan


def test_measures(tmp_path: Path) -> None:
    texts = [
        "POINT(3 3)", "LINESTRING(0 0, 3 4)", None, "POLYGON((0 0, 4 0, 4 4, 0 0))",
        "LINESTRING EMPTY", "POLYGON EMPTY", "MULTIPOINT((1 2), (3 4))",
        "POLYGON((0 0, 4 4, 4 0, 0 4, 0 0))", "MULTILINESTRING((0 0, 1 1), (2 2, 3 3))",
        "GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))",
        "POLYGON((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 1))",
    ]  # fmt: skip
    raw = [None if text is None else shapely.from_wkt(text).wkb for text in texts]
    uri = str(tmp_path / "d")
    lance.write_dataset(pa.table({"g": raw}), uri)
    names = (
        "area", "length", "isempty", "isvalid", "geometrytype", "npoints", "xmin", "xmax", "ymin",
        "ymax",
    )  # fmt: skip
    asked = {name: f"st_{name}(g)" for name in names}
    asked["distance"] = "st_distance(g, st_point(10, 10))"
    theirs, ours = (library.dataset(uri).to_table(asked) for library in (lance, glaive))
    assert ours.schema.types == theirs.schema.types
    for name in asked:
        both = [library[name].to_pylist() for library in (ours, theirs)]
        if pa.types.is_floating(ours.schema.field(name).type):
            assert np.allclose(
                np.array(both[0], float), np.array(both[1], float), equal_nan=True
            ), name
        else:
            assert both[0] == both[1], name


def test_boxes_may_name_their_bounds_the_wrong_way_round(tmp_path: Path) -> None:
    boxes = [{"xmin": 9.0, "ymin": 6.0, "xmax": 1.0, "ymax": 0.0}, None]
    rows = table("box", 0, 2)
    uri = str(tmp_path / "d")
    glaive.write_dataset(rows.set_column(1, rows.schema.field("g"), [boxes]), uri)
    glaive.dataset(uri).create_scalar_index("g", "RTREE")
    assert same_rows(uri, f"st_intersects(g, {SQUARE})") == [[0]]
