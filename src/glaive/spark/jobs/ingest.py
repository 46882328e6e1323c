"""Ingest files with the workers of a Spark cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from glaive.dataclass import dataclass
from glaive.format.fragment import unpacked_fragments
from glaive.ingestion.job import ingest as ingest_files
from glaive.ingestion.sources import Piece
from glaive.ingestion.task import IngestedPieces, IngestResult, IngestTask
from glaive.spark.failures import naming_job
from glaive.spark.jobs.runner import SparkRunner
from glaive.spark.options import absolute
from glaive.spark.writer import refuse_missing_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glaive.dataset.tasks import FragmentRange
    from glaive.dataset.version import OpenDataset, OpenedVersion
    from glaive.ingestion.merging import MergeDivision


def ingest(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    uri: str | os.PathLike[str],
    **keywords: Any,
) -> IngestResult:
    """Write the rows of files as one new version of a dataset, with tasks on a cluster.

    Rows neither pass through the driver nor through the JVM: workers read the files and write the
    data files. To merge them, other tasks look for their keys in the dataset, a million at a time;
    what the driver gets are sets of rows, of up to 4 bytes for each row that is replaced.

    Parameters
    ----------
    spark
        The session.
    source
        Files, folders or patterns, at places that the workers reach, too.
    uri
        The dataset, likewise.
    **keywords
        As for :func:`glaive.ingest`; its ``driver`` is this cluster.

    Raises
    ------
    GlaiveError
        As :func:`glaive.ingest`; also if workers do not share the paths of the driver, or have
        another version of glaive.
    JobError
        The cluster lost processes of the job; nothing was committed.
    """
    names = [source] if isinstance(source, (str, os.PathLike)) else source
    if keywords.get("bad_records") is not None:
        keywords["bad_records"] = absolute(keywords["bad_records"])
    written = keywords.get("write_options") or {}
    keywords["write_options"] = {"compression": "balanced"} | dict(written)
    runner = SparkRunner(spark)
    job_id = keywords.get("job_id")
    return ingest_files(
        [absolute(name) for name in names],
        absolute(uri),
        driver=partial(_run, runner),
        merge_runner=_MergeRunner(runner, job_id or "merge", job_id is not None),
        **keywords,
    )


@dataclass(frozen=True, slots=True)
class _MergeRunner:
    """Runs the tasks of a merge; says which job it was if the cluster lost it."""

    runner: SparkRunner
    job_id: str
    named: bool

    @property
    def division(self) -> MergeDivision:
        from glaive.ingestion.merging import MergeDivision

        return MergeDivision()

    @property
    def parallelism(self) -> int:
        return self.runner.parallelism

    def parts(self, dataset: OpenedVersion) -> list[FragmentRange]:
        return self.runner.parts(dataset)

    def run(
        self, dataset: OpenedVersion, tasks: Sequence[Any], shared: object | None = None
    ) -> list[Any]:
        with naming_job(self.job_id, dataset.uri, named=self.named):
            return self.runner.run(dataset, tasks, shared)


@dataclass(frozen=True, slots=True)
class IngestPieces:
    """What the tasks of an ingest do not share: the pieces of files; can be pickled."""

    pieces: tuple[Piece, ...]

    def execute(self, dataset: OpenDataset | None, shared: IngestTask) -> IngestedPieces:
        """Read and write; ``shared`` is the task without pieces."""
        return replace(shared, pieces=self.pieces).execute(dataset)


def divided(tasks: Sequence[IngestTask]) -> tuple[list[IngestPieces], IngestTask]:
    """What each task of an ingest has of its own, and what all share; there is at least one."""
    return [IngestPieces(task.pieces) for task in tasks], replace(tasks[0], pieces=())


def _run(runner: SparkRunner, tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
    if not tasks:
        return
    first = tasks[0]
    named = first.journal is not None
    with naming_job(str(first.job_id), first.write.store.uri, named=named):
        results: list[IngestedPieces] = runner.run(None, *divided(tasks))
    for task, result in zip(tasks, results, strict=True):
        refuse_missing_files(
            task.write, unpacked_fragments(result.fragments, "the result of a task")
        )
    yield from enumerate(results)
