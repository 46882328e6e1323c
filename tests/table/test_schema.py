"""New rows fit the columns of a dataset, or every difference is named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.table.schema import check_append

POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])
MINE = LanceSchema.from_arrow(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("at", POINT),
            ("tags", pa.list_(pa.field("item", pa.string()))),
            ("vector", pa.list_(pa.float32(), 4)),
            ("path", pa.large_list(POINT)),
        ]
    )
)


def test_the_same_columns_keep_their_ids() -> None:
    assert check_append(MINE, MINE.to_arrow()) == MINE


def test_columns_may_come_in_another_order_and_without_nullable_ones() -> None:
    file = check_append(MINE, pa.schema([("name", pa.string()), ("id", pa.int64())]))
    assert [(one.name, one.id) for one in file.fields] == [("name", 1), ("id", 0)]
    assert not file.fields[1].nullable


def test_members_of_structs_are_matched_by_name() -> None:
    turned = pa.struct([("y", pa.float64()), ("x", pa.float64())])
    file = check_append(MINE, pa.schema([("id", pa.int64()), ("at", turned)]))
    x, y = MINE.find("at.x")[1].id, MINE.find("at.y")[1].id
    assert [one.id for one in file.find("at")[0].children] == [y, x]
    part = pa.struct([("y", pa.float64())])
    file = check_append(MINE, pa.schema([("id", pa.int64()), ("at", part)]))
    assert [one.id for one in file.leaf_columns()] == [0, y]


def test_items_of_lists_are_items_whatever_their_name() -> None:
    new = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))])
    file = check_append(MINE, new)
    assert file.find("tags.item")[1].id == MINE.find("tags.item")[1].id


@pytest.mark.parametrize(
    ("new", "fault"),
    [
        ([("id", pa.int32())], "column 'id': expected int64, found int32"),
        ([("name", pa.string())], "column 'id': expected int64 not null, found no such column"),
        ([("id", pa.int64()), ("nmae", pa.string())], "column 'nmae' of type string is not in"),
        (
            [("id", pa.int64()), ("at", pa.struct([("x", pa.float32())]))],
            "column 'at.x': expected double, found float",
        ),
        (
            [("id", pa.int64()), ("at", pa.struct([("z", pa.int8())]))],
            "column 'at.z' of type int8 is not in",
        ),
        (
            [("id", pa.int64()), ("tags", pa.list_(pa.int8()))],
            "column 'tags.item': expected string, found int8",
        ),
        (
            [("id", pa.int64()), ("vector", pa.list_(pa.float32(), 5))],
            (
                "column 'vector': expected fixed_size_list<item: float>[4], "
                "found fixed_size_list<item: float>[5]"
            ),
        ),
        (
            [("id", pa.int64()), ("path", pa.list_(POINT))],
            "column 'path': expected large_list<item: struct<x: double, y: double>>, found list<",
        ),
    ],
)
def test_differences_are_named_with_column_expected_and_found(
    new: list[tuple[str, pa.DataType]], fault: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        check_append(MINE, pa.schema(new), where="s3://b/t")
    message = str(caught.value)
    assert fault in message
    assert "the columns of s3://b/t" in message
    assert "Cast, rename, add or drop these columns before writing" in message


def test_all_differences_are_listed() -> None:
    with pytest.raises(SchemaError, match=r"'id'.*; column 'extra'.*"):
        check_append(MINE, pa.schema([("id", pa.int8()), ("extra", pa.int8())]))
