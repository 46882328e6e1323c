"""One Spark session for all tests of a process: starting one takes ten seconds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import glaive.spark

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def start_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder where Spark starts: its relative paths count from there."""
    return tmp_path_factory.mktemp("start")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, start_folder: Path) -> Iterator[SparkSession]:
    """Start a session on two cores that tries a failed task once more."""
    with chdir(start_folder), pytest.MonkeyPatch.context() as patch:
        # Workers import functions of tests by name.
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        started = glaive.spark.session(
            "glaive tests",
            "local[2,2]",
            **{
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.log.level": "ERROR",
            },
        )
    yield started
    started.stop()


@pytest.fixture
def in_start_folder(
    spark: SparkSession, start_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Work in the empty folder where Spark started, as a program of its own would."""
    monkeypatch.chdir(start_folder)
    yield
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
    for path in start_folder.iterdir():
        shutil.rmtree(path)


@pytest.fixture
def unstopped(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the session when a command stops Spark at its end."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Return the path of a dataset that does not exist yet."""
    return str(tmp_path / "t.lance")
