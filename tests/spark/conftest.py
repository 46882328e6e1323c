"""One Spark session for all tests of a process: starting one takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import glaive.spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a session on two cores that tries a failed task once more."""
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
def uri(tmp_path: Path) -> str:
    """Return the path of a dataset that does not exist yet."""
    return str(tmp_path / "t.lance")
