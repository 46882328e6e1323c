"""Delta and Iceberg tables that loads with the workers of Spark follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.ingestion.test_followed_tables import DeltaLake, IcebergLake, in_order, loaded, rows

import glaive
import glaive.spark
from glaive.errors import OptionError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
def test_a_converted_table_follows_its_source(
    spark: SparkSession, tmp_path: Path, kind: Any
) -> None:
    uri, lake = tmp_path / "t.lance", kind(tmp_path)
    for number in range(3):
        lake.append(rows(number, number + 10))
    glaive.spark.ingest(spark, lake.place, uri, format=lake.format)
    assert loaded(uri) == in_order(lake.rows())
    lake.append(rows(3))
    how = {"format": lake.format, "task_bytes": 1}
    assert glaive.spark.load(spark, lake.place, uri, **how).rows == 1
    lake.delete("n < 3")
    lake.append(rows(10, value="b"))
    lake.delete("n = 10 and v = 'a'")
    with pytest.raises(OptionError, match="merge_keys="):
        glaive.spark.load(spark, lake.place, uri, **how)
    glaive.spark.load(spark, lake.place, uri, merge_keys="n", **how)
    assert loaded(uri) == in_order(lake.rows())
    assert glaive.spark.load(spark, lake.place, uri, **how).files == 0


def test_tasks_of_an_ingest_number_their_rows_apart(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.csv").write_text("n\n" + "7\n" * 50)
    uri = tmp_path / "t.lance"
    columns = "id BIGINT GENERATED ALWAYS AS IDENTITY, n BIGINT"
    glaive.spark.sql(spark, f"CREATE TABLE lance.`{uri}` ({columns})")
    glaive.spark.ingest(spark, tmp_path / "in", uri, mode="append", task_bytes=1)
    ids = glaive.dataset(uri).to_table()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == 200


def test_copy_into_follows_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    uri, lake = tmp_path / "t.lance", DeltaLake(tmp_path)
    statement = f"COPY INTO lance.`{uri}` FROM '{lake.place}' FILEFORMAT = DELTA"
    for number in range(3):
        lake.append(rows(number))
        assert glaive.spark.sql(spark, statement).first().num_inserted_rows == 1
    assert loaded(uri) == in_order(lake.rows())


def test_a_table_of_a_catalogue_is_no_path(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyiceberg.catalog

    monkeypatch.setenv("PYICEBERG_CATALOG__C__URI", f"sqlite:///{tmp_path}/c.db")
    config = pyiceberg.catalog._ENV_CONFIG  # noqa: SLF001  # read once, at the import
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", type(config)())
    lake = IcebergLake(tmp_path)
    lake.append(rows(1))
    options = {"catalog": "c"}
    uri = tmp_path / "t.lance"
    glaive.spark.load(spark, "db.t", uri, format="iceberg", reader_options=options)
    lake.append(rows(2))
    assert glaive.spark.load(spark, "db.t", uri, format="iceberg", reader_options=options).rows == 1
    lake.catalog.close()
