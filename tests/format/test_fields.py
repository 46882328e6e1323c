"""Schemas survive the way to the wire and back, and refuse what Lance has no word for."""

from __future__ import annotations

from typing import Any, Literal

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from glaive.errors import (
    ColumnNotFoundError,
    CorruptFileError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.format.extension import extended
from glaive.format.fields import LanceSchema
from glaive.format.logical_types import leaf_type, logical_type
from glaive.format.pb import file_pb2

UNITS: list[Literal["s", "ms", "us", "ns"]] = ["s", "ms", "us", "ns"]
LEAVES = [
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(7)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in ("UTC", "+01:00", "Europe/Berlin")),
    *(pa.duration(unit) for unit in UNITS),
    *(pa.decimal128(38, 10), pa.decimal128(5, -2), pa.decimal256(76, 3)),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.float64()),
    pa.list_(pa.float32(), 128),
    pa.list_(pa.list_(pa.int8(), 2), 3),
    pa.list_(pa.timestamp("us", "UTC"), 3),
    pa.list_(pa.decimal128(5, 2), 2),
]

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="`"), min_size=1, max_size=8)


def arrow_fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field[Any]]:
    metadata = st.one_of(st.none(), st.dictionaries(NAMES, st.binary(max_size=5), min_size=1))
    return st.builds(
        lambda name, kind, null, more: pa.field(name, kind, null or kind == pa.null(), more),
        NAMES,
        types,
        st.booleans(),
        metadata,
    )


def structs(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    members = st.lists(arrow_fields(types), max_size=4, unique_by=lambda one: one.name)
    return st.builds(pa.struct, members)


ARROW_TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        structs(inner),
        st.builds(pa.list_, arrow_fields(inner)),
        st.builds(pa.large_list, arrow_fields(inner)),
        st.builds(pa.list_, arrow_fields(structs(inner)), st.integers(1, 9)),
        st.builds(
            lambda key, item: pa.map_(pa.field("key", key, nullable=False), item),
            st.sampled_from([pa.string(), pa.int32()]),
            st.builds(
                lambda kind, null: pa.field("value", kind, null or kind == pa.null()),
                inner,
                st.booleans(),
            ),
        ),
    ),
    max_leaves=6,
)


@pytest.mark.spec("field-1", "field-2", "field-4")
@given(st.lists(arrow_fields(ARROW_TYPES), max_size=6, unique_by=lambda one: one.name))
def test_arrow_schemas_survive_the_wire(fields: list[pa.Field[Any]]) -> None:
    schema = pa.schema(fields, {"owner": "me"})
    lance = LanceSchema.from_arrow(schema)
    again = LanceSchema.from_wire(lance.to_wire(), lance.metadata)
    assert again == lance
    assert again.to_arrow().equals(schema, check_metadata=True)
    assert again.field_ids() == list(range(len(again.field_ids())))


@pytest.mark.parametrize("kind", LEAVES, ids=str)
def test_leaf_types_have_one_name(kind: pa.DataType) -> None:
    assert leaf_type(logical_type(kind, "x")) == kind


@pytest.mark.spec("field-3")
def test_the_wire_parent_of_children_of_field_0_is_0() -> None:
    schema = pa.schema([("s", pa.struct([("a", pa.int32())])), ("b", pa.int8())])
    wire = [
        file_pb2.Field.FromString(one.SerializeToString())
        for one in LanceSchema.from_arrow(schema).to_wire()
    ]
    assert [(one.name, one.id, one.parent_id) for one in wire] == [
        ("s", 0, -1),
        ("a", 1, 0),
        ("b", 2, -1),
    ]
    assert LanceSchema.from_wire(wire).to_arrow() == schema


@pytest.mark.spec("type-1")
def test_views_and_ordered_dictionaries_become_what_files_hold() -> None:
    schema = pa.schema(
        [
            ("v", pa.string_view()),
            ("w", pa.binary_view()),
            ("d", pa.dictionary(pa.int8(), pa.string(), ordered=True)),
        ]
    )
    assert LanceSchema.from_arrow(schema).to_arrow().types == [
        pa.string(),
        pa.binary(),
        pa.dictionary(pa.int8(), pa.string()),
    ]


