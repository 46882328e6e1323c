"""Indices of members, and of columns with members or items, find what their columns have now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pytest
from glaive.query import MatchQuery

import glaive
from glaive import LanceOperation
from glaive.errors import CommitConflictError, SchemaError

POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])
MEMBERS = pa.struct([("text", pa.string()), ("n", pa.int64())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("point", POINT, metadata={"ARROW:extension:name": "geoarrow.point"}),
        pa.field("labels", pa.list_(pa.string())),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("s", MEMBERS),
    ]
)
INDICES: dict[str, Any] = {
    "point": "RTREE",
    "labels": "LABEL_LIST",
    "texts": "INVERTED",
    "s.text": "INVERTED",
    "s.n": "BTREE",
}
SET = {
    "point": "named_struct('x', 91.0, 'y', 0.0)",
    "labels": "['l91']",
    "texts": "['t91']",
    "s": "named_struct('text', 't91', 'n', cast(91 as bigint))",
}
"""Updates of all columns to the values that number 91 has."""


def rows(numbers: Iterable[int], ids: Iterable[int]) -> pa.Table:
    given = list(numbers)
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([{"x": float(number), "y": 0.0} for number in given], POINT),
        [[f"l{number}"] for number in given],
        [[f"t{number}"] for number in given],
        pa.array([{"text": f"t{number}", "n": number} for number in given], MEMBERS),
    ]
    return pa.table(columns, schema=SCHEMA)


def found(dataset: glaive.LanceDataset, number: int) -> dict[str, list[int]]:
    """Ids of the rows that have the values of a number, as the index of each column says."""
    filters = {
        "point": f"st_intersects(point, st_geomfromtext('POINT({number} 0)'))",
        "labels": f"array_has_any(labels, ['l{number}'])",
        "s.n": f"s.n = {number}",
    }
    tables = {
        column: dataset.to_table(["id"], filter=asked, use_scalar_index=True)
        for column, asked in filters.items()
    }
    for column in ("texts", "s.text"):
        query = MatchQuery(f"t{number}", column)
        tables[column] = dataset.to_table(["id"], full_text_query=query)
    return {column: list(map(int, table["id"].to_numpy())) for column, table in tables.items()}


def assert_changed(path: Path) -> None:
    """Row 1 has the values of 91, and the others their own."""
    dataset = glaive.dataset(path)
    for number, ids in ((91, [1]), (1, []), (2, [2])):
        assert found(dataset, number) == dict.fromkeys(INDICES, ids), number


@pytest.fixture(params=[True, False], ids=["stable ids", "addresses"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "t"
    glaive.write_dataset(rows(range(4), range(4)), path, enable_stable_row_ids=request.param)
    return path


def make_indices(path: Path, version: int | None = None) -> list[str]:
    """Indices of all columns, and those that were refused as others changed their columns."""
    refused = []
    for column, kind in INDICES.items():
        dataset = glaive.dataset(path, version=version)
        try:
            dataset.create_scalar_index(column, kind, name=column.replace(".", " "))
        except CommitConflictError:
            refused.append(column)
    return refused


Way = Literal["update", "update without fields", "update without mode", "replacement", "merge"]


def replaced(path: Path, way: Way) -> LanceOperation.BaseOperation:
    """New files for all columns of the fragment, with the values of 91 in row 1."""
    dataset = glaive.dataset(path)
    (fragment,) = dataset.get_fragments()
    changed, fields, *_ = fragment.update_columns(rows([91], [1]), left_on="id")
    if way == "replacement":
        group = LanceOperation.DataReplacementGroup(changed.id, changed.files[-1])
        return LanceOperation.DataReplacement([group])
    if way == "merge":
        return LanceOperation.Merge([changed], dataset.lance_schema)
    return LanceOperation.Update(
        updated_fragments=[changed],
        fields_modified=fields if way == "update" else [],
        update_mode="" if way == "update without mode" else "rewrite_columns",
    )


WAYS = pytest.mark.parametrize("way", get_args(Way))


@pytest.mark.sampled(every=4)
@pytest.mark.spec("rel-12", "build-10")
@WAYS
def test_values_that_were_replaced_are_found(path: Path, way: Way) -> None:
    make_indices(path)
    version = glaive.dataset(path).version

    glaive.LanceDataset.commit(path, replaced(path, way), read_version=version)

    assert_changed(path)


@pytest.mark.spec("rel-12", "build-10")
def test_values_are_found_where_the_version_that_was_read_was_cleaned_up(path: Path) -> None:
    make_indices(path)
    version, update = glaive.dataset(path).version, replaced(path, "update without fields")
    dataset = glaive.dataset(path)
    dataset.insert(rows([7], [7]))
    dataset.cleanup_old_versions(timedelta(0))

    glaive.LanceDataset.commit(path, update, read_version=version)

    assert_changed(path)


@pytest.mark.sampled(every=4)
@pytest.mark.spec("rel-12", "build-10", "conflict-5")
@WAYS
def test_values_that_were_replaced_while_indices_were_made_are_found(path: Path, way: Way) -> None:
    glaive.LanceDataset.commit(path, replaced(path, way), read_version=1)

    refused = make_indices(path, version=1)

    assert refused == (["s.text", "s.n"] if way == "replacement" else [])
    assert_changed(path)


@pytest.mark.sampled(every=6)
@pytest.mark.spec("rel-12", "build-10")
@pytest.mark.parametrize("names", [[name] for name in SET] + [list(SET)])
def test_rows_that_were_updated_are_found(path: Path, names: list[str]) -> None:
    make_indices(path)
    dataset = glaive.dataset(path)

    dataset.update({name: SET[name] for name in names}, where="id = 1")
    others = [name for name in SET if name not in names]
    if others:
        merge = dataset.merge_insert("id").when_matched_update_all()
        merge.write_mode("rewrite_columns").execute(rows([91], [1]).select(["id", *others]))

    assert_changed(path)


ITEMS = [
    {"path": "labels.item", "data_type": pa.large_string()},
    {"path": "point.x", "data_type": pa.float32()},
]


@pytest.mark.parametrize("cast", ITEMS, ids=["item", "member"])
def test_items_of_a_column_with_an_index_are_not_cast(path: Path, cast: dict[str, Any]) -> None:
    make_indices(path)

    with pytest.raises(SchemaError, match="cannot be cast: it has the index"):
        glaive.dataset(path).alter_columns(cast)

    assert found(glaive.dataset(path), 2) == {column: [2] for column in INDICES}


@pytest.mark.spec("rel-12", "build-10")
@pytest.mark.parametrize("cast", ITEMS, ids=["item", "member"])
def test_no_version_has_an_index_of_items_that_were_cast_meanwhile(
    path: Path, cast: dict[str, Any]
) -> None:
    column = cast["path"].partition(".")[0]
    glaive.dataset(path).alter_columns(cast)

    refused = make_indices(path, version=1)

    assert column in refused
    assert column not in [one.name for one in glaive.dataset(path).describe_indices()]


@pytest.mark.spec("rel-12", "build-10")
@pytest.mark.parametrize("way", ["segment", "transaction", "older transaction"])
@pytest.mark.parametrize("cast", ITEMS[:1], ids=["item"])
def test_no_segment_of_items_that_were_cast_since_is_committed(
    path: Path, cast: dict[str, Any], way: str
) -> None:
    before = glaive.dataset(path)
    segment = before.create_index_uncommitted("labels", "LABEL_LIST", name="labels")
    if way == "older transaction":
        glaive.dataset(path).insert(rows([4], [4]))
    read = glaive.dataset(path)
    glaive.dataset(path).alter_columns(cast)
    newest = glaive.dataset(path)

    def commit() -> None:
        if way == "segment":
            newest.commit_existing_index_segments("labels", "labels", [segment])
        else:
            made = LanceOperation.CreateIndex([segment], [])
            glaive.LanceDataset.commit(path, made, read_version=read.version)

    with pytest.raises(CommitConflictError, match="removed field"):
        commit()

    assert not glaive.dataset(path).describe_indices()


def test_a_segment_of_items_is_committed_after_columns_were_added(path: Path) -> None:
    segment = glaive.dataset(path).create_index_uncommitted("labels", "LABEL_LIST", name="labels")
    dataset = glaive.dataset(path)
    dataset.add_columns({"more": "id + 1"})

    dataset.commit_existing_index_segments("labels", "labels", [segment])

    assert found(dataset, 2)["labels"] == [2]
    assert [one.name for one in dataset.describe_indices()] == ["labels"]


@pytest.mark.spec("rel-12", "build-10")
def test_an_index_that_is_made_while_its_items_are_cast_goes(path: Path) -> None:
    before = glaive.dataset(path)
    before.alter_columns(*ITEMS)
    made = glaive.dataset(path).read_transaction(2)
    before.checkout_version(1).restore()
    make_indices(path)

    operation = LanceOperation.Merge(made.operation.fragments, made.operation.schema)
    dataset = glaive.LanceDataset.commit(path, operation, read_version=3)

    assert {one.name for one in dataset.describe_indices()} == {"texts", "s text", "s n"}


@pytest.mark.spec("build-10")
def test_an_index_goes_with_a_member_of_its_column(path: Path) -> None:
    make_indices(path)
    dataset = glaive.dataset(path)

    dataset.drop_columns(["point.x", "s.n"])

    assert {one.name for one in dataset.describe_indices()} == {"labels", "texts", "s text"}
