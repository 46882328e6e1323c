"""Tables of catalogues in Spark: read and written by name, and registered as views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.namespace.calls import call

import glaive
import glaive.spark
from glaive.errors import DatasetNotFoundError, OptionError, UnsupportedFeatureError
from glaive.namespace import connect
from glaive.spark.options import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"a": [1, 2, 3]})


def test_the_option_table_is_looked_up_in_the_catalogue(tmp_path: Path) -> None:
    catalogue = connect(
        "dir", {"root": str(tmp_path), "vend_input_storage_options": "true", "storage.k": "v"}
    )
    call(catalogue, "create_namespace", ["sales"])
    glaive.write_dataset(ROWS, namespace_client=catalogue, table_id=["sales", "orders"])
    given = {
        "namespace.root": str(tmp_path),
        "namespace.vend_input_storage_options": "true",
        "namespace.storage.k": "v",
        "columns": "a",
    }
    for text in ("sales.orders", '["sales", "orders"]'):
        options = from_spark({"table": text, **given})
        assert Path(options.uri).name.endswith("sales$orders")
        assert (dict(options.storage), options.columns) == ({"k": "v"}, ("a",))
    with pytest.raises(DatasetNotFoundError, match="was not found"):
        from_spark({"table": "sales.nothing", **given})
    with pytest.raises(OptionError, match="give only one"):
        from_spark({"table": "sales.orders", "path": "x", **given})
    for wrong in ("[1]", "[", '["a"'):
        with pytest.raises(OptionError, match="option table"):
            from_spark({"table": wrong, **given})


@pytest.mark.spark
def test_tables_are_written_read_and_registered_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    catalogue = connect("dir", {"root": str(tmp_path)})
    call(catalogue, "create_namespace", ["sales"])
    options = {"table": "sales.orders", "namespace.root": str(tmp_path)}
    frame = spark.createDataFrame([(1,), (2,)], "a long")
    glaive.spark.register(spark)
    frame.write.format("lance").options(**options).mode("append").save()
    assert spark.read.format("lance").options(**options).load().columns == ["a"]
    call(catalogue, "declare_table", ["sales", "later"])
    shop = glaive.spark.catalog(spark, catalogue, ["sales"])
    assert shop.list_tables() == ["later", "orders"]
    assert glaive.spark.catalog(spark, catalogue).list_namespaces() == ["sales"]
    assert shop.register_views(prefix="shop_") == ["shop_orders"]
    assert [row[0] for row in spark.sql("SELECT sum(a) FROM shop_orders").collect()] == [3]
    assert shop.read("orders", filter="a > 1").columns == ["a"]
    with pytest.raises(DatasetNotFoundError):
        shop.register_views(["later"])


def test_spark_does_not_write_tables_whose_versions_are_managed(tmp_path: Path) -> None:
    from glaive.spark.table_option import with_location

    given = {
        "table": "orders",
        "namespace.root": str(tmp_path),
        "namespace.table_version_tracking_enabled": "true",
    }
    with pytest.raises(UnsupportedFeatureError, match="manages the versions"):
        with_location(given, create=True)
