"""Expressions over the old values of rows that are changed, and blob columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive import blob_array
from glaive.dataset.dataset import LanceDataset
from glaive.errors import FilterError, UnsupportedFeatureError


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    """A value here and one elsewhere, beside two others, and within a struct."""
    far = (tmp_path / "far").as_uri()
    first, second = blob_array([b"here", far]), blob_array([b"here", None])
    nested = pa.StructArray.from_arrays([first], fields=[pa.field("b", first.type)])
    table = pa.table({"id": [1, 2], "s": ["x", "y"], "b": first, "c": second, "n": nested})
    return glaive.write_dataset(
        table, tmp_path / "t", data_storage_version="2.2", allow_external_blob_outside_bases=True
    )


@pytest.mark.parametrize(
    "expression",
    [
        "b",
        "n",
        "b.uri",
        "n.b.uri",
        "get_field(b, 'uri')",
        "coalesce(b, c).uri",
        "named_struct('b', b)",
        "make_array(b)",
        "get_field(b, 'uri') = 'file:///x'",
        "upper(get_field(b, 'uri')) IN ('A', 'B')",
    ],
)
def test_references_become_no_part_of_other_values(dataset: LanceDataset, expression: str) -> None:
    """In memory, a reference has a token by which the writer of blobs tells it from users' rows."""
    with pytest.raises(UnsupportedFeatureError, match="is a blob column or part of one"):
        dataset.add_columns({"z": expression})
    with pytest.raises(UnsupportedFeatureError, match="is a blob column or part of one"):
        dataset.update({"s": expression})
    assert dataset.version == 1


@pytest.mark.parametrize("condition", ["target.b.uri = 'x'", "get_field(target.b, 'size') > 3"])
def test_a_merge_is_not_decided_by_a_part_of_a_reference(
    dataset: LanceDataset, condition: str
) -> None:
    merge = dataset.merge_insert("id").when_matched_update_all(condition)
    with pytest.raises(UnsupportedFeatureError, match="the condition of a merge"):
        merge.execute(pa.table({"id": [2], "s": ["new"]}))
    assert dataset.version == 1


def test_nulls_and_equal_values_of_blobs_may_be_asked_for(dataset: LanceDataset) -> None:
    dataset.add_columns({"same": "b = c", "absent": "c IS NULL OR n.b IS NULL"})
    added = dataset.to_table(["same", "absent"])
    assert added.to_pydict() == {"same": [True, None], "absent": [False, True]}
    dataset.update({"s": "cast(c IS NULL AS string)"})
    assert dataset.to_table(["s"])["s"].to_pylist() == ["false", "true"]


def _updated(dataset: LanceDataset) -> None:
    dataset.update({"c": "b"})


def _first(dataset: LanceDataset) -> None:
    dataset.update({"c": "coalesce(c, b)"})


@pytest.mark.parametrize("change", [_updated, _first])
def test_a_blob_column_takes_the_values_of_another_one(
    dataset: LanceDataset, tmp_path: Path, change: Callable[[LanceDataset], None]
) -> None:
    change(dataset)
    stored = [tuple(found.values()) for found in dataset.to_table(["c"])["c"].to_pylist() if found]
    assert [found[0] for found in stored] == [0, 3]
    assert stored[1][-1] == (tmp_path / "far").as_uri()


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize("expression", ["coalesce(b, c)", "nullif(b, c)", "make_array(b)"])
def test_what_a_scan_cannot_make_of_descriptions_is_an_error_about_the_expression(
    tmp_path: Path, version: str, expression: str
) -> None:
    kind = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([kind, kind.with_name("c")])
    table = pa.table({"b": [b"x"], "c": [b"y"]}, schema=schema)
    written = glaive.write_dataset(table, tmp_path / "first", data_storage_version=version)
    with pytest.raises(FilterError, match="Unsupported cast from struct<position"):
        written.to_table(columns={"z": expression})
