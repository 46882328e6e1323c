"""Starting sessions, and what is said when that cannot work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect import proto

import glaive.spark
from glaive.errors import MissingDependencyError, OptionError
from glaive.spark.launch import SECRETS_IN_PLANS


def test_master_and_remote_exclude_each_other() -> None:
    with pytest.raises(OptionError, match="either master or remote"):
        glaive.spark.session(master="local[2]", remote="sc://host")


def test_without_pyspark_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(MissingDependencyError, match=r"pip install .*glaive\[spark\]"):
        glaive.spark.session()


def test_finding_the_source_is_cheap() -> None:
    heavy = {"numba", "pandas", "obstore", "google.protobuf", "pyarrow.parquet"}
    script = f"import sys, pyspark_glaive; print(*({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "\n"


@pytest.mark.spark
def test_a_running_session_is_found_again(spark: SparkSession) -> None:
    assert glaive.spark.session() is spark


@pytest.mark.spark
def test_a_local_session_listens_on_the_loopback_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert os.environ["PYSPARK_PYTHON"]


@pytest.mark.spark
def test_the_source_has_two_names(spark: SparkSession) -> None:
    for name in ("lance", "glaive"):
        with pytest.raises(Exception, match="has no path"):
            spark.read.format(name).load()


@pytest.mark.spark
@pytest.mark.spec("rel-27", "sec-16")
def test_plans_do_not_show_options_of_stores(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a temporary view shows them, in the web pages and the event log of Spark, too."""
    uri = str(tmp_path / "t")
    glaive.write_dataset({"id": [1]}, uri)
    keys = {
        "azure_storage_account_key": "MARKED-1",
        "azure_storage_sas_key": "sig=MARKED-2",
        "aws_access_key_id": "MARKED-3",
        "google_service_account_key": "MARKED-4",
    }
    bases = {"s3://b/x": {"azure_storage_account_key": "MARKED-5"}}
    frame = glaive.spark.read(spark, uri, storage_options=keys, base_store_params=bases)
    given = {f"storage.{key}": text for key, text in keys.items()}
    given |= {"base_store_params": json.dumps(bases), "path": uri, "columns": "id"}
    given["namespace.storage.azure_storage_account_key"] = "MARKED-7"
    given["namespace.headers.authorization"] = "MARKED-8"
    given["url"] = "jdbc:x?pwd=MARKED-6"  # Spark's own rule for the options of any source
    pairs = ", ".join(f"`{key}` '{text}'" for key, text in given.items())
    view = f"CREATE TEMPORARY VIEW marked USING lance OPTIONS ({pairs})"
    plans = [
        row[0]
        for mode in ("FORMATTED", "EXTENDED")
        for row in spark.sql(f"EXPLAIN {mode} {view}").collect()
    ]
    assert "columns" in plans[0]
    # What Spark does not show by itself stays hidden.
    other = "CREATE TEMPORARY VIEW other USING jdbc OPTIONS (url 'MARKED-6', dbtable 'rows')"
    plans.append(spark.sql(f"EXPLAIN EXTENDED {other}").collect()[0][0])
    assert "dbtable" in plans[-1]
    frame.explain("formatted")
    assert "MARKED" not in "".join([*plans, capsys.readouterr().out])


@pytest.mark.spark
@pytest.mark.spec("rel-27", "sec-16")
@pytest.mark.parametrize(
    "uri",
    [
        "http://me:MARKED@host/t.lance",
        "https://MARKED@host/t.lance",
        "https://host/t.lance?X-Amz-Expires=1&X-Amz-Signature=MARKED&sig=MARKED",
    ],
)
def test_plans_do_not_show_passwords_and_keys_of_urls(spark: SparkSession, uri: str) -> None:
    """As they show the paths of views, and of writes."""
    view = f"CREATE TEMPORARY VIEW marked USING lance OPTIONS (path '{uri}', columns 'id')"
    for mode in ("FORMATTED", "EXTENDED"):
        (row,) = spark.sql(f"EXPLAIN {mode} {view}").collect()
        assert "columns" in row[0]
        assert "host/t.lance" in row[0]
        assert "MARKED" not in row[0]


