"""Which columns come out of a read, and what is read for them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from glaive.errors import ColumnNotFoundError, FilterError, OptionError
from glaive.format.fields import LanceSchema
from glaive.scan.projection import column_names, project

SCHEMA = LanceSchema.from_arrow(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("meta", pa.struct([pa.field("x", pa.int32(), False), ("y", pa.string())])),
            pa.field("items", pa.list_(pa.struct([("price", pa.float64())]))),
        ],
        metadata={"made": "here"},
    )
)


def test_all_columns_by_default() -> None:
    projection = project(SCHEMA, None)
    assert projection.schema.equals(SCHEMA.to_arrow(), check_metadata=True)
    assert projection.plain


def test_columns_come_in_the_order_asked_for() -> None:
    assert project(SCHEMA, ["items", "id"]).schema.names == ["items", "id"]


def test_a_member_becomes_a_column_of_its_path() -> None:
    projection = project(SCHEMA, ["meta.x", "id"])
    assert projection.schema.field(0) == pa.field("meta.x", pa.int32())
    assert [child.name for child in projection.fields[0].children] == ["x"]
    assert not projection.plain


def test_a_member_of_a_nullable_struct_is_nullable() -> None:
    assert project(SCHEMA, ["meta.x"]).schema.field("meta.x").nullable


def test_a_take_keeps_members_in_their_struct() -> None:
    projection = project(SCHEMA, ["meta.y", "id", "meta.x"], nested=True)
    assert projection.schema.names == ["meta", "id"]
    assert [member.name for member in projection.schema.field("meta").type] == ["x", "y"]
    assert projection.plain


def test_row_ids_come_where_they_are_named_or_else_last() -> None:
    assert project(SCHEMA, ["_rowid", "id"]).schema.names == ["_rowid", "id"]
    named = project(SCHEMA, ["_rowid", "id"], with_row_id=True, with_row_address=True)
    assert named.schema.names == ["id", "_rowid", "_rowaddr"]
    assert named.schema.field("_rowid").type == pa.uint64()


def test_no_columns_at_all_is_a_projection_too() -> None:
    assert project(SCHEMA, []).schema.names == []


def test_an_unknown_column_names_the_closest() -> None:
    with pytest.raises(ColumnNotFoundError, match=r"named idd; did you mean 'id'"):
        project(SCHEMA, ["idd"])
    with pytest.raises(ColumnNotFoundError, match=r"named meta.z.*meta.x, meta.y"):
        project(SCHEMA, ["meta.z"])


def test_members_of_list_items_cannot_be_had_alone() -> None:
    with pytest.raises(ColumnNotFoundError, match="lies within the list 'items'"):
        project(SCHEMA, ["items.item.price"])


@pytest.mark.parametrize("columns", ["id", 5, ["id", 3]])
def test_columns_must_be_a_list_of_names(columns: object) -> None:
    with pytest.raises(OptionError, match=r"columns must be a list|columns: expected names"):
        column_names(columns)


def test_a_column_is_named_once() -> None:
    with pytest.raises(OptionError, match="Duplicate column name: id"):
        column_names(["id", "id"])


def test_computed_columns_are_named_and_typed() -> None:
    columns = column_names({"double": "id * 2", "name": "meta.y", "one": "1", "id": "id"})
    projection = project(SCHEMA, columns)
    assert projection.schema == pa.schema(
        [
            pa.field("double", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("one", pa.int64(), nullable=False),
            pa.field("id", pa.int64(), nullable=False),
        ]
    )
    assert len(projection.fields) == 2  # what two columns need is read once


def test_a_filter_adds_to_what_is_read_and_not_to_what_comes_out() -> None:
    projection = project(SCHEMA, ["id"], inputs=["id", "meta.x", "_rowid"])
    assert projection.schema.names == ["id"]
    assert len(projection.fields) == 2
    assert projection.inputs["_rowid"].system == "_rowid"
    assert projection.system == {"_rowid"}


def test_an_unknown_column_of_an_expression_names_the_closest() -> None:
    with pytest.raises(FilterError, match=r"idd.*id"):
        project(SCHEMA, (("a", "idd + 1"),))
