"""Starting sessions, and what is said when that cannot work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

import glaive.spark
from glaive.errors import MissingDependencyError, OptionError


def test_master_and_remote_exclude_each_other() -> None:
    with pytest.raises(OptionError, match="either master or remote"):
        glaive.spark.session("local[2]", remote="sc://host")


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