KEYS = [
    "plain",
    "a\\",
    "\\",
    "'",
    '"',
    "\\'",
    "\\\\'",
    "two\nlines",
    "x\"} '",
    "ü€",
    "(",
    "a" * 9000,
]
"""Values of options that are hard to find the end of."""


@pytest.mark.spec("rel-27", "sec-16")
@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_requests_are_shown_without_options_of_stores(key: str) -> None:
    """As Spark Connect shows them: as the text of a message, in which it replaces what matches."""
    marked = f"MARKED{key}MARKED"
    source = proto.Read.DataSource(format="lance", paths=["/t"])
    sql = "CREATE VIEW v USING lance OPTIONS (columns 'id'"
    names = ("storage.aws_secret_access_key", "Storage.key", "base_store_params", "namespace.x.y")
    for name in names:
        source.options[name] = marked
        for quote in ("'", '"'):
            escaped = marked.replace("\\", "\\\\").replace(quote, "\\" + quote)
            text = f"{quote}{escaped}{quote}"
            sql += f", {name} {text}, '{name}' {text}, `{name}` = {text}, \n{name}={text}"
    source.options["columns"] = "id"
    read = proto.Relation(read=proto.Read(data_source=source))
    command = proto.Relation(sql=proto.SQL(query=f"{sql}, path '/t')"))
    for plan, rest in ((read, 'value: "id"'), (command, "path \\'/t\\')")):
        shown = re.sub(SECRETS_IN_PLANS, "***", str(plan))
        assert "MARKED" not in shown
        assert rest in shown
        assert "columns" in shown
    # A text that is cut off, as Spark does with long ones, has no end of its value.
    cut = re.sub(SECRETS_IN_PLANS, "***", str(command)[: str(command).index("MARKED") + 3] + '"')
    assert "MAR" not in cut


@pytest.mark.spec("rel-27", "sec-16")
@pytest.mark.parametrize("rest", ["", "?sig=MARKED", "?a=b&X-Amz-Signature=MARKED"])
def test_requests_are_shown_without_passwords_and_keys_of_urls(rest: str) -> None:
    uri = f"http://me:MARKED@host/t.lance{rest}"
    read = proto.Relation(
        read=proto.Read(data_source=proto.Read.DataSource(format="lance", paths=[uri]))
    )
    command = proto.Relation(sql=proto.SQL(query=f"select * from lance.`{uri}` where id = 1"))
    for plan in (read, command):
        shown = re.sub(SECRETS_IN_PLANS, "***", str(plan))
        assert "MARKED" not in shown
        assert "@host/t.lance" in shown


def test_other_texts_are_shown_as_they_are() -> None:
    for text in (
        r"""sql: "select storage.a, base_store_params from storage.b where x = \'y\'" """,
        'options {\n  key: "columns"\n  value: "storage.a"\n}',
        "select 'storage.a' as b, \"x\"",
        "Filter (isnotnull(key#12L) AND (key#12L = 3))",
        "BatchScan lance[id#1, token#2] http://host:8080/t.lance?versionId=3",
    ):
        assert re.sub(SECRETS_IN_PLANS, "***", text) == text


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", ["storage.", "namespace.a-", "://", "#a", "x://a:"])
def test_long_names_of_columns_take_no_time(name: str) -> None:
    """Plans show them, and a stranger may have chosen them."""
    started = time.process_time()
    re.sub(SECRETS_IN_PLANS, "***", name * (100_000 // len(name)))
    assert time.process_time() - started < 5


@pytest.mark.spark
def test_a_running_session_keeps_its_settings(spark: SparkSession) -> None:
    own = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        glaive.spark.session("another name", **{"spark.sql.shuffle.partitions": 2})
        found = spark.sql("select cast(timestamp_seconds(0) as string) as t").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", own)

    assert found is not None
    assert found.t == "1969-12-31 19:00:00"
    assert own == "UTC"


def test_only_a_local_session_names_the_interpreter_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark runs the source with it, also on machines that have Python elsewhere."""
    script = """
import os, sys, glaive.spark
from pyspark.sql import SparkSession

def refuse(builder):
    raise RuntimeError("nothing is started")

SparkSession.Builder.getOrCreate = refuse
try:
    glaive.spark.session(master="spark://127.0.0.1:1", **{"spark.pyspark.python": "/elsewhere"})
except RuntimeError:
    pass
print(os.environ["PYSPARK_PYTHON"], os.environ.get("PYSPARK_DRIVER_PYTHON"))
"""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "/elsewhere None\n"


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("is_whole", [False, True], ids=["package", "whole Spark"])
def test_a_spark_above_the_working_directory_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """PySpark looks there first, and a command may be called within a stranger's folder."""
    spark, strange = tmp_path / "spark", tmp_path / "strange"
    for name in ("bin", "jars", "data"):
        (strange / name).mkdir(parents=True)
    (strange / "bin" / "spark-submit").touch()
    if is_whole:  # the module is in the folder python, and the rest beside it
        modules = spark / "python" / "pyspark"
        modules.mkdir(parents=True)
        package = Path(pyspark.__file__).parent
        for part in package.iterdir():
            at = spark if part.name in ("bin", "jars") else modules
            (at / part.name).symlink_to(part)
        monkeypatch.syspath_prepend(modules.parent)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    script = """
import glaive.spark
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

def refuse(builder):
    raise RuntimeError("nothing is started")

SparkSession.Builder.getOrCreate = refuse
try:
    glaive.spark.session(master="local[1]")
except RuntimeError:
    pass
print(_find_spark_home())
"""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=strange / "data",
        capture_output=True,
        text=True,
        check=True,
    )

    home = Path(done.stdout.strip())
    assert home == spark if is_whole else not home.is_relative_to(tmp_path)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("where", "seen"), [("program", None), ("data", "1")])
