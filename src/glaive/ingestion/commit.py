"""Commit what the tasks of an ingest wrote: bad records first, then the rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from glaive.dataset.tasks import JOB
from glaive.dataset.writing.commit import commit_plan
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList, unpacked_fragments
from glaive.ingestion.ingested import IngestedPieces, IngestResult
from glaive.ingestion.plan import IngestPlan
from glaive.table.load import find_transaction

__all__ = [
    "acknowledged",
    "commit_ingest",
    "committing",
    "put_aside",
    "put_aside_all",
    "written_fragments",
]

LOOK_BACK: Final = 256
"""Newest versions of bad records among which those of an earlier run are looked for."""


def commit_ingest(
    plan: IngestPlan, results: Sequence[IngestedPieces], *, files: int
) -> IngestResult:
    """Commit what tasks wrote: bad records first, then the rows; each once for the job."""
    put_aside_all(plan, results)
    fragments = written_fragments(results)
    version = plan.write.read_version
    if fragments or not plan.write.appends:
        with committing(plan, version):
            version = commit_plan(plan.write, fragments, once=JOB).version
    return acknowledged(plan, results, version=version, rows=fragments.row_count, files=files)


def committing(plan: IngestPlan, since: int) -> AbstractContextManager[None]:
    """What a job with an id does around its commit; see :meth:`Journal.committing`."""
    return nullcontext() if plan.journal is None else plan.journal.committing(since)


def written_fragments(results: Sequence[IngestedPieces]) -> FragmentList:
    """The fragments of all tasks, in the order of the rows."""
    packed = (data for result in results for data in result.fragments)
    return unpacked_fragments(packed, "the result of a task")


def put_aside_all(plan: IngestPlan, results: Sequence[IngestedPieces]) -> None:
    """Commit the bad records of all tasks."""
    bad = [data for result in results for data in result.bad_fragments]
    put_aside(plan, unpacked_fragments(bad, "the result of a task"))


def put_aside(plan: IngestPlan, fragments: Sequence[Fragment]) -> None:
    """Commit bad records, unless an earlier run of the job did before it was stopped."""
    aside = plan.bad_records
    if aside is None or not fragments:
        return
    if plan.journal is not None and aside.read_version:
        since = max(0, aside.read_version - LOOK_BACK)
        if find_transaction(aside.store, since, JOB, plan.job_id) is not None:
            return
    commit_plan(aside, fragments, once=JOB)


def acknowledged(
    plan: IngestPlan, results: Sequence[IngestedPieces], *, version: int, rows: int, files: int
) -> IngestResult:
    """Write the end of the job down, and say what it did."""
    if plan.journal is not None:
        plan.journal.commit(version)
    return IngestResult(
        version=version,
        rows=rows,
        files=files,
        bad_records=sum(result.bad_records for result in results),
        dropped=sum(result.dropped for result in results),
        job_id=plan.job_id,
    )
