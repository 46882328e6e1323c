"""Indices over members of JSON documents answer as those of pylance do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import glaive.indices
import pyarrow as pa
import pytest
from tests.index.scalar.built import segments

import glaive
from glaive.format.pb import json_details_pb2
from glaive.table.index_coverage import kind_name

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytest.importorskip("lance.indices")


@pytest.mark.spec("json-index-5", "rel-12", "rel-38")
@pytest.mark.parametrize("lib", [lance, glaive], ids=["pylance", "glaive"])
@pytest.mark.parametrize("target", ["bitmap", "btree"])
def test_nulls_are_found_where_a_scan_ends_in_an_error(
    tmp_path: Path, lib: Any, target: str
) -> None:
    texts = [json.dumps(value) for value in ({"m": "a"}, {"m": "1"}, {})]
    rows = pa.table({"j": pa.array(texts, pa.json_())})
    dataset = lib.write_dataset(rows, str(tmp_path / "t"), data_storage_version="2.2")
    wanted = {"path": "m", "target_index_type": target}
    config = lib.indices.IndexConfig(index_type="json", parameters=wanted)
    dataset.create_scalar_index("j", config)

    def found(condition: str, **options: Any) -> list[int]:
        scan = dataset.scanner(filter=condition, columns=[], with_row_id=True, **options)
        ids: list[int] = scan.to_table()["_rowid"].to_pylist()
        return ids

    for null, expected in (("IS NULL", [2]), ("IS NOT NULL", [0, 1])):
        condition = f"json_get_int(j, 'm') {null}"
        assert found(condition) == expected
        with pytest.raises((ValueError, OSError), match=r"number|invalid digit|Error applying"):
            found(condition, use_scalar_index=False)


@pytest.mark.spec("jsonb-6")
@pytest.mark.parametrize("lib", [lance, glaive], ids=["pylance", "glaive"])
def test_infinity_is_the_text_that_it_is_for_pylance(tmp_path: Path, lib: Any) -> None:
    texts = ['{"m": 1e400}', '{"m": -1e400}', '{"m": "a"}', '{"m": "1e999"}']
    rows = pa.table({"j": pa.array(texts, pa.json_())})
    lib.write_dataset(rows, str(tmp_path), data_storage_version="2.2")
    scanned = [one.dataset(str(tmp_path)) for one in (glaive, lance)]
    columns = {"m": "json_get_string(j, 'm')"}
    mine, theirs = (one.to_table(columns=columns)["m"].to_pylist() for one in scanned)
    assert mine == theirs == ["inf", "-inf", "a", "1e999"]
    condition = "json_get_string(j, 'm') IN ('inf', '-inf')"
    assert scanned[0].count_rows(condition) == 2


@pytest.mark.spec("json-index-1", "json-index-2")
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([7, -3], pa.int64()),
        ([0.5, 2.0], pa.float64()),
        (["b", "a"], pa.string()),
        ([True, False], pa.bool_()),
    ],
    ids=["integers", "floats", "texts", "bools"],
)
def test_details_and_values_are_those_of_pylance(
    tmp_path: Path, values: list[Any], kind: pa.DataType
) -> None:
    documents = [{"m": values[0]}, {}, {"m": None}, None, {"m": values[1]}]
    texts = [None if one is None else json.dumps(one) for one in documents]
    rows = pa.table({"j": pa.array(texts, pa.json_())})
    entries, stored = [], []
    for lib in (lance, glaive):
        dataset = lib.write_dataset(rows, tmp_path / lib.__name__, data_storage_version="2.2")
        wanted = {"path": "m", "target_index_type": "btree"}
        dataset.create_scalar_index("j", lib.indices.IndexConfig("json", wanted))
        (segment,) = segments(tmp_path / lib.__name__)
        entries.append(segment.entry.index_details)
        stored.append(segment.open("page_data.lance").read()["values"].combine_chunks())
    assert entries[0] == entries[1]
    said = json_details_pb2.JsonIndexDetails.FromString(entries[1].value)
    assert (said.path, kind_name(said.target_details.type_url)) == ("m", "btree")
    expected: Any = pa.array([None] * 3 + sorted(values), kind)
    assert stored[1].equals(expected)
    assert stored[0].equals(expected)


@pytest.mark.spec("json-index-3")
def test_a_path_of_an_index_of_pylance_is_the_name_of_no_member(tmp_path: Path) -> None:
    texts = [json.dumps(one) for one in ({"a": {"b": 7}}, {"a.b": 7}, {"a": 7})]
    rows = pa.table({"j": pa.array(texts, pa.json_())})
    theirs = lance.write_dataset(rows, tmp_path, data_storage_version="2.2")
    wanted = {"path": "a.b", "target_index_type": "btree"}
    theirs.create_scalar_index("j", lance.indices.IndexConfig("json", wanted))
    found = {}
    for dataset in (theirs, glaive.dataset(tmp_path)):
        for use in (True, False):
            some = dataset.to_table(
                filter="json_get_int(j, 'a.b') = 7",
                columns=[],
                with_row_id=True,
                use_scalar_index=use,
            )
            found[type(dataset).__module__.split(".")[0], use] = some["_rowid"].to_pylist()
    assert found == {
        ("lance", True): [0], ("lance", False): [1],
        ("glaive", True): [1], ("glaive", False): [1],
    }  # fmt: skip