@pytest.mark.spec("type-4")
def test_extension_types_become_storage_and_metadata() -> None:
    field = LanceSchema.from_arrow(pa.schema([("u", pa.uuid())])).fields[0]
    assert field.logical_type == "fixed_size_binary:16"
    assert field.option("ARROW:extension:name") == "arrow.uuid"
    assert LanceSchema((field,)).to_wire()[0].extension_name == "arrow.uuid"


def test_a_schema_gets_the_extension_types_of_any_of_its_fields() -> None:
    stored = pa.field("id", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})
    plain, within = pa.field("n", pa.int64()), pa.field("s", pa.struct([stored]))
    assert extended(pa.schema([stored])).field("id").type == pa.uuid()
    assert extended(pa.schema([plain, within])).field("s").type.field("id").type == pa.uuid()
    assert extended(pa.schema([plain])) == pa.schema([plain])


def test_parameters_of_extension_types_are_kept() -> None:
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 3])
    field = LanceSchema.from_arrow(pa.schema([("t", tensor)])).fields[0]
    assert field.logical_type == "fixed_size_list:float:6"
    assert field.option("ARROW:extension:metadata") == '{"shape":[2,3]}'


@pytest.mark.spec("type-3")
@pytest.mark.parametrize(
    "kind",
    [
        pa.month_day_nano_interval(),
        pa.list_view(pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.decimal32(5, 1),
        pa.decimal64(5, 1),
        pa.decimal128(5, 39),
        pa.decimal256(5, -77),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.map_(pa.string(), pa.int8(), keys_sorted=True),
        pa.list_(pa.list_(pa.int8()), 2),
        pa.list_(pa.int8(), 0),
        pa.binary(2**28),
        pa.list_(pa.struct([("a", pa.int8())]), 0),
        pa.dictionary(pa.int8(), pa.timestamp("us")),
    ],
    ids=str,
)
def test_types_without_a_lance_name_are_refused_with_the_column(kind: pa.DataType) -> None:
    schema = pa.schema([("outer", pa.struct([("inner", kind)]))])
    with pytest.raises(SchemaError, match=r"column 'outer\.inner': "):
        LanceSchema.from_arrow(schema)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(SchemaError, match="column 'a' exists twice"):
        LanceSchema.from_arrow(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


SAMPLE = LanceSchema.from_arrow(
    pa.schema(
        [
            ("id", pa.int64()),
            ("meta", pa.struct([("name", pa.string()), ("at", pa.struct([("x", pa.int8())]))])),
            ("tags", pa.list_(pa.struct([("key", pa.string()), ("n", pa.int32())]))),
            ("dotted.name", pa.int8()),
            ("empty", pa.struct([])),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("vector", pa.list_(pa.float32(), 4)),
        ]
    )
)


def test_projection_keeps_parents_and_the_order_asked_for() -> None:
    assert SAMPLE.project(["tags.item.n", "id", "meta.at"]).to_arrow() == pa.schema(
        [
            ("tags", pa.list_(pa.struct([("n", pa.int32())]))),
            ("id", pa.int64()),
            ("meta", pa.struct([("at", pa.struct([("x", pa.int8())]))])),
        ]
    )


def test_paths_of_one_column_are_merged() -> None:
    assert SAMPLE.project(["meta.at.x", "meta.name"]).to_arrow().types == [
        pa.struct([("name", pa.string()), ("at", pa.struct([("x", pa.int8())]))])
    ]


@pytest.mark.parametrize("path", ["dotted.name", "`dotted.name`"])
def test_names_with_dots_are_found(path: str) -> None:
    assert SAMPLE.project([path]).names == ["dotted.name"]


def test_unknown_paths_name_the_closest_columns() -> None:
    with pytest.raises(ColumnNotFoundError, match=r"named meta.nmae; did you mean 'meta.name'"):
        SAMPLE.project(["meta.nmae"])


@pytest.mark.spec("own-1")
def test_columns_of_2_1_are_leaves_and_empty_structs() -> None:
    assert [one.name for one in SAMPLE.leaf_columns()] == [
        "id",
        "name",
        "x",
        "key",
        "n",
        "dotted.name",
        "empty",
        "key",
        "value",
        "vector",
    ]


def test_a_packed_struct_is_one_column() -> None:
    packed = pa.field(
        "p", pa.struct([("a", pa.int8())]), metadata={"lance-encoding:packed": "true"}
    )
    columns = LanceSchema.from_arrow(pa.schema([packed])).leaf_columns()
    assert [one.name for one in columns] == ["p"]


def test_fields_are_found_by_id() -> None:
    assert SAMPLE.field_by_id(0).name == "id"
    with pytest.raises(ColumnNotFoundError, match="no field with id 99"):
        SAMPLE.field_by_id(99)


def wire(*fields: tuple[str, int, int, str]) -> list[file_pb2.Field]:
    return [
        file_pb2.Field(name=name, id=number, parent_id=parent, logical_type=kind)
        for name, number, parent, kind in fields
    ]


@pytest.mark.parametrize(
    "fields",
    [
        wire(("a", 0, 7, "int8")),
        wire(("a", 0, -1, "int8"), ("b", 0, -1, "int8")),
        wire(("a", 1, 1, "struct")),
        wire(("a", -5, -1, "int8")),
    ],
)
def test_broken_field_lists_are_reported(fields: list[file_pb2.Field]) -> None:
    with pytest.raises(CorruptFileError, match=r"m\.manifest"):
        LanceSchema.from_wire(fields, where="m.manifest")


def test_bottomless_nesting_is_refused() -> None:
    deep = wire(*((f"f{i}", i, i - 1, "struct") for i in range(5000)))
    with pytest.raises(UnsupportedFeatureError, match="5000 levels"):
        LanceSchema.from_wire(deep)


@pytest.mark.parametrize(
    "text",
    [
        "fixed_size_list:int8:many",
        "decimal:128:99:0",
        "timestamp:h:-",
        "fixed_size_binary:-1",
        "dict:string:int8:maybe",
        "dict:dict:string:int8:false:int8:false",
        "decimal:64:3:1",
        "decimal:128:38:39",
        "decimal:128:38:-39",
        "decimal:128:38:99999999999",
        "decimal:256:76:-2147483648",
        "fixed_size_list:int8:99999999999",
        "fixed_size_list:int8:2147483648",
        "fixed_size_binary:²",
        "fixed_size_binary:536870913",
    ],
)
def test_impossible_type_parameters_are_reported(text: str) -> None:
    with pytest.raises(CorruptFileError, match="logical type"):
        leaf_type(text)


def test_unknown_logical_types_name_the_known_ones() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'quaternion'.*int32"):
        leaf_type("quaternion")


def test_a_list_without_an_item_is_reported() -> None:
    with pytest.raises(CorruptFileError, match="children of list field 'a'"):
        LanceSchema.from_wire(wire(("a", 0, -1, "list"))).to_arrow()


def field(number: int, name: str, kind: str, parent: int = -1, **metadata: str) -> file_pb2.Field:
    made = file_pb2.Field(id=number, parent_id=parent, name=name, logical_type=kind)
    for key, value in metadata.items():
        made.metadata[key.replace("_", ":")] = value.encode()
    return made


def blob(*members: tuple[str, str]) -> list[file_pb2.Field]:
    top = field(0, "b", "struct", ARROW_extension_name="lance.blob.v2")
    return [top, *(field(at, *one, 0) for at, one in enumerate(members, 1))]


DATA, URI = ("data", "large_binary"), ("uri", "string")
PART = (("position", "uint64"), ("size", "uint64"))


@pytest.mark.spec("blob-second-5")
@pytest.mark.parametrize("members", [(DATA, URI), (DATA, URI, *PART)])
def test_blob_columns_have_their_members(members: tuple[tuple[str, str], ...]) -> None:
    (found,) = LanceSchema.from_wire(blob(*members)).fields
    assert found.is_blob_v2
    assert [one.name for one in found.children] == [name for name, _ in members]


@pytest.mark.parametrize(
    "members",
    [
        (), (DATA,), (URI,), (URI, DATA), (DATA, ("uri", "int64")), (("data", "binary"), URI),
        (DATA, URI, PART[0]), (DATA, URI, *PART, ("more", "int8")),
    ],
)  # fmt: skip
def test_blob_columns_without_their_members_are_damage(members: tuple[Any, ...]) -> None:
    with pytest.raises(CorruptFileError, match="members of blob column 'b': expected data: large"):
        LanceSchema.from_wire(blob(*members))
    kinds: Any = {"large_binary": pa.large_binary(), "string": pa.string(), "int64": pa.int64(),
             "binary": pa.binary(), "uint64": pa.uint64(), "int8": pa.int8()}  # fmt: skip
    storage = pa.struct([(name, kinds[kind]) for name, kind in members])
    given = pa.field("b", storage, metadata={"ARROW:extension:name": "lance.blob.v2"})
    with pytest.raises(SchemaError, match="column 'b': blobs have the members data: large_binary"):
        LanceSchema.from_arrow(pa.schema([given]))


@pytest.mark.parametrize("number", [-1, -2, -(2**31)])
def test_a_field_without_an_id_is_damage(number: int) -> None:
    with pytest.raises(CorruptFileError, match="id of field 'a': expected a new id"):
        LanceSchema.from_wire([field(number, "a", "int64")])


def test_fields_below_one_that_is_not_nested_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'a' of type 'int64' has children"):
        LanceSchema.from_wire([field(0, "a", "int64"), field(1, "b", "int64", 0)])


def test_ids_that_are_used_up_are_told() -> None:
    last = 2**31 - 1
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert LanceSchema.from_arrow(schema, last - 1).field_ids() == [last - 1, last]
    for first in (last, last + 1, 2**32):
        with pytest.raises(SchemaError, match=f"field ids go up to {last}, and those up to"):
            LanceSchema.from_arrow(schema, first)


def test_a_name_that_two_fields_beside_each_other_have_is_found() -> None:
    struct = ("s", 0, -1, "struct")
    apart = wire(struct, ("a", 1, 0, "int32"), ("a", 2, -1, "int32"))
    assert LanceSchema.from_wire(apart).repeated_name is None
    for fields in (
        wire(("a", 0, -1, "int32"), ("a", 1, -1, "string")),
        wire(struct, ("a", 1, 0, "int32"), ("a", 2, 0, "int32")),
    ):
        assert LanceSchema.from_wire(fields).repeated_name == "a"


def test_a_field_tells_its_facts_by_path() -> None:
    members = pa.struct([pa.field("b", pa.int64(), metadata={"k": "v"})])
    schema = LanceSchema.from_pyarrow(pa.schema([("a", pa.string()), ("s", members)]))
    found = schema.field("s.b")
    assert found is not None
    assert (found.id(), found.name(), found.metadata) == (2, "b", {"k": "v"})
    assert found.to_arrow().type == pa.int64()
    whole = schema.field_case_insensitive("S")
    assert whole is not None
    assert [one.name() for one in whole.children()] == ["b"]
    assert schema.field_case_insensitive("S.B") == found
    assert [schema.field(path) for path in ("S", "s.zz", "a.b")] == [None, None, None]
    assert [schema.field_case_insensitive(path) for path in ("x", "s.zz", "a.b")] == [None] * 3


@pytest.mark.parametrize(
    "field",
    [
        pa.field("UTC!", pa.int8()),
        pa.field("a", pa.struct([("UTC!", pa.int8())])),
        pa.field("a", pa.timestamp("s", "UTC!")),
    ],
)
def test_names_that_are_not_utf8_are_refused(field: pa.Field[Any]) -> None:
    sent = pa.schema([field]).serialize().to_pybytes().replace(b"UTC!", b"UTC\xff")
    with pytest.raises(SchemaError, match=r"name of a column .* time zone, is not UTF-8"):
        LanceSchema.from_arrow(pa.ipc.read_schema(pa.py_buffer(sent)))