def test_workers_look_for_modules_in_the_working_directory_if_the_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, seen: str | None
) -> None:
    """They have the environment in which Spark is started."""
    script = """
import os
import glaive.spark
from pyspark.sql import SparkSession

def refuse(builder):
    print(os.environ.get("PYTHONSAFEPATH"))
    raise RuntimeError("nothing is started")

SparkSession.Builder.getOrCreate = refuse
try:
    glaive.spark.session(master="local[1]")
except RuntimeError:
    print(os.environ.get("PYTHONSAFEPATH"))
"""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    for name in ("program", "data"):
        (tmp_path / name).mkdir()
    program = tmp_path / "program" / "main.py"
    program.write_text(script)
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path / where, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == [str(seen), "None"]


def test_executors_keep_compiled_kernels_where_the_driver_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = """
import glaive.spark
from pyspark.sql import SparkSession

def refuse(builder):
    raise RuntimeError("nothing is started")

given = {}
with_one = SparkSession.Builder.config
def config(builder, key=None, value=None, **more):
    given[key] = value
    return with_one(builder, key, value, **more)

SparkSession.Builder.config, SparkSession.Builder.getOrCreate = config, refuse
try:
    glaive.spark.session(master="spark://127.0.0.1:1")
except RuntimeError:
    pass
print(given.get("spark.executorEnv.GLAIVE_KERNEL_CACHE"))
"""
    monkeypatch.setenv("GLAIVE_KERNEL_CACHE", "/kept")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "/kept\n"


@pytest.mark.spark
@pytest.mark.spec("rel-27")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="command lines are elsewhere")
def test_secret_settings_are_in_no_command_line(tmp_path: Path) -> None:
    """Which all users of a machine see."""
    script = tmp_path / "script.py"
    script.write_text("""
import os
from pathlib import Path
import glaive.spark

secret = {"spark.hadoop.fs.s3a.secret.key": "MARKED", "spark.driver.memory": "600m"}
session = glaive.spark.session("x", "local[1]", **secret)
lines = []
for one in Path("/proc").glob("[0-9]*"):
    try:
        parent = (one / "stat").read_text().rpartition(")")[2].split()[1]
        lines += [(one / "cmdline").read_text()] if int(parent) == os.getpid() else []
    except OSError:
        pass
hadoop = session.sparkContext._jsc.hadoopConfiguration()
print("spark.driver.memory=600m" in "".join(lines), "MARKED" in "".join(lines))
print(hadoop.get("fs.s3a.secret.key"), session.conf.get("spark.sql.session.timeZone"))
session.stop()
""")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False", "MARKED", "UTC"], done.stderr[-2000:]
