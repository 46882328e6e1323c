"""Files of other formats, ingested with the workers of a Spark cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from glaive.dataclass import dataclass
from glaive.format.fragment import unpacked_fragments
from glaive.ingestion.job import ingest as ingest_files
from glaive.ingestion.sources import Piece, SourceFormat
from glaive.ingestion.task import IngestedPieces, IngestResult, IngestTask
from glaive.options import TypedDict, shows
from glaive.spark.failures import naming_job
from glaive.spark.options import absolute
from glaive.spark.runner import SparkRunner
from glaive.spark.writer import refuse_missing_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from glaive.dataset.version import OpenDataset
    from glaive.ingestion import DriftRule, IngestMode
    from glaive.ingestion.job import Progress
    from glaive.ingestion.task import OnViolation


class IngestKeywords(TypedDict, total=False):
    """Options that :func:`glaive.ingest` and :func:`glaive.spark.ingest` share."""

    format: str | None
    mode: IngestMode
    schema: pa.Schema | str | None
    vectors: Sequence[str]
    schema_drift: DriftRule
    merge_keys: str | Sequence[str] | None
    once: bool
    job_id: str | None
    bad_records: str | os.PathLike[str] | None
    expect: str | Mapping[str, str] | None
    on_violation: OnViolation
    storage_options: Mapping[str, str] | None
    source_options: Mapping[str, str] | None
    reader_options: Mapping[str, object] | None
    write_options: Mapping[str, Any] | None
    task_bytes: int
    progress: Progress | None


@shows(IngestKeywords, ingest_files)
def ingest(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    uri: str | os.PathLike[str],
    **keywords: Unpack[IngestKeywords],
) -> IngestResult:
    """Write the rows of files as one new version of a dataset, with tasks on a cluster.

    Workers read the files and write the data files, so rows bypass the driver and the JVM. For a
    merge, further tasks look for the keys in the dataset, a million at a time. They send sets of
    rows to the driver: up to 4 bytes for each replaced row.

    Parameters
    ----------
    spark
        The session.
    source
        Files, folders or patterns: paths or URIs that the workers can also read.
    uri
        Path or URI of the dataset. Workers need access to it.
    **keywords
        Options of :func:`glaive.ingest`.

    Raises
    ------
    GlaiveError
        See :func:`glaive.ingest`. Also raised if workers lack the paths of the driver, or have
        another version of glaive.
    JobError
        The cluster lost processes of the job. The dataset is unchanged.
    """
    names = [source] if isinstance(source, (str, os.PathLike)) else source
    quarantine = keywords.get("bad_records")
    if quarantine is not None:
        keywords["bad_records"] = absolute(quarantine)
    written = keywords.get("write_options") or {}
    keywords["write_options"] = {"compression": "balanced"} | dict(written)
    runner, place, job = SparkRunner(spark), absolute(uri), keywords.get("job_id")
    with naming_job(job or "ingest", place, named=job is not None):
        in_catalogue = "catalog" in (keywords.get("reader_options") or {})
        return ingest_files(
            list(names) if in_catalogue else [absolute(name) for name in names],
            place,
            driver=partial(_run, runner),
            merge_runner=runner,
            **keywords,
        )


@shows(IngestKeywords, ingest_files, leave_out=["mode", "once"])
def load(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    uri: str | os.PathLike[str],
    **keywords: Unpack[IngestKeywords],
) -> IngestResult:
    """Add the rows of files that no load has read yet, with tasks on a cluster.

    The dataset remembers the files. If the driver is killed, run the load again. If several loads
    run at the same time, each file is read by one of them.

    Parameters
    ----------
    spark
        The session.
    source
        Files, folders or patterns: paths or URIs that the workers can also read.
    uri
        Path or URI of the dataset, which the first load creates. With ``merge_keys``, rows are
        merged, otherwise appended.
    **keywords
        Options of :func:`glaive.ingest`.

    Raises
    ------
    GlaiveError
        See :func:`glaive.ingest` with ``once``.

    Examples
    --------
    >>> glaive.spark.load(spark, "s3://in/orders/", "s3://out/orders.lance", schema_drift="add")
    """
    keywords.setdefault("mode", "merge" if keywords.get("merge_keys") else "append")
    keywords["once"] = True
    return ingest(spark, source, uri, **keywords)


@dataclass(frozen=True, slots=True)
class IngestPieces:
    """The pieces of files of one task of an ingest; can be pickled."""

    pieces: tuple[Piece, ...]
    source_format: SourceFormat | None = None  # if it differs from the shared one
    number: int | None = None  # of the task, for identity columns

    def execute(self, dataset: OpenDataset | None, shared: IngestTask) -> IngestedPieces:
        """Read the pieces and write their rows; ``shared`` holds what all pieces share."""
        source_format = self.source_format or shared.source_format
        write = shared.write.for_task(self.number)
        own = replace(shared, pieces=self.pieces, source_format=source_format, write=write)
        return own.execute(dataset)


def divided(tasks: Sequence[IngestTask]) -> tuple[list[IngestPieces], IngestTask]:
    """Divide at least one task of an ingest into its own part and the part that all share."""
    first = tasks[0]
    own = [
        IngestPieces(
            task.pieces,
            None if task.source_format is first.source_format else task.source_format,
            None if task.write.rules is None else task.write.rules.task,
        )
        for task in tasks
    ]
    return own, replace(first, pieces=())


def _run(runner: SparkRunner, tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
    if not tasks:
        return
    results: list[IngestedPieces] = runner.run(None, *divided(tasks))
    for task, result in zip(tasks, results, strict=True):
        refuse_missing_files(
            task.write, unpacked_fragments(result.fragments, "the result of a task")
        )
    yield from enumerate(results)
