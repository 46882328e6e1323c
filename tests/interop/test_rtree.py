"""RTREE: boxes of geometries as pylance has them, whoever built the index."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.indices import IndexConfig

import glaive
from glaive.errors import NotLanceError, OptionError, UnsupportedFeatureError
from glaive.file import LanceFileReader
from glaive.index.row_sets import row_set_of

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS = 60
POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])
LINE = pa.list_(POINT)
BOX = pa.struct([(name, pa.float64()) for name in ("xmin", "ymin", "xmax", "ymax")])
TYPES = {
    "point": POINT,
    "linestring": LINE,
    "multipoint": LINE,
    "polygon": pa.list_(LINE),
    "multilinestring": pa.list_(LINE),
    "multipolygon": pa.list_(pa.list_(LINE)),
    "box": BOX,
}
SQUARE = "st_geomfromtext('POLYGON((2 2, 7 2, 7 7, 2 7, 2 2))')"
QUESTIONS = (f"st_intersects(g, {SQUARE})", f"st_within(g, {SQUARE})", "g IS NULL")


def geometry(random: Any, name: str, row: int) -> Any:
    x, y = (round(float(place), 3) for place in random.uniform(0, 10, 2))
    if row % 11 == 3:
        return None
    if name == "box":
        return {"xmin": x, "ymin": y, "xmax": x + 1, "ymax": y + 0.5}
    corners = ((0.0, 0.0), (1.0, 0.0), (0.5, 0.8), (0.0, 0.0))
    made: Any = [{"x": x + right, "y": y + up} for right, up in corners]
    if name == "point":
        return made[0]
    if row % 11 == 5:
        return []
    for _ in range({"polygon": 1, "multilinestring": 1, "multipolygon": 2}.get(name, 0)):
        made = [made]
    return made


def table(name: str, start: int = 0, stop: int = ROWS) -> pa.Table:
    random = np.random.default_rng(start)
    values = pa.array([geometry(random, name, row) for row in range(start, stop)], TYPES[name])
    said = {"ARROW:extension:name": f"geoarrow.{name}", "ARROW:extension:metadata": "{}"}
    fields = [pa.field("id", pa.int64()), pa.field("g", values.type, metadata=said)]
    return pa.table([pa.array(range(start, stop)), values], schema=pa.schema(fields))


def written(path: Path, name: str = "point", **options: Any) -> str:
    lance.write_dataset(table(name), str(path), max_rows_per_file=25, **options)
    return str(path)


def pages_of(uri: str) -> Any:
    (file,) = Path(uri).glob("_indices/*/page_data.lance")
    reader = LanceFileReader(str(file))
    said = dict(reader.schema.metadata or {})
    return reader.read_all().to_table(), {key: said[key] for key in sorted(said)}


def nulls_of(uri: str) -> list[int]:
    (file,) = Path(uri).glob("_indices/*/nulls.lance")
    rows = LanceFileReader(str(file)).read_all().to_table()
    assert (rows.num_rows, rows.column_names) == (1, ["nulls"])
    found: list[int] = row_set_of(rows["nulls"].combine_chunks(), "here", 99).rows().tolist()
    return found


def same_answers(uri: str) -> None:
    theirs = lance.dataset(uri)
    for question in QUESTIONS:
        found = theirs.to_table(["id"], filter=question)
        plain = theirs.to_table(["id"], filter=question, use_scalar_index=False)
        assert found["id"].to_pylist() == plain["id"].to_pylist(), question
    assert "@g_idx(RTree)" in theirs.scanner(filter=QUESTIONS[0]).explain_plan()
    ours = glaive.dataset(uri)
    nulls = theirs.to_table(["id"], filter="g IS NULL", use_scalar_index=False)["id"].to_pylist()
    assert nulls
    for use in (True, False):
        found = ours.to_table(["id"], filter="g IS NULL", use_scalar_index=use)
        assert found["id"].to_pylist() == nulls
    assert "g_idx" in ours.scanner(filter="g IS NULL", use_scalar_index=True).explain_plan()


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rtree-3")
@pytest.mark.spec("rtree-1", "rtree-2")
@pytest.mark.parametrize("name", TYPES)
def test_the_tree_has_the_boxes_of_pylance(tmp_path: Path, name: str) -> None:
    trees, nulls = [], []
    for library in (glaive, lance):
        uri = written(tmp_path / library.__name__, name)
        config = (glaive if library is glaive else lance).indices.IndexConfig(
            "rtree", {"page_size": 7}
        )
        library.dataset(uri).create_scalar_index("g", config)
        trees.append(pages_of(uri))
        nulls.append(nulls_of(uri))
        if name != "box":  # a box meets no polygon, pylance says
            same_answers(uri)
    assert nulls[0] == nulls[1]
    assert nulls[0]
    (ours, said), (theirs, their_said) = trees
    assert {key: said[key] for key in (b"num_items", b"num_pages", b"page_size")} == {
        key: their_said[key] for key in (b"num_items", b"num_pages", b"page_size")
    }
    assert said[b"bbox"].startswith(b'{"minx":')
    assert ours.schema.equals(theirs.schema)
    items = int(said[b"num_items"])
    by_row = [
        sorted(tree.slice(0, items).to_pylist(), key=lambda one: one["id"])
        for tree in (ours, theirs)
    ]
    assert by_row[0] == by_row[1]
    levels = [tree.slice(items)["id"].to_pylist() for tree in (ours, theirs)]
    assert levels[0] == levels[1]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("builder", [glaive, lance], ids=["glaive", "pylance"])
def test_histories(tmp_path: Path, builder: ModuleType, *, stable: bool) -> None:
    uri = written(tmp_path / "d", enable_stable_row_ids=stable)
    builder.dataset(uri).create_scalar_index("g", "RTREE")
    same_answers(uri)
    glaive.dataset(uri).delete("id % 4 = 1")
    same_answers(uri)
    glaive.write_dataset(table("point", ROWS, ROWS + 30), uri, mode="append")
    same_answers(uri)
    glaive.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert glaive.dataset(uri).stats.index_stats("g_idx")["num_unindexed_rows"] == 0
    same_answers(uri)
    glaive.dataset(uri).optimize.optimize_indices(num_indices_to_merge=2)
    same_answers(uri)
    glaive.dataset(uri).optimize.compact_files()
    nulls = [dataset.count_rows("g IS NULL") for dataset in map_both(uri)]
    assert nulls[0] == nulls[1] > 0


def map_both(uri: str) -> list[Any]:
    return [glaive.dataset(uri), lance.dataset(uri)]


def test_neighbours_are_in_one_page(tmp_path: Path) -> None:
    side = 64
    places = np.array(list(itertools.product(range(side), range(side))), np.float64)
    np.random.default_rng(0).shuffle(places)
    points = pa.StructArray.from_arrays(
        [pa.array(places[:, 0]), pa.array(places[:, 1])], fields=list(POINT)
    )
    field = table("point").schema.field("g")
    uri = str(tmp_path / "d")
    dataset = glaive.write_dataset(pa.table([points], schema=pa.schema([field])), uri)
    dataset.create_scalar_index("g", IndexConfig("rtree", {"page_size": 64}))
    tree, said = pages_of(uri)
    pages = tree.slice(int(said[b"num_items"]), 64)["bbox"].to_pylist()
    areas = [(one["xmax"] - one["xmin"]) * (one["ymax"] - one["ymin"]) for one in pages]
    # Squares of 8 by 8 points are the best pages of 64; pages of random points have 63 by 63.
    assert np.mean(areas) < 2 * 7 * 7


def test_empty_columns_and_wrong_parameters(tmp_path: Path) -> None:
    for at, rows in enumerate((0, 4)):
        field = table("point").schema.field("g")
        nulls = pa.table([pa.nulls(rows, POINT)], schema=pa.schema([field]))
        dataset = glaive.write_dataset(nulls, str(tmp_path / f"{at}"))
        dataset.create_scalar_index("g", "RTREE")
        assert lance.dataset(dataset.uri).count_rows("g IS NULL") == rows
    with pytest.raises(OptionError, match="page_size"):
        dataset.create_scalar_index("g", IndexConfig("rtree", {"page_size": 1}))
    texts = glaive.write_dataset(pa.table({"g": ["POINT(1 2)"]}), str(tmp_path / "t"))
    with pytest.raises(UnsupportedFeatureError, match=r"geoarrow\.point"):
        texts.create_scalar_index("g", "RTREE")


def test_damage_is_told(tmp_path: Path) -> None:
    uri = written(tmp_path / "d")
    glaive.dataset(uri).create_scalar_index("g", "RTREE")
    (file,) = Path(uri).glob("_indices/*/nulls.lance")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(NotLanceError, match=r"nulls\.lance"):
        glaive.dataset(uri).to_table(filter="g IS NULL", use_scalar_index=True)


def test_geometries_that_touch_the_border_of_the_box_are_found(tmp_path: Path) -> None:
    places = [(2, 5), (7, 5), (5, 2), (5, 7), (2, 2), (7, 7), (1, 5), (8, 5), (5, 1), (5, 8)]
    values = pa.array([{"x": float(x), "y": float(y)} for x, y in places], POINT)
    rows = pa.table([pa.array(range(10)), values], schema=table("point").schema)
    dataset = glaive.write_dataset(rows, tmp_path / "d")
    dataset.create_scalar_index("g", IndexConfig("rtree", {"page_size": 4}))
    assert "g_idx" in dataset.scanner(filter=QUESTIONS[0]).explain_plan()
    for use in (True, False):
        found = dataset.to_table(["id"], filter=QUESTIONS[0], use_scalar_index=use)
        assert found["id"].to_pylist() == [0, 1, 2, 3, 4, 5]
