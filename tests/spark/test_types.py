"""Types on their way to Spark and back: nothing is lost that has a name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from tests.spark.columns import columns

import glaive.spark
from glaive.errors import SchemaError
from glaive.spark.types import ARROW_TYPE, spark_arrow_schema, stored_schema, to_arrow, to_spark

COLUMNS = columns()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_type_survives_the_way_to_spark_and_back(name: str) -> None:
    schema = pa.schema([pa.field(name, COLUMNS[name].type)])

    assert stored_schema(to_spark(schema)).equals(schema)


def test_types_spark_has_carry_no_metadata() -> None:
    schema = pa.schema([("i", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float32()))])

    assert all(field.metadata == {} for field in to_spark(schema))


def test_spark_is_told_the_name_of_what_it_cannot_say() -> None:
    kind = pa.list_(pa.large_list(pa.uint16()))

    (field,) = to_spark(pa.schema([("deep", kind)]))

    assert field.dataType.simpleString() == "array<array<int>>"
    assert field.metadata == {
        f"{ARROW_TYPE}.element": "large_list",
        f"{ARROW_TYPE}.element.element": "uint16",
    }


def test_a_map_keeps_the_types_of_keys_and_values() -> None:
    schema = pa.schema([("m", pa.map_(pa.large_string(), pa.uint8()))])

    assert stored_schema(to_spark(schema)).equals(schema)


def test_a_dictionary_is_read_as_its_values() -> None:
    schema = pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))])

    (field,) = to_spark(schema)

    assert field.dataType == StringType()
    assert field.metadata == {}


def test_nullability_goes_to_spark() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.int64())])

    assert [field.nullable for field in to_spark(schema)] == [False, True]


def test_a_new_dataset_may_hold_nulls_whatever_spark_says() -> None:
    frame = StructType([StructField("a", ArrayType(FloatType(), False), nullable=False)])

    assert to_arrow(frame).field("a").nullable
    assert to_arrow(frame).field("a").type.value_field.nullable
    assert not to_arrow(frame, strict_nullability=True).field("a").nullable


def test_metadata_of_a_field_goes_both_ways() -> None:
    field = pa.field("x", pa.string(), metadata={"lance-encoding:compression": "zstd"})

    back = stored_schema(to_spark(pa.schema([field]))).field("x")

    assert back.metadata == field.metadata


def test_an_extension_type_is_read_as_its_storage_and_keeps_its_name() -> None:
    (field,) = to_spark(pa.schema([("u", pa.uuid())]))

    assert field.dataType.simpleString() == "binary"
    assert field.metadata["ARROW:extension:name"] == "arrow.uuid"
    stored = stored_schema(StructType([field])).field("u")
    assert stored.type == pa.binary(16)
    assert stored.metadata == {
        b"ARROW:extension:name": b"arrow.uuid",
        b"ARROW:extension:metadata": b"",
    }


def test_json_is_text_in_spark_and_json_again_while_it_is_text() -> None:
    member = pa.field("j", pa.json_())
    schema = pa.schema([("j", pa.json_()), ("l", pa.list_(pa.json_())), ("s", pa.struct([member]))])

    read = to_spark(schema)
    assert [field.dataType.simpleString() for field in read] == [
        "string",
        "array<string>",
        "struct<j:string>",
    ]
    assert stored_schema(read).equals(schema, check_metadata=True)
    (number,) = stored_schema(
        StructType([StructField("j", LongType(), metadata=read["j"].metadata)])
    )
    assert (number.type, number.metadata) == (pa.int64(), None)


@pytest.mark.parametrize(
    ("stored", "in_spark"),
    [
        (pa.decimal128(5, -2), DecimalType(7, 0)),
        (pa.decimal128(3, 6), DecimalType(6, 6)),
        (pa.decimal128(38, -1), StringType()),
        (pa.decimal256(30, -8), DecimalType(38, 0)),
    ],
    ids=str,
)
def test_scales_that_spark_lacks_are_read_with_more_digits(
    stored: pa.DataType, in_spark: DataType
) -> None:
    read = to_spark(pa.schema([("d", stored)]))

    assert read["d"].dataType == in_spark
    assert stored_schema(read).field("d").type == stored


def test_texts_with_a_collation_are_stored_as_plain_texts() -> None:
    text = StringType("UTF8_LCASE")
    frame = StructType([StructField("a", text), StructField("b", MapType(text, ArrayType(text)))])

    assert to_arrow(frame).types == [pa.string(), pa.map_(pa.string(), pa.list_(pa.string()))]


@pytest.mark.spec("rel-42")
def test_a_name_in_a_dataset_does_not_change_how_a_copy_of_its_rows_is_stored() -> None:
    named = pa.field("x", pa.float32(), metadata={ARROW_TYPE: "halffloat", "lance:own": "kept"})
    lists = pa.field("l", pa.list_(named), metadata={f"{ARROW_TYPE}.element": "halffloat"})
    schema = to_spark(pa.schema([named, pa.field("s", pa.struct([named])), lists]))
    assert schema["x"].metadata == {"lance:own": "kept"}
    assert to_arrow(schema).types == [
        pa.float32(),
        pa.struct([("x", pa.float32())]),
        pa.list_(pa.float32()),
    ]


def test_a_name_that_no_longer_fits_the_column_is_passed_over() -> None:
    stale = StructField("x", StringType(), metadata={ARROW_TYPE: "uint8"})
    foreign = StructField("y", StringType(), metadata={ARROW_TYPE: "no such type"})

    assert stored_schema(StructType([stale, foreign])).types == [pa.string(), pa.string()]


@pytest.mark.parametrize("size", ["zz", "", "-5", "0", "1.5", "2147483648", "9" * 5000])
def test_a_size_that_no_list_has_is_passed_over(size: str) -> None:
    structs = ArrayType(StructType([StructField("x", LongType())]))
    metadata = {ARROW_TYPE: f"fixed_size_list:struct:{size}"}
    stored = to_arrow(StructType([StructField("y", structs, metadata=metadata)]))
    assert pa.types.is_list(stored.field("y").type)


def test_keys_of_the_jvm_connector_are_understood() -> None:
    vector = StructField(
        "v",
        ArrayType(FloatType()),
        metadata={"arrow.fixed-size-list.size": 4, "arrow.float16": True},
    )
    text = StructField("t", StringType(), metadata={"arrow.large_var_char": "true"})

    stored = stored_schema(StructType([vector, text]))

    assert stored.types == [pa.list_(pa.float16(), 4), pa.large_string()]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("emb:4", pa.list_(pa.float32(), 4)),
        ("emb:4:float16", pa.list_(pa.float16(), 4)),
        ("emb:4:double", pa.list_(pa.float64(), 4)),
    ],
)
def test_vector_columns_become_lists_of_fixed_size(text: str, kind: pa.DataType) -> None:
    frame = StructType([StructField("emb", ArrayType(FloatType()))])

    assert stored_schema(frame, (text,)).field("emb").type == kind


@pytest.mark.parametrize(
    "text",
    [
        "emb", "emb:", "emb:0", "emb:x", "other:4", "emb:4:nothing", "text:4",
        f"emb:{2**31}", f"emb:{2**64}", f"emb:{'9' * 5000}",
    ],
)  # fmt: skip
def test_a_vector_column_that_cannot_be_is_refused_with_the_form_expected(text: str) -> None:
    frame = StructType(
        [StructField("emb", ArrayType(FloatType())), StructField("text", StringType())]
    )

    with pytest.raises(SchemaError, match="vector column"):
        stored_schema(frame, (text,))


def test_a_type_spark_cannot_hold_is_refused_by_column() -> None:
    with pytest.raises(SchemaError, match=r"column 'when'.*month_day_nano"):
        to_spark(pa.schema([("when", pa.month_day_nano_interval())]))


def test_what_spark_sends_is_what_spark_expects() -> None:
    schema = to_spark(pa.table(COLUMNS).schema)

    assert spark_arrow_schema(schema).names == list(COLUMNS)
    assert spark_arrow_schema(schema).field("float").type == pa.float32()


def test_variants_stay_variants(spark: SparkSession, uri: str) -> None:
    made = "select 1 as id, parse_json('{\"a\": [7]}') as v union all select 2, null"
    glaive.spark.write(spark.sql(made), uri)

    frame = glaive.spark.read(spark, uri)
    assert frame.schema["v"].dataType.simpleString() == "variant"
    found = frame.selectExpr("id", "variant_get(v, '$.a[0]', 'int') as n").orderBy("id")
    assert [tuple(row) for row in found.collect()] == [(1, 7), (2, None)]
    assert glaive.spark.write(frame, uri, mode="append") == 2


def test_a_type_that_arrow_lacks_is_refused_by_column(spark: SparkSession, uri: str) -> None:
    months = spark.sql("select 1 as id, interval '1-2' year to month as months")

    with pytest.raises(SchemaError, match=r"column 'months': .* Cast it first"):
        glaive.spark.write(months, uri)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("values", [[1], [{"x\0y": 1}], [[{"x\0y": 1}]]])
def test_a_name_that_spark_would_cut_is_refused_by_column(
    spark: SparkSession, uri: str, values: list[object]
) -> None:
    glaive.write_dataset(pa.table({"x\0y": values}), uri)
    frame = glaive.spark.read(spark, uri)
    assert frame.count() == 1
    with pytest.raises(SchemaError, match=r"column 'x\\x00y': Spark's batches cut the name"):
        glaive.spark.write(frame, f"{uri}.copy")
