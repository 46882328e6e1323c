"""Types of fields at their limits, keys that are told by flags, JSON below lists."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from glaive.errors import CorruptFileError, SchemaError
from glaive.format.extension import extended
from glaive.format.fields import LanceSchema
from glaive.format.logical_types import leaf_type
from glaive.format.pb import file_pb2


def field(number: int, name: str, kind: str) -> file_pb2.Field:
    return file_pb2.Field(id=number, parent_id=-1, name=name, logical_type=kind)


@pytest.mark.parametrize("kind", [pa.list_view(pa.int8()), pa.large_list_view(pa.int8())], ids=str)
def test_list_views_are_to_be_made_lists_without_a_cast(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"list or large_list .*column\.to_pylist\(\)"):
        LanceSchema.from_arrow(pa.schema([("a", pa.struct([("b", kind)]))]))


def test_runs_are_to_be_decoded() -> None:
    column = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8]))
    with pytest.raises(SchemaError, match=r"pyarrow\.compute\.run_end_decode"):
        LanceSchema.from_arrow(pa.schema([("a", column.type)]))
    assert pc.run_end_decode(column).to_pylist() == [7, 7, 8]


@pytest.mark.parametrize("item", [pa.uuid(), pa.list_(pa.int8())])
def test_items_of_fixed_size_lists_are_plain(item: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"items of type .* are not supported in a fixed_size"):
        LanceSchema.from_arrow(pa.schema([("a", pa.list_(item, 2))]))


def test_the_highest_id_of_no_fields_is_below_all() -> None:
    assert LanceSchema(()).max_field_id == -1


def test_sizes_may_have_31_bits() -> None:
    assert leaf_type("fixed_size_list:int8:2147483647") == pa.list_(pa.int8(), 2**31 - 1)


@pytest.mark.parametrize("size", [str(2**31), "9" * 5000, "x", ""], ids=["2^31", "9…", "x", ""])
def test_other_sizes_of_lists_are_damage(size: str) -> None:
    """Python makes no number of thousands of digits."""
    item = field(1, "x", "int32")
    item.parent_id = 0
    schema = LanceSchema.from_wire([field(0, "a", f"fixed_size_list:struct:{size}"), item])
    with pytest.raises(CorruptFileError, match="size of field 'a': expected a number of items"):
        schema.to_arrow()


def test_the_first_column_may_have_members_without_ids() -> None:
    members = [field(-1, name, "uint64") for name in ("position", "size")]
    top = field(0, "b", "struct")
    top.metadata["lance-encoding:packed"] = b"true"
    (first,) = LanceSchema.from_wire([top, *members]).fields
    assert [one.name for one in first.children] == ["position", "size"]


def test_keys_are_told_by_flags_and_by_metadata() -> None:
    first, second, third = (field(at, name, "int64") for at, name in enumerate("abc"))
    first.unenforced_primary_key = True
    second.unenforced_primary_key, second.unenforced_primary_key_position = True, 2
    third.unenforced_clustering_key, third.unenforced_clustering_key_position = True, 1

    schema = LanceSchema.from_wire([first, second, third])

    assert [one.option("lance-schema:unenforced-primary-key") for one in schema.fields] == [
        "true", "true", None,
    ]  # fmt: skip
    again = schema.to_wire()
    assert [one.unenforced_primary_key for one in again] == [True, True, False]
    assert [one.unenforced_primary_key_position for one in again] == [0, 2, 0]
    assert [one.unenforced_clustering_key for one in again] == [False, False, True]
    assert again[2].unenforced_clustering_key_position == 1


def test_jsonb_is_arrows_json_at_any_depth() -> None:
    told = {"ARROW:extension:name": "lance.json"}
    stored, other = (
        pa.field("item", pa.large_binary(), metadata=metadata)
        for metadata in (told, {"ARROW:extension:name": "somebody.else"})
    )
    for outer in (pa.large_list, pa.list_, lambda item: pa.list_(item, 2)):
        found = extended(pa.schema([("a", outer(stored)), ("b", outer(other))]))
        json, left = found.field("a").type, found.field("b").type
        assert json.value_type == pa.json_()
        assert left.value_type == pa.large_binary()
        assert type(json) is type(left) is type(outer(pa.int8()))
