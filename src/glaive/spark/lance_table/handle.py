"""What all methods of ``LanceTable`` need: the session, the dataset, frames of its versions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from glaive.spark.api import CASE_SENSITIVE, is_set, read
from glaive.spark.options import from_spark
from glaive.spark.types import refuse_same_without_case
from glaive.table.refs import branch_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset


class TableHandle:
    """A dataset, and the session in which its tasks run.

    Every method works on the newest version at the time of its call.
    """

    def __init__(self, spark: SparkSession, dataset: LanceDataset) -> None:
        self._spark = spark
        self._dataset = dataset
        self._name: str | None = None

    def alias(self, name: str) -> Self:
        """The same table under a name, by which conditions of merges refer to its columns."""
        renamed = type(self)(self._spark, self._dataset)
        renamed._name = name  # noqa: SLF001  # of this class
        return renamed

    def _latest(self) -> LanceDataset:
        """The dataset at its newest version. One or two requests."""
        self._dataset.checkout_latest()
        return self._dataset

    def _refuse_same_names(self, method: str, names: Iterable[str]) -> None:
        """Refuse new columns that differ in case only, where the session takes them for one."""
        if not is_set(self._spark, CASE_SENSITIVE):
            refuse_same_without_case(names, self._latest().lance_schema.names, method)

    def _frame(self, columns: Sequence[str] | None = None, **options: Any) -> DataFrame:
        """A frame of the version that the dataset is at."""
        dataset = self._dataset
        storage = dataset.storage_options
        return read(
            self._spark,
            dataset.uri,
            columns=columns,
            version=dataset.version,
            branch=branch_of(dataset.manifest),
            storage_options=None if storage is None else dict(storage),
            **options,
        )

    def _described(self, table: pa.Table) -> DataFrame:
        """A frame of facts about the dataset."""
        return self._spark.createDataFrame(table)


def located(uri: str | os.PathLike[str]) -> str:
    """The URI as all processes of a cluster read it: local paths are absolute.

    Raises
    ------
    OptionError
        Processes of a cluster cannot share such a location.
    """
    return from_spark({"path": os.fspath(uri)}).uri
