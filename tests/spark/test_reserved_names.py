"""Columns named like those that joins and tasks add to rows; whoever made a dataset chose them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
from glaive.errors import SchemaError
from glaive.spark import LanceTable
from glaive.spark.merging import refuse_reserved

pytestmark = pytest.mark.spark

RESERVED = "names like it are reserved"


def made(uri: str, name: str) -> None:
    """A dataset of four rows with a column of this name."""
    table = pa.table({"id": [1, 2, 3, 4], "x": [4, 3, 2, 1], name: [0, 0, 9, 9]})
    glaive.write_dataset(table, uri, max_rows_per_file=2)


@pytest.mark.spec("rel-42")
def test_a_table_with_a_reserved_name_is_not_merged(spark: SparkSession, uri: str) -> None:
    made(uri, "__glaive_row_id")
    source = spark.createDataFrame([(3, 30)], ["id", "x"])
    table = LanceTable.forPath(spark, uri)

    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    with pytest.raises(SchemaError, match=f"{uri} has a column '__glaive_row_id': {RESERVED}"):
        merge.whenMatchedDelete("t.__glaive_row_id = 9").execute()
    with pytest.raises(SchemaError, match=RESERVED):
        table.dropDuplicates(["__glaive_row_id"])

    table.dropDuplicates(["x"])  # it does not read that column
    assert glaive.dataset(uri).count_rows() == 4


def test_names_are_reserved_in_any_case() -> None:
    with pytest.raises(SchemaError, match=f"it has a column '__Glaive_Address': {RESERVED}"):
        refuse_reserved(["id", "__Glaive_Address"], "it")
    refuse_reserved(["id", "glaive_address"], "it")


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("columns", [("x",), ("__glaive_number",), ("x", "__glaive_number")])
def test_rows_with_any_names_are_clustered(
    spark: SparkSession, uri: str, columns: tuple[str, ...]
) -> None:
    made(uri, "__glaive_number")

    LanceTable.forPath(spark, uri).optimize().executeClusterBy(*columns)

    rows = glaive.dataset(uri).to_table().to_pylist()
    keys = [tuple(row[name] for name in columns) for row in rows]
    assert len(columns) > 1 or keys == sorted(keys)
    assert sorted((row["id"], row["x"], row["__glaive_number"]) for row in rows) == [
        (1, 4, 0), (2, 3, 0), (3, 2, 9), (4, 1, 9),
    ]  # fmt: skip
