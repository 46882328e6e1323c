"""Decimals that cross between Spark and its Python workers as integers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

import glaive
import glaive.spark
from glaive.errors import OptionError
from glaive.spark.cast import decimals, restored_schema, short_decimals, unscaled, unscaled_frame

NINES = Decimal("9999999999999999.99")
ROWS: list[tuple[Any, ...]] = [
    (1, NINES, Decimal("-0.00001"), Decimal("12345678901234567.89"), (Decimal("1.5"),)),
    (2, -NINES, None, None, None),
    (3, None, Decimal("0.99999"), Decimal("-0.01"), (None,)),
]
COLUMNS = (
    "id int, `a b` decimal(18,2), small decimal(5,5), wide decimal(19,2), s struct<d:decimal(9,1)>"
)
STORED = pa.schema(
    [
        ("id", pa.int32()),
        ("a b", pa.decimal128(18, 2)),
        ("small", pa.decimal128(5, 5)),
        ("wide", pa.decimal128(19, 2)),
        ("s", pa.struct([("d", pa.decimal128(9, 1))])),
    ]
)


def table(ids: list[int]) -> pa.Table:
    columns = [list(column) for column in zip(*(row for row in ROWS if row[0] in ids), strict=True)]
    columns[-1] = [part and {"d": part[0]} for part in columns[-1]]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, STORED.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=STORED)


@pytest.mark.nightly(reason="more types on Spark")
@pytest.mark.spark
def test_decimals_of_a_frame_are_stored_as_they_were(spark: SparkSession, uri: str) -> None:
    frame = spark.createDataFrame(ROWS, COLUMNS)

    glaive.spark.write(frame, uri)
    glaive.spark.write(frame.where("id = 2"), uri, "append")
    glaive.spark.write(frame.where("id = 3"), uri, "overwrite", replace_where="id = 3")

    found = glaive.dataset(uri).to_table().sort_by("id")
    assert found.equals(pa.concat_tables([table([1]), table([2]), table([2]), table([3])]))


@pytest.mark.spark
def test_only_decimals_of_64_bits_leave_java_as_integers(spark: SparkSession) -> None:
    made = spark.createDataFrame(ROWS, COLUMNS)

    frame, types = unscaled_frame(made, has_jvm=True)

    kinds = [field.dataType.simpleString() for field in frame.schema]
    assert kinds == ["int", "bigint", "bigint", "decimal(19,2)", "struct<d:decimal(9,1)>"]
    assert types == {"a b": "18,2", "small": "5,5"}
    assert [row["small"] for row in frame.collect()] == [-1, None, 99999]
    assert unscaled_frame(made, has_jvm=False) == (made, {})


@pytest.mark.spark
def test_decimals_are_stored_as_the_dataset_has_them(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(pa.table({"n": [1], "x": [0.5]}), uri)

    glaive.spark.write(spark.sql("select 2.00 as n, 0.25 as x"), uri, "append")

    assert glaive.dataset(uri).to_table().to_pylist() == [{"n": 1, "x": 0.5}, {"n": 2, "x": 0.25}]


def test_names_that_differ_in_case_alone_leave_decimals_alone() -> None:
    schema = StructType([StructField(name, DecimalType(9, 2)) for name in ("price", "Price")])

    assert short_decimals(schema) == set()
    assert short_decimals(StructType(schema.fields[:1])) == {"price"}


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"other": "9,2"}, "no bigint column 'other'"),
        ({"text": "9,2"}, "no bigint column 'text'"),
        ({"n": "19,2"}, "found '19,2'"),
        ({"n": "2,9"}, "found '2,9'"),
        ({"n": "x"}, "found 'x'"),
    ],
)
def test_decimals_that_the_frame_cannot_have_are_refused(
    types: dict[str, str], message: str
) -> None:
    schema = StructType([StructField("n", LongType()), StructField("text", StringType())])

    with pytest.raises(OptionError, match=message):
        restored_schema(schema, types)


@pytest.mark.parametrize(("offset", "length"), [(0, 100), (8, 40), (3, 33), (50, 0), (99, 1)])
def test_parts_of_arrays_become_decimals_and_integers_again(offset: int, length: int) -> None:
    values = [None if n % 7 == 3 else (-1) ** n * n**9 % 10**18 for n in range(100)]
    part = pa.array(values, pa.int64()).slice(offset, length)

    made = decimals(part, pa.decimal128(18, 3))

    made.validate(full=True)
    wanted = [None if n is None else Decimal(n).scaleb(-3) for n in part.to_pylist()]
    assert made.to_pylist() == wanted
    assert unscaled(made, "n").equals(part)
