"""Batches brought to an exact schema: values unchanged, or an error that says which."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.columns import batch, table

from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.spark.cast import conform
from glaive.spark.types import (
    assigned,
    refuse_missing,
    refuse_unassignable,
    spark_arrow_schema,
    to_spark,
)

STORED = table().schema
SPARK = spark_arrow_schema(to_spark(STORED))


@pytest.mark.parametrize("part", [(0, 5), (1, 3), (2, 0), (4, 1)], ids=str)
def test_values_are_the_same_in_spark_and_back(part: tuple[int, int]) -> None:
    original = batch().slice(*part)

    in_spark = conform(original, SPARK, writing=False)
    back = conform(in_spark, STORED, writing=True)

    in_spark.validate(full=True)
    back.validate(full=True)
    assert in_spark.schema.equals(SPARK)
    assert back.equals(original)


def test_columns_are_matched_by_name() -> None:
    made = pa.record_batch({"b": [1], "a": ["x"]})
    wanted = pa.schema([("a", pa.string()), ("b", pa.int64())])

    assert conform(made, wanted, writing=True).to_pydict() == {"a": ["x"], "b": [1]}


def test_columns_and_members_are_matched_without_case_where_no_name_is_the_same() -> None:
    member = pa.array([{"X": 1, "x": 2}, {"X": 3, "x": None}])
    made = pa.record_batch({"NAME": ["a", "b"], "s": member, "T": pa.array([{"Y": 5}, None])})
    wanted = pa.schema(
        [
            ("name", pa.string()),
            ("s", pa.struct([("x", pa.int8())])),
            ("t", pa.struct([("y", pa.int8())])),
        ]
    )

    assert conform(made, wanted, writing=True).to_pylist() == [
        {"name": "a", "s": {"x": 2}, "t": {"y": 5}},
        {"name": "b", "s": {"x": None}, "t": None},
    ]


def test_texts_and_variants_become_json() -> None:
    fields = [
        pa.field("value", "binary"),
        pa.field("metadata", "binary", metadata={"variant": "true"}),
    ]
    pair = {"value": b"\x0c\x07", "metadata": b"\x01\x00\x00"}
    variants = pa.array([pair, None], pa.struct(fields))
    made = pa.record_batch({"text": ['{"a":1}', None], "variant": variants})
    wanted = pa.schema([("text", pa.json_()), ("variant", pa.json_())])

    refuse_unassignable(made.schema, wanted, where="t")
    rows = conform(made, wanted, writing=True)
    assert rows.schema == wanted
    assert rows.to_pylist() == [
        {"text": '{"a":1}', "variant": "7"},
        {"text": None, "variant": None},
    ]


@pytest.mark.parametrize("values", [["a", None, "a"], [5, 6, None]], ids=str)
def test_values_become_a_dictionary(values: list[Any]) -> None:
    plain = pa.array(values)
    wanted = pa.schema([("d", pa.dictionary(pa.int8(), plain.type))])

    rows = conform(pa.record_batch({"d": plain}), wanted, writing=True)

    assert rows.schema == wanted
    assert rows.column("d").to_pylist() == values


def test_values_of_a_vector_are_not_copied() -> None:
    values = pa.array(np.arange(8, dtype=np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(values, 4)
    made = pa.record_batch({"v": vectors})

    lists = conform(made, pa.schema([("v", pa.list_(pa.float32()))]), writing=False)
    back = conform(lists, made.schema, writing=True)

    assert address(values_of(lists)) == address(values)
    assert address(values_of(back)) == address(values)


def values_of(made: pa.RecordBatch) -> Any:
    column: Any = made.column("v")
    return column.flatten()


def address(array: Any) -> int:
    return int(array.buffers()[1].address)


def one(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([values], ["x"])


def to(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable=nullable)])


@given(
    st.lists(
        st.one_of(st.none(), st.lists(st.integers(0, 9), min_size=3, max_size=3)), max_size=20
    ),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_lists_of_equal_length_become_vectors(
    rows: list[list[int] | None], start: int, length: int
) -> None:
    made = one(pa.array(rows, pa.list_(pa.int32()))).slice(start, length)

    vectors = conform(made, to(pa.list_(pa.int32(), 3)), writing=True)

    vectors.validate(full=True)
    assert vectors.to_pydict() == made.to_pydict()


def test_a_list_of_another_length_is_an_error_with_its_row() -> None:
    made = one(pa.array([[1, 2], [3, 4], [5]]))

    with pytest.raises(SchemaError, match=r"column 'x'.*lists of 2 items, found one of 1 \(row 2 "):
        conform(made, to(pa.list_(pa.int64(), 2)), writing=True)


@pytest.mark.parametrize(
    ("stored", "spark"),
    [
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        (pa.duration("ns"), pa.duration("us")),
        (pa.date64(), pa.date32()),
    ],
    ids=str,
)
def test_digits_are_only_dropped_when_asked_for(stored: pa.DataType, spark: pa.DataType) -> None:
    made = one(pa.array([1_001], stored))

    with pytest.raises(SchemaError, match=r"column 'x'.*allow_truncation"):
        conform(made, to(spark), writing=False)

    kept = conform(made, to(spark), writing=False, allow_truncation=True)
    assert kept.column(0).cast(pa.int64() if stored != pa.date64() else pa.int32())[0].as_py() in (
        0,
        1,
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([300], pa.int16()), pa.uint8()),
        (pa.array([-1], pa.int64()), pa.uint32()),
        (pa.array([1.5]), pa.int32()),
        (pa.array([Decimal("1.55")], pa.decimal128(5, 2)), pa.decimal128(5, 1)),
        (pa.array([b"ab"]), pa.binary(3)),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_an_error(values: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column 'x'"):
        conform(one(values), to(kind), writing=True)


@pytest.mark.parametrize("milliseconds", [2**62, -(2**62), 86_400_000 * 2**31])
@pytest.mark.parametrize("truncates", [False, True])
def test_a_day_that_spark_has_not_is_no_other_day(milliseconds: int, truncates: bool) -> None:
    days = pa.array([None, 0, milliseconds], pa.int64()).view(pa.date64())
    with pytest.raises(SchemaError, match=r"column 'x'.*days"):
        conform(one(days), to(pa.date32()), writing=False, allow_truncation=truncates)


def test_nulls_are_refused_where_the_dataset_has_none() -> None:
    with pytest.raises(SchemaError, match=r"is not nullable.*found 1 null"):
        conform(one(pa.array([1, None])), to(pa.int64(), nullable=False), writing=True)


def test_nulls_are_refused_within_a_struct_but_not_under_a_null_struct() -> None:
    strict = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    loose = pa.struct([pa.field("a", pa.int64())])

    fine = conform(one(pa.array([{"a": 1}, None], loose)), to(strict), writing=True)
    assert fine.to_pydict() == {"x": [{"a": 1}, None]}

    with pytest.raises(SchemaError, match="'a' is not nullable"):
        conform(one(pa.array([{"a": 1}, {"a": None}], loose)), to(strict), writing=True)


REQUIRED = pa.field("item", pa.int64(), nullable=False)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, None]), pa.int64()),
        (pa.array([[1], [2, None]]), pa.list_(REQUIRED)),
        (pa.array([[1], [None]], pa.list_(pa.int64(), 1)), pa.list_(REQUIRED)),
        (pa.array([{"item": None}]), pa.struct([REQUIRED])),
        (pa.array([[{"item": None}]]), pa.list_(pa.struct([REQUIRED]))),
        (pa.array([[("a", None)]], pa.map_("string", "int64")), pa.map_("string", REQUIRED)),
    ],
    ids=str,
)
def test_spark_gets_no_nulls_where_it_is_said_that_there_are_none(
    values: pa.Array, kind: pa.DataType
) -> None:
    """It does not look there: a filter for nulls would find nothing."""
    wanted = to(kind, nullable=pa.types.is_nested(kind))
    with pytest.raises(SchemaError, match=r"column 'x': '\w+' is not nullable"):
        conform(one(values), wanted, writing=False)
    rest = conform(one(values.slice(0, 0)), wanted, writing=False)
    assert rest.schema == wanted


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, {"item": 1}], pa.struct([REQUIRED])),
        ([[1], None, [2, 3]], pa.list_(REQUIRED)),
        ([None, [("a", 1)], []], pa.map_("string", REQUIRED)),
        ([[{"item": 1}], None, [None]], pa.list_(pa.struct([REQUIRED]))),
    ],
    ids=str,
)
def test_parts_of_nulls_have_no_values(values: list[object], kind: pa.DataType) -> None:
    made = pa.array(values, kind)
    for part in (made, made.slice(1), made.slice(1, 1)):
        assert conform(one(part), to(kind), writing=False).column("x").equals(part)


def test_decimals_are_moved_to_addresses_a_kernel_can_use() -> None:
    numbers = pa.array([0, 1, 0, 2, 0, 3, 0, 4, 0]).buffers()[1]
    assert numbers is not None
    skewed = pa.Array.from_buffers(pa.decimal128(10, 2), 4, [None, numbers.slice(8, 64)])
    assert address(skewed) % 16 == 8

    moved = conform(one(skewed), to(skewed.type), writing=True)

    assert address(moved.column(0)) % 16 == 0
    assert moved.column(0).equals(skewed)


# --- before any batch is there ---------------------------------------------------------------


def test_a_frame_with_the_columns_of_the_dataset_may_be_stored() -> None:
    refuse_unassignable(SPARK, STORED, where="t")


def test_numbers_may_go_into_other_numbers() -> None:
    refuse_unassignable(to(pa.int64()), to(pa.uint8()), where="t")


def test_extension_types_go_by_their_storage() -> None:
    refuse_unassignable(to(pa.uuid()), to(pa.binary()), where="t")
    refuse_unassignable(to(pa.binary()), to(pa.uuid()), where="t")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
        (pa.struct([("a", pa.int64()), ("c", pa.int64())]), pa.struct([("a", pa.int64())])),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.int8())),
        (pa.bool_(), pa.int8()),
    ],
    ids=str,
)
def test_types_that_never_fit_are_refused_by_column(
    source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(SchemaError, match="column 'x"):
        refuse_unassignable(to(source), to(target), where="t")


def test_a_column_takes_the_type_of_the_dataset_where_its_values_go_into_that() -> None:
    frame = pa.schema([("x", pa.int64()), ("text", pa.string()), ("more", pa.int64())])
    stored = pa.schema([("text", pa.int8()), ("x", pa.uint8())])

    assert assigned(frame, stored) == pa.schema(
        [("x", pa.uint8()), ("text", pa.string()), ("more", pa.int64())]
    )


def test_a_column_the_frame_lacks_is_refused_with_the_remedy() -> None:
    wanted = LanceSchema.from_arrow(
        pa.schema([("a", pa.int8()), ("x", pa.struct([("y", pa.int8())]))])
    )
    some = LanceSchema(wanted.fields[:1])

    with pytest.raises(SchemaError, match=r"lacks columns of t: x, x\.y.*lit\(None\)"):
        refuse_missing(some, wanted, where="t")


def test_nulls_are_looked_for_only_in_parts_that_rows_have() -> None:
    """Below a null struct, and outside of a slice, there may be any."""
    struct = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    below = pa.StructArray.from_arrays(
        [pa.array([None, 1])], fields=list(struct), mask=pa.array([True, False])
    )
    maps: pa.DataType = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    entries = pa.MapArray.from_arrays([0, 1, 2], pa.array(["x", "y"]), pa.array([None, 1]))
    schema = pa.schema([("s", struct), ("m", maps)])
    batch = pa.RecordBatch.from_arrays([below, entries.cast(maps)], schema=schema)
    assert conform(batch.slice(1), schema, writing=False).to_pylist() == [
        {"s": {"a": 1}, "m": [("y", 1)]}
    ]
    first = pa.RecordBatch.from_arrays([below], schema=schema.remove(1))
    assert conform(first, first.schema, writing=False).to_pylist() == [{"s": None}, {"s": {"a": 1}}]


def test_lists_of_one_length_have_no_nulls_where_their_items_have_none() -> None:
    schema = pa.schema([("v", pa.list_(pa.field("item", pa.float32(), nullable=False), 2))])
    column = pa.FixedSizeListArray.from_arrays(
        pa.array([1, None], pa.float32()), type=schema.field(0).type
    )
    batch = pa.RecordBatch.from_arrays([column], schema=schema)
    with pytest.raises(SchemaError, match="column 'v': 'item' is not nullable"):
        conform(batch, schema, writing=False)
