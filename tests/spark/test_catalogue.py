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
from glaive.namespace import DirectoryNamespace, RestAdapter, connect
from glaive.spark.options import from_spark, with_location
from glaive.table.manifest_registers import find_table
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
    shop.read("orders").createOrReplaceTempView("shop_orders")
    assert [row[0] for row in spark.sql("SELECT sum(a) FROM shop_orders").collect()] == [3]
    assert shop.read("orders", filter="a > 1").columns == ["a"]
    with pytest.raises(DatasetNotFoundError):
        shop.read("later")


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


class Registering(DirectoryNamespace):
    """A catalogue that manages versions and lists which ones writers registered."""

    def __init__(self, root: Path) -> None:
        super().__init__(root=str(root), table_version_tracking_enabled="true")
        self.registered: list[tuple[str, int]] = []

    def create_table_version(self, request: Any) -> Any:
        answer = super().create_table_version(request)
        self.registered.append((request.id[-1], request.version))
        return answer


@pytest.mark.spark
def test_each_write_of_spark_registers_its_version_in_the_catalogue(
    spark: SparkSession, tmp_path: Path
) -> None:
    served = Registering(tmp_path / "shop")
    with RestAdapter(served, port=0) as server:
        options = {"table": "orders", "namespace.impl": "rest", "namespace.uri": server.uri}
        glaive.spark.register(spark)
        frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, word string")
        frame.write.format("lance").options(**options).mode("append").save()
        frame.write.format("lance").options(**options).mode("append").save()
        assert served.registered == [("orders", 1), ("orders", 2)]
        assert spark.read.format("lance").options(**options).load().count() == 4

        places = {"source": str(tmp_path / "rows"), "checkpointLocation": str(tmp_path / "place")}
        frame.write.parquet(places.pop("source"))
        rows = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "rows"))
        stream = rows.writeStream.format("lance").options(**options, **places)
        stream.trigger(availableNow=True).start().awaitTermination(60)
        assert served.registered[-1] == ("orders", 3)

        shop = connect("rest", {"uri": server.uri})
        spark.createDataFrame([(3, "q")], frame.schema).createOrReplaceTempView("new")
        for statement in (
            "INSERT INTO shop.orders VALUES (3, 'c')",
            "UPDATE shop.orders SET word = 'z' WHERE id = 1",
            "DELETE FROM shop.orders WHERE id = 2",
            "MERGE INTO shop.orders t USING new s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
            "ALTER TABLE shop.orders ADD COLUMN more INT",
            "OPTIMIZE shop.orders",
            "CREATE INDEX ids ON shop.orders USING btree (id)",
            "CREATE TABLE shop.fresh (a INT)",
            "INSERT INTO shop.fresh VALUES (1)",
        ):
            before = len(served.registered)
            glaive.spark.sql(spark, statement, shop=shop)
            assert len(served.registered) > before, statement
        read = glaive.spark.sql(spark, "SELECT id, word FROM shop.orders ORDER BY id", shop=shop)
        assert [tuple(row) for row in read.collect()] == [(1, "z"), (1, "z"), (1, "z"), (3, "q")]
        newest = glaive.dataset(namespace_client=shop, table_id=["orders"])
        registered = [version for table, version in served.registered if table == "orders"]
        assert registered == list(range(1, newest.version + 1))


def test_clients_that_cannot_be_connected_again_are_refused(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "orders.lance")
    client: Any = connect("dir", {"root": str(tmp_path), "table_version_tracking_enabled": "true"})
    assert find_table(client, ["orders"], None, None).portable_options is not None
    client.properties = None
    with pytest.raises(UnsupportedFeatureError, match=r"Connect with glaive\.namespace\.connect"):
        _ = find_table(client, ["orders"], None, None).portable_options


@pytest.mark.spark
def test_lists_beside_and_clones_of_a_managed_table_are_not_its_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    served, files = Registering(tmp_path / "shop"), tmp_path / "in"
    files.mkdir()
    (files / "a.csv").write_text("id,word\n1,a\n2,b\n")
    with RestAdapter(served, port=0) as server:
        shop = connect("rest", {"uri": server.uri})

        def run(statement: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in glaive.spark.sql(spark, statement, shop=shop).collect()]

        run("CREATE TABLE shop.orders (id BIGINT, word STRING)")
        for table in ("orders", "orders", "fresh", "fresh"):
            run(f"COPY INTO shop.{table} FROM '{files}' FILEFORMAT = csv")
            assert run(f"SELECT count(*) FROM shop.{table}") == [(2,)]
        options = {"table": "orders", "namespace.impl": "rest", "namespace.uri": server.uri}
        feed = spark.sql("SELECT * FROM VALUES (1L, 'c', 'd'), (3L, 'd', 'u') AS f(id, word, op)")
        glaive.spark.register(spark)
        rules = {"keys": "id", "sequence_by": "word", "delete_where": "op = 'd'"}
        feed.write.format("lance").options(**options, **rules).mode("append").save()
        rows = [(2, "b"), (3, "d")]
        assert run("SELECT * FROM shop.orders ORDER BY id") == rows
        run("CREATE TABLE shop.clone SHALLOW CLONE shop.orders")
        run(f"CREATE TABLE lance.`{tmp_path}/clone` SHALLOW CLONE shop.orders")
        for clone in ("shop.clone", f"lance.`{tmp_path}/clone`"):
            run(f"INSERT INTO {clone} VALUES (9, 'z')")
            assert run(f"SELECT * FROM {clone} ORDER BY id") == [*rows, (9, "z")]
        assert run("SELECT * FROM shop.orders ORDER BY id") == rows
    versions = {"orders": (1, 2, 3), "fresh": (1,), "clone": (3, 4)}  # a clone keeps its number
    for table, numbers in versions.items():
        assert [number for name, number in served.registered if name == table] == [*numbers]


@pytest.mark.parametrize(
    "given", ["{", "{}", '{"impl": "no.Such", "properties": {}, "table": [], "root": "ROOT"}']
)
def test_a_catalogue_that_an_option_describes_wrongly_is_an_error(
    tmp_path: Path, given: str
) -> None:
    options = {"manifest_store": given.replace("ROOT", str(tmp_path / "t"))}
    with pytest.raises(OptionError, match="manifest_store: expected a JSON object"):
        glaive.write_dataset(ROWS, tmp_path / "t", storage_options=options)
