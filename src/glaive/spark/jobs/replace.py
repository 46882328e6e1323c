"""Replace the rows that match a filter: tasks write the new rows, and look for the old ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.dataset.tasks import JOB
from glaive.format.fragment import unpacked_fragments
from glaive.spark.api import is_connect
from glaive.spark.cast import unscaled_frame
from glaive.spark.frame import open_dataset
from glaive.spark.jobs.runner import RowTask, SparkRunner
from glaive.spark.writer import (
    WriteJob,
    commit_replacement,
    plan_job,
    refuse_missing_files,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from glaive.dataset.dataset import LanceDataset
    from glaive.spark.options import Options


@dataclass(frozen=True, slots=True)
class WriteRows(RowTask):
    """Write the rows of one partition of a frame to data files; can be pickled."""

    job: WriteJob

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> tuple[bytes, ...]:
        """New fragments, uncommitted."""
        return write_rows(self.job, rows)


def replace_rows(frame: DataFrame, options: Options, predicate: str) -> None:
    """Commit the rows of a frame in place of those that match a filter, as one version.

    Parameters
    ----------
    frame
        Its rows have to match the filter.
    options
        Of the write, with the filter.

    Raises
    ------
    SchemaError
        A row does not match, or the columns are not those of the dataset.
    CommitConflictError
        Another writer changed rows that are replaced; nothing was committed.

    Notes
    -----
    Rows that others append meanwhile stay. Neither rows nor values pass through this process.
    """
    frame, decimals = unscaled_frame(frame, has_jvm=not is_connect(frame.sparkSession))
    job = plan_job(frame.schema, replace(options, decimals=decimals), overwrite=True)
    dataset = open_dataset(replace(options, version=job.plan.read_version))
    runner = SparkRunner(frame.sparkSession)
    written = runner.run_on_rows(dataset.opened, frame, WriteRows(job))
    packed = (data for part in written for data in part)
    fragments = unpacked_fragments(packed, "the result of a task")
    refuse_missing_files(job.plan, fragments)
    commit_replacement(dataset.opened, job.plan, predicate, fragments, once=JOB, runner=runner)
