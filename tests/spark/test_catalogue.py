"""Tables of catalogues in Spark: read and written by name, and registered as views."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance_namespace as interface
import pyarrow as pa
import pytest
from tests.namespace.calls import call

import glaive
import glaive.spark
from glaive.errors import DatasetNotFoundError, OptionError, UnsupportedFeatureError
from glaive.io.access import EXPIRES, ExpiringOptions
from glaive.namespace import connect
from glaive.spark.options import from_spark, with_location
from glaive.table.root import open_root

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


def test_tasks_ask_for_newer_credentials_before_theirs_expire(tmp_path: Path) -> None:
    settings = {
        "root": str(tmp_path),
        "vend_input_storage_options": "true",
        "vend_input_storage_options_refresh_interval_millis": "60000",
        "storage.k": "v",
    }
    glaive.write_dataset(ROWS, namespace_client=connect("dir", settings), table_id=["orders"])
    given = {f"namespace.{name}": text for name, text in settings.items()}
    for create in (False, True):
        found = with_location({"table": "orders", **given}, create=create)
        options = pickle.loads(pickle.dumps(from_spark(found)))
        assert isinstance(options.storage, ExpiringOptions)
        newer = options.storage.renew()
        assert (newer["k"], options.storage["k"]) == ("v", "v")
        assert int(newer[EXPIRES]) > int(options.storage[EXPIRES])
        task_store = pickle.loads(pickle.dumps(open_root("s3://bucket/orders", options.storage)))
        assert "RenewedStore" in repr(task_store)


class Pages:
    """A catalogue that gives pages of names; the token is the number of the next one."""

    def __init__(self, *pages: list[str], last: str | None = None) -> None:
        self.pages, self.last = pages, last

    def list_tables(self, request: Any) -> interface.ListTablesResponse:
        at = int(request.page_token or 0)
        token = str(at + 1) if at + 1 < len(self.pages) else self.last
        return interface.ListTablesResponse(tables=self.pages[at], page_token=token)


def listed(pages: Pages) -> list[str]:
    spark: Any = None  # is not asked
    return glaive.spark.catalog(spark, pages).list_tables()


def test_a_page_without_names_is_not_the_end_of_a_listing() -> None:
    assert listed(Pages(["b"], [], [], ["a"], [])) == ["a", "b"]


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


@pytest.mark.spark
def test_tables_that_would_be_one_view_are_not_registered(
    spark: SparkSession, tmp_path: Path
) -> None:
    catalogue = connect("dir", {"root": str(tmp_path)})
    for name, value in (("Cases", 1), ("cases", 2)):
        glaive.write_dataset(pa.table({"a": [value]}), namespace_client=catalogue, table_id=[name])
    tables = glaive.spark.catalog(spark, catalogue)
    with pytest.raises(OptionError, match="'Cases' and 'cases' differ in nothing but case"):
        tables.register_views()
    assert tables.register_views(["Cases"]) == ["Cases"]
    assert [row.a for row in spark.table("cases").collect()] == [1]
    assert tables.register_views(["cases"], prefix="other_") == ["other_cases"]
    assert [row.a for row in spark.table("other_cases").collect()] == [2]


@pytest.mark.spark
@pytest.mark.spec("rel-42")
def test_names_that_java_has_no_texts_for_are_errors_of_the_family(
    spark: SparkSession, tmp_path: Path
) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")
    with pytest.raises(OptionError, match="name of the view: the character at 3 is half of"):
        glaive.spark.register_view(spark, "own\ud800", tmp_path / "t")
    place = tmp_path / "t\udcff"
    with pytest.raises(OptionError, match=r"path: the character at .* is half of"):
        glaive.spark.write(spark.range(3), place)
    glaive.write_dataset(ROWS, place)
    with pytest.raises(OptionError, match=r"path: the character at .* is half of"):
        glaive.spark.read(spark, place)


def test_spark_does_not_write_tables_whose_versions_are_managed(tmp_path: Path) -> None:
    from glaive.spark.options import with_location

    given = {
        "table": "orders",
        "namespace.root": str(tmp_path),
        "namespace.table_version_tracking_enabled": "true",
    }
    with pytest.raises(UnsupportedFeatureError, match="manages the versions"):
        with_location(given, create=True)
