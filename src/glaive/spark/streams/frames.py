"""The public function that reads a change feed as a frame."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glaive.spark.failures import as_glaive_errors
from glaive.spark.launch import register
from glaive.spark.options import from_spark, spark_texts
from glaive.spark.streams.options import stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_changes(  # noqa: PLR0913  # one keyword for each option
    spark: SparkSession,
    uri: str | os.PathLike[str],
    start_version: int,
    end_version: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    preimages: bool = True,
    net: bool = False,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a frame of the rows that versions inserted, updated and deleted.

    Parameters
    ----------
    start_version, end_version
        The first and the last version whose changes are read, both included; default for the
        last: the newest one at the time of this call.
    columns
        Columns of the dataset, also ``_rowid`` and other system columns; default: all.
    preimages
        Whether updated rows are also read as they were before.
    net
        The difference of the two ends, instead of the changes of every version in between.
    branch
        The branch whose versions are compared; default: the main branch.
    storage_options
        Settings of the object store.

    Returns
    -------
    DataFrame
        The columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

    Raises
    ------
    OptionError, ColumnNotFoundError, SchemaError, VersionNotFoundError
        As for ``LanceDataset.changes``, before any job runs.

    Notes
    -----
    Compares the versions in this process, which reads the manifest of each; tasks read the rows.

    Examples
    --------
    >>> changes = glaive.spark.read_changes(spark, "flights.lance", 3, columns=["carrier"])
    >>> changes.where("_change_type = 'delete'").count()
    """
    from glaive.spark.streams.reader import change_schema, open_changes

    options = spark_texts(
        {
            "columns": columns,
            "branch": branch,
            "readChangeFeed": True,
            "startingVersion": start_version,
            "endingVersion": end_version,
            "preimages": preimages,
            "deduplicationMode": "netChanges" if net else None,
            "storage": storage_options,
        }
    )
    place = os.fspath(uri)
    if "://" not in place:  # Spark's processes may have another working directory
        place = str(Path(place).expanduser().absolute())
    of_stream, others = stream_options(options | {"path": place})
    checked = from_spark(others)
    dataset = open_changes(checked, of_stream)
    change_schema(dataset, checked)
    dataset.changes(start_version, preimages=preimages, net=net)
    register(spark)
    pinned = options | {"endingVersion": str(dataset.version)}
    with as_glaive_errors():
        return spark.read.format("lance").options(**pinned).load(place)
