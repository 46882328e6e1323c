"""Indices over a member of JSON documents: built, merged, searched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.arrow.conditions import InRange, IsNull, IsOneOf
from glaive.errors import IndexKindError, OptionError, UnsupportedFeatureError
from glaive.index.scalar.zones import OpenedBloomFilter

from .built import answers, build, merge, opened, segments
from .test_btree import write


def documents(*values: Any) -> pa.Array:
    texts = [None if value is None else json.dumps(value) for value in values]
    return pa.array(texts, pa.json_())


@pytest.mark.sampled(every=3)
@pytest.mark.spec("json-index-1")
@pytest.mark.parametrize("target", ["btree", "bitmap", "zonemap", "bloomfilter"])
@pytest.mark.parametrize(
    ("first", "second"), [(1, 2), (0.5, -2.5), ("a", "b"), (False, True)], ids=str
)
def test_rows_are_found_by_a_member(tmp_path: Path, target: str, first: Any, second: Any) -> None:
    given = [{"m": first}, {"m": second}, {}, None, {"m": None}, {"n": first}]
    path = write(tmp_path / "d", [documents(*given), documents({"m": second})])
    parameters = {"path": "m", "target_index_type": target}
    if target == "bloomfilter" and isinstance(first, bool):
        with pytest.raises(UnsupportedFeatureError, match="of type bool"):
            build(path, "x", "json", parameters)
        return
    build(path, "x", "json", parameters, fragments=[0])
    build(path, "x", "json", parameters, fragments=[1])
    for merged in (False, True):
        if merged:
            merge(path, "x", "json")
        (kind,) = {type(one) for one in opened(path)}
        assert target in kind.__name__.lower()
        assert all(one.entry.index_details.value[:3] == b"\n\x01m" for one in segments(path))
        query = IsOneOf(pa.array([second]))
        found = answers(path, query)
        assert {1, 1 << 32} <= set(found.rows.rows().tolist())
        if found.exact:
            assert found.rows.count == 2
        assert answers(path, IsNull()).rows.rows().tolist() == [2, 3, 4, 5]
        if target != "bloomfilter":
            wanted = InRange(low=pa.scalar(max(first, second)))
            assert all(one.answers(wanted) for one in opened(path))


@pytest.mark.parametrize(
    "values", [(1, 2.5), (1, "a"), (True, 1), ([1],), ({"a": 1},), (1, [1])], ids=str
)
def test_values_of_several_types_are_refused(tmp_path: Path, values: Any) -> None:
    path = write(tmp_path / "d", [documents(*({"m": value} for value in values))])
    with pytest.raises(UnsupportedFeatureError, match="column 'x': member 'm' has values of type"):
        build(path, "x", "json", {"path": "m"})


def test_whole_documents_have_no_order(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [documents({"m": 1})])
    with pytest.raises(IndexKindError, match="Index a member of them: create_scalar_index"):
        glaive.dataset(path).create_scalar_index("x", "BTREE")


@pytest.mark.spec("json-index-3")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "path: expected the name of a member of the documents, found None"),
        ({"path": "a.b"}, "path: expected the name of a member of the documents, found 'a.b'"),
        ({"path": "$.a"}, "path: expected the name"),
        ({"path": "m", "target_index_type": "json"}, "target_index_type: expected one of btree"),
        ({"path": "m", "other": 1}, "parameter 'other' is unknown. Parameters of BTREE"),
    ],
)
def test_wrong_parameters_are_named(
    tmp_path: Path, parameters: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "d", [documents({"m": 1})])
    with pytest.raises(OptionError, match=message):
        build(path, "x", "json", parameters)


def test_only_json_columns_without_stable_ids_have_members(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array([1])])
    with pytest.raises(UnsupportedFeatureError, match="column 'x' of type int64 cannot have a JSO"):
        build(path, "x", "json", {"path": "m"})
    path = write(tmp_path / "stable", [documents({"m": 1})], stable=True)
    with pytest.raises(UnsupportedFeatureError, match="stable row ids"):
        build(path, "x", "json", {"path": "m"})


DOCUMENTS: dict[str, list[Any]] = {
    "integers": [{"m": at} for at in range(9)],
    "floats": [{"m": at + 0.5 * (at % 2)} for at in range(9)],
    "texts": [{"m": str(at)} for at in range(9)],
    "none": [{"n": 1}] * 3,
}
QUESTIONS = (
    "json_get_int(x, 'm') = 7",
    "json_get_float(x, 'm') = 6",
    "json_get_float(x, 'm') = 7.5",
    "json_get_string(x, 'm') = '6'",
    "json_get_int(x, 'm') > 6",
    "json_get_int(x, 'm') IS NULL",
)


@pytest.mark.sampled(every=18)
@pytest.mark.spec("json-index-4")
@pytest.mark.parametrize("target", ["btree", "bitmap", "zonemap", "bloomfilter"])
@pytest.mark.parametrize("first", DOCUMENTS)
@pytest.mark.parametrize("second", DOCUMENTS)
def test_members_of_another_type_come_to_a_segment_of_their_own(
    tmp_path: Path, target: str, first: str, second: str
) -> None:
    path = write(tmp_path / "d", [documents(*DOCUMENTS[first])])
    build(path, "x", "json", {"path": "m", "target_index_type": target})
    dataset = glaive.dataset(path)
    dataset.insert(pa.table({"x": documents(*DOCUMENTS[second])}))
    dataset.optimize.optimize_indices()
    is_same = second in ("texts" if first == "none" else first, "none")
    assert len(segments(path)) == (1 if is_same else 2)
    dataset = glaive.dataset(path)
    for question in QUESTIONS:
        by_index, scanned = (
            dataset.to_table(filter=question, use_scalar_index=use) for use in (True, False)
        )
        assert by_index == scanned, question


def test_a_filter_of_members_of_unknown_type_answers_for_nulls_only(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [documents({"m": 7.0}, {"m": 8.5}, None)])
    build(path, "x", "json", {"path": "m", "target_index_type": "bloomfilter"})
    (index,) = opened(path)
    assert isinstance(index, OpenedBloomFilter)
    asked: dict[Any, bool] = {7.5: True, 7: False, "7": False}
    for value, known in asked.items():
        assert index.answers(IsOneOf(pa.array([value]))) == known
    unknown = index.of_members(None)
    assert not unknown.answers(IsOneOf(pa.array([7.0])))
    assert unknown.answers(IsNull())
