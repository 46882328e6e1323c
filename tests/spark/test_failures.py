"""Errors from Spark's processes are recognised in the text Spark makes of them."""

from __future__ import annotations

import pickle

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive import errors
from glaive.errors import CorruptFileError, GlaiveError, NotFoundError, SchemaError
from glaive.spark.failures import as_glaive_errors, find_glaive_error

WORKER = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to do it: Traceback (most recent call last):
  File "x.py", line 1, in write
    conform(batch)
{line}
 SQLSTATE: 38000
"""


def test_the_error_is_found_between_the_tracebacks() -> None:
    text = WORKER.format(line="glaive.errors.SchemaError: column 'a': no. Cast it")

    error = find_glaive_error(text)

    assert type(error) is SchemaError
    assert str(error) == "column 'a': no. Cast it"


def test_the_error_is_found_where_spark_leaves_the_traceback_out() -> None:
    java = "Lost task 0.0 (TID 1): org.apache.spark.api.python.PythonException: "
    for line in ("", java):
        assert (
            type(find_glaive_error(f"Failed\n{line}glaive.errors.SchemaError: no")) is SchemaError
        )


def test_errors_made_of_parts_are_restored() -> None:
    original = CorruptFileError("footer", expected="1", found="2", where="f.lance")

    error = find_glaive_error(WORKER.format(line=f"glaive.errors.CorruptFileError: {original}"))

    assert type(error) is CorruptFileError
    assert str(error) == str(original)
    assert vars(error) == vars(original)


@pytest.mark.parametrize(
    "message", [CorruptFileError("a", expected="1", found="2", where="f"), "a"]
)
def test_damage_that_a_worker_found_can_be_handed_on_to_another_process(message: object) -> None:
    error = find_glaive_error(WORKER.format(line=f"glaive.errors.CorruptFileError: {message}"))

    copied = pickle.loads(pickle.dumps(error))

    assert type(copied) is CorruptFileError
    assert str(copied).startswith(str(message))
    assert vars(copied) == vars(error)


def test_every_error_can_be_restored() -> None:
    kinds = [GlaiveError]
    for kind in kinds:
        # Others, as those of catalogues, are raised on the driver only.
        kinds += [below for below in kind.__subclasses__() if below.__module__ == errors.__name__]

    for kind in kinds:
        error = find_glaive_error(WORKER.format(line=f"glaive.errors.{kind.__name__}: why"))
        assert type(error) is kind
        assert error.args == ("why",)


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: no",
        "glaive.errors.NoSuchError: no",
        "glaive.errors.Iterable: no",
        "The value 'a: glaive.errors.SchemaError: no' cannot be cast",
    ],
)
def test_other_errors_stay_what_they_are(line: str) -> None:
    assert find_glaive_error(WORKER.format(line=line)) is None
    with pytest.raises(RuntimeError), as_glaive_errors():
        raise RuntimeError(line)


def test_the_original_is_kept_as_the_cause() -> None:
    text = WORKER.format(line="glaive.errors.NotFoundError: no version 9")

    with pytest.raises(NotFoundError) as raised, as_glaive_errors():
        raise RuntimeError(text)

    assert isinstance(raised.value.__cause__, RuntimeError)


def test_spark_shows_what_is_wrong_and_not_where_glaive_found_it(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset({"id": [1]}, uri)
    reading = spark.read.format("lance")

    for wrong in (
        lambda: reading.load(f"{uri}-no"),
        lambda: reading.option("columns", "idd").load(uri),
        lambda: reading.option("readChangeFeed", "true").load(uri).collect(),
        lambda: spark.range(1).toDF("x").write.format("lance").mode("append").save(uri),
        lambda: spark.readStream.format("lance").load(f"{uri}-no"),
    ):
        with pytest.raises(AnalysisException) as raised:
            wrong()
        text = str(raised.value)
        assert find_glaive_error(text) is not None
        assert text.count('File "') == 1, text


def test_a_small_frame_is_no_warning_outside_of_joins(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset({"id": [1, 2]}, uri)
    log = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001  # the log of Spark
    lines = spark._jvm.java.io.StringWriter()  # type: ignore[union-attr]  # noqa: SLF001  # same
    appender = log.core.appender.WriterAppender.createAppender(
        None, None, lines, "hints", False, True
    )
    appender.start()
    logger = log.LogManager.getLogger("org.apache.spark.sql.catalyst.analysis.HintErrorLogger")
    assert glaive.spark.read(spark, uri).count() == 2  # while warnings are not logged
    spark.sparkContext.setLogLevel("WARN")
    logger.addAppender(appender)
    try:
        assert glaive.spark.read(spark, uri).count() == 2
        assert glaive.spark.read(spark, uri).hint("no_such_hint").count() == 2
    finally:
        logger.get().removeAppender("hints")
        spark.sparkContext.setLogLevel("ERROR")
    assert "no_such_hint" in lines.toString().lower()
    assert "broadcast" not in lines.toString()
