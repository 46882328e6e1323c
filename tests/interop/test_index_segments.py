"""Segments that are merged, and columns that only some kinds index, in both libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from glaive.indices import IndexConfig

import glaive
from glaive.errors import UnsupportedFeatureError

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ZONES = {"ZONEMAP": {"rows_per_zone": 20}, "BLOOMFILTER": {"number_of_items": 20}}
FILTERS = ["x is null", "x = 30", "x = 5000", "x between 10 and 20", "x is not null", "x = 7"]


def rows(start: int, count: int) -> pa.Table:
    values = [None if at % 9 == 0 else at // 3 for at in range(start, start + count)]
    return pa.table({"id": pa.array(range(start, start + count), pa.int64()), "x": values})


def check_answers(path: str, filters: list[str]) -> None:
    mine, theirs = glaive.dataset(path), lance.dataset(path)
    for text in filters:
        wanted = mine.to_table(["id"], text, use_scalar_index=False)["id"].to_pylist()
        found = mine.to_table(["id"], text, use_scalar_index=True)["id"].to_pylist()
        assert found == wanted, text
        assert sorted(theirs.to_table(["id"], text)["id"].to_pylist()) == sorted(wanted), text


@pytest.mark.sampled(every=2)
@pytest.mark.spec("zone-3")
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", ZONES)
def test_zones_of_segments_are_merged(tmp_path: Path, kind: str, stable: bool) -> None:
    path = str(tmp_path / "d")
    dataset = glaive.write_dataset(
        rows(0, 120), path, max_rows_per_file=40, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("x", kind, **ZONES[kind])
    for at in (120, 160):
        dataset = glaive.write_dataset(rows(at, 40), path, mode="append")
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    changed = pa.table({"id": pa.array([50, 51, 52], pa.int64()), "x": [None, 7, 5000]})
    dataset.merge_insert("id").when_matched_update_all().execute(changed)
    assert len(dataset.describe_indices()[0].segments) == 3
    dataset.optimize.optimize_indices(num_indices_to_merge=9)
    (segment,) = dataset.describe_indices()[0].segments
    assert segment.fragment_ids == {fragment.fragment_id for fragment in dataset.get_fragments()}
    check_answers(path, FILTERS)


@pytest.mark.parametrize(
    ("kind", "parameters", "name"),
    [
        ("BTREE", {"zone_size": 30}, "num_pages"),
        ("ZONEMAP", {"rows_per_zone": 30}, "num_zones"),
        ("BLOOMFILTER", {"number_of_items": 30}, "num_blocks"),
    ],
)
def test_an_index_keeps_its_parameters(
    tmp_path: Path, kind: str, parameters: dict[str, Any], name: str
) -> None:
    path = str(tmp_path / "d")
    dataset = glaive.write_dataset(rows(0, 90), path)
    dataset.create_scalar_index("x", kind, **parameters)
    for options in ({"num_indices_to_merge": 0}, {"num_indices_to_merge": 9}, {"retrain": True}):
        dataset = glaive.write_dataset(rows(0, 30), path, mode="append")
        dataset.optimize.optimize_indices(**options)
        statistics = lance.dataset(path).stats.index_stats("x_idx")
        pages = sum(one[name] for one in statistics["indices"])
        assert pages == -(-dataset.count_rows() // 30)


@pytest.mark.parametrize("kind", ["btree", "zonemap"])
def test_indices_of_json_are_built_again(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "d")
    documents = pa.array([f'{{"a": {at}}}' for at in range(50)], pa.json_())
    dataset = glaive.write_dataset(pa.table({"id": range(50), "j": documents}), path)
    config = {"path": "a", "target_index_type": kind}
    dataset.create_scalar_index("j", IndexConfig("json", config))
    dataset = glaive.write_dataset(dataset.to_table(), path, mode="append")
    dataset.optimize.optimize_indices(retrain=True)
    (segment,) = dataset.describe_indices()[0].segments
    assert segment.fragment_ids == {0, 1}
    text = "json_get_int(j, 'a') = 7"
    assert dataset.to_table(["id"], text, use_scalar_index=True)["id"].to_pylist() == [7, 7]


# ------------------------------------------------------------------ dictionaries


def coded(path: str) -> Any:
    values = pa.array(["", "a", None, "b", "a"] * 8).dictionary_encode()
    return glaive.write_dataset(pa.table({"id": range(40), "x": values}), path)


@pytest.mark.spec("zonemap-4")
def test_zone_maps_of_dictionaries_are_read_by_pylance(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    coded(path).create_scalar_index("x", "ZONEMAP", rows_per_zone=7)
    check_answers(path, ["x = 'a'", "x is null", "x < 'b'", "x in ('', 'b')", "x = 'c'"])


def texts_by(index: pa.DataType, prefix: str, count: int) -> pa.Table:
    texts = pa.array([f"{prefix}{at:02}" for at in range(count)])
    values = pa.DictionaryArray.from_arrays(pa.array(range(count), index), texts)
    return pa.table({"id": range(count), "x": values})


@pytest.mark.sampled(every=2)
@pytest.mark.spec("zonemap-4")
@pytest.mark.parametrize("index", [pa.int8(), pa.uint16(), pa.int64()], ids=str)
@pytest.mark.parametrize("first", [glaive, lance], ids=["glaive", "pylance"])
def test_zone_maps_of_dictionaries_are_of_the_columns_index_type(
    tmp_path: Path, index: pa.DataType, first: Any
) -> None:
    path = str(tmp_path / "d")
    lance.write_dataset(texts_by(index, "a", 50), path)
    first.dataset(path).create_scalar_index("x", "ZONEMAP")
    filters = ["x = 'a07'", "x < 'a10'", "x in ('b01', 'a49')", "x >= 'b30'", "x is null"]
    check_answers(path, filters)
    lance.write_dataset(texts_by(index, "b", 50), path, mode="append")
    glaive.dataset(path).optimize.optimize_indices(num_indices_to_merge=1)
    assert len(glaive.dataset(path).describe_indices()[0].segments) == 1
    check_answers(path, filters)


@pytest.mark.spec("zonemap-4")
def test_more_bounds_than_a_dictionary_numbers_pass_all_values(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    for prefix in ("a", "b", "c"):
        lance.write_dataset(texts_by(pa.int8(), prefix, 90), path, mode="append")
    glaive.dataset(path).create_scalar_index("x", "ZONEMAP", rows_per_zone=1)
    check_answers(path, ["x = 'b07'", "x < 'a10'", "x in ('c01', 'a49')", "x is null"])


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.null()], ids=str)
def test_zone_maps_without_bounds_that_pylance_made_get_new_rows(
    tmp_path: Path, kind: pa.DataType
) -> None:
    path, table = str(tmp_path / "d"), pa.table({"id": range(9), "x": pa.nulls(9, kind)})
    lance.write_dataset(table, path)
    lance.dataset(path).create_scalar_index("x", "ZONEMAP")
    lance.write_dataset(table, path, mode="append")
    glaive.dataset(path).optimize.optimize_indices(num_indices_to_merge=1)
    statistics = lance.dataset(path).stats.index_stats("x_idx")
    assert (statistics["num_unindexed_rows"], statistics["num_segments"]) == (0, 1)
    assert glaive.dataset(path).count_rows("x is null") == 18


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "BLOOMFILTER", "NGRAM", "INVERTED"])
def test_other_indices_of_dictionaries_are_refused(tmp_path: Path, kind: str) -> None:
    dataset = coded(str(tmp_path / "d"))
    with pytest.raises(UnsupportedFeatureError, match=r"column 'x' of type dictionary"):
        dataset.create_scalar_index("x", kind)


# ------------------------------------------------------------------ trigrams that lack rows


@pytest.mark.spec("ngram-4")
def test_rows_that_pylance_loses_from_trigrams_are_found_by_value(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    texts = [None if at % 5 == 0 else f"word {at % 4}" for at in range(90)]
    lance.write_dataset(pa.table({"id": range(90), "x": texts}), path, max_rows_per_file=30)
    lance.dataset(path).create_scalar_index("x", "NGRAM")
    lance.dataset(path).optimize.compact_files(defer_index_remap=True)
    lance.dataset(path).update({"id": "id"}, where="id % 7 = 3")
    lance.dataset(path).optimize.compact_files()
    check_answers(path, ["x = 'word 1'", "x is null"])
