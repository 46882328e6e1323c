"""Values of blobs outside of a dataset: each way that Spark reads them can be told that it may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.strangers import CONTENT, blob_in

import glaive
import glaive.spark
from glaive.errors import AccessError, OptionError
from glaive.namespace import connect
from glaive.pipeline import load, run
from glaive.spark import LanceTable
from glaive.spark.options import from_spark, spark_texts

NAME = "allow_external_blobs"


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """The folder of the only blob of ``place``."""
    return tmp_path / "far"


@pytest.fixture
def place(tmp_path: Path, far: Path) -> str:
    where = str(tmp_path / "d.lance")
    blob_in(far, where)
    return where


def by_read(spark: SparkSession, place: str, allowed: dict[str, Any]) -> list[bytes]:
    frame = glaive.spark.read(spark, place, blobs="bytes", **allowed)
    return [bytes(row.b) for row in frame.collect()]


def by_view(spark: SparkSession, place: str, allowed: dict[str, Any]) -> list[bytes]:
    glaive.spark.register_view(spark, "elsewhere", place, blobs="bytes", **allowed)
    return [bytes(row.b) for row in spark.sql("SELECT b FROM elsewhere").collect()]


def by_catalogue(spark: SparkSession, place: str, allowed: dict[str, Any]) -> list[bytes]:
    catalogue = glaive.spark.catalog(spark, connect("dir", {"root": str(Path(place).parent)}))
    catalogue.read("d", blobs="bytes", **allowed).createOrReplaceTempView("of_d")
    return [bytes(row.b) for row in spark.sql("SELECT b FROM of_d").collect()]


def by_query(spark: SparkSession, place: str, allowed: dict[str, Any]) -> list[bytes]:
    table = {"uri": place, "blobs": "bytes", **allowed}
    return [bytes(row.b) for row in glaive.spark.sql(spark, "SELECT b FROM t", t=table).collect()]


def by_export(spark: SparkSession, place: str, allowed: dict[str, Any]) -> list[bytes]:
    out = str(Path(place).parent / "out")
    LanceTable.forPath(spark, place, **allowed).export("parquet", out, "overwrite")
    return [bytes(value) for value in pq.read_table(out)["b"].to_pylist()]


def by_pipeline(spark: SparkSession, place: str, allowed: dict[str, Any]) -> list[bytes]:
    folder = Path(place).parent
    given = "".join(f"{key} = {spark_texts({key: allowed[key]})[key]}\n" for key in allowed)
    steps = '[steps.out]\nkind = "export"\nsource = "d"\npath = "files"\n'
    (folder / "p.toml").write_text(f'[datasets]\nd = "d.lance"\n[storage]\n{given}{steps}')
    run(load(folder / "p.toml"), lambda: spark)
    return [bytes(value) for value in pq.read_table(folder / "files")["b"].to_pylist()]


@pytest.mark.nightly(reason="every way to read on Spark")
@pytest.mark.sampled(every=8)
@pytest.mark.spark
@pytest.mark.parametrize(
    "front",
    [by_read, by_view, by_catalogue, by_query, by_export, by_pipeline],
    ids=lambda front: front.__name__,
)
def test_every_way_to_read_values_elsewhere_can_be_told_that_it_may(
    spark: SparkSession,
    place: str,
    far: Path,
    front: Callable[[SparkSession, str, dict[str, Any]], list[bytes]],
) -> None:
    with pytest.raises(Exception, match=r"storage option, in JSON") as refused:
        front(spark, place, {})
    assert NAME in str(refused.value)
    assert front(spark, place, {NAME: [str(far)]}) == [CONTENT]


def test_places_are_those_of_the_process_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = from_spark({"path": "t", **spark_texts({NAME: ["media", "s3://b/x"]})})
    assert dict(options.storage) == {NAME: f'["{tmp_path}/media", "s3://b/x"]'}
    bases = {"base": {"k": "v"}}
    options = from_spark({"path": "t", **spark_texts({"base_store_params": bases})})
    assert dict(options.storage) == {"base_store_params": f'{{"{tmp_path}/base": {{"k": "v"}}}}'}


def test_a_permission_is_given_once(place: str) -> None:
    both = {"path": place, NAME: "true", f"storage.{NAME}": "false"}
    with pytest.raises(OptionError, match="also given under another name"):
        from_spark(both)
    with pytest.raises(OptionError, match=f"option {NAME}: expected true, false, a place"):
        from_spark({"path": place, NAME: "ture"})


@pytest.mark.spark
def test_the_rows_of_a_table_are_changed_without_reading_their_values(
    spark: SparkSession, place: str
) -> None:
    table = LanceTable.forPath(spark, place)
    table.update(set={"id": "id + 1"})
    with pytest.raises(AccessError):
        glaive.dataset(place).read_blobs("b", indices=[0])
    told = glaive.dataset(place, allow_external_blobs=True)
    assert told.to_table(["id"])["id"].to_pylist() == [2]
    ((_, value),) = told.read_blobs("b", indices=[0])
    assert value == CONTENT
