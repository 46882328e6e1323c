"""Commit what the tasks of an ingest wrote: bad records first, then the rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import JOB
from glaive.dataset.writing.plan import WritePlan, staged_rows
from glaive.dataset.writing.rows import commit_plan
from glaive.errors import (
    DataFileMissingError,
    ObjectNotFoundError,
    OptionError,
    VersionNotFoundError,
)
from glaive.format.fragment import Fragment, FragmentList, unpacked_fragments
from glaive.format.manifest import Manifest
from glaive.ingestion.plan import IngestPlan
from glaive.ingestion.task import IngestedPieces, IngestResult, Journal, NotedCommit
from glaive.io.store import ObjectStore
from glaive.table.load import open_version, read_transaction
from glaive.table.named_jobs import made_version, search_forgotten
from glaive.table.operations.append import Append
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import read_operation
from glaive.table.versions import list_versions_past


def check_apart(store: ObjectStore, aside: ObjectStore | None) -> None:
    """Refuse the dataset itself as that of its bad records, also by another path.

    The commit of a job is made once in each dataset: it would be that of the bad records.

    Raises
    ------
    OptionError
        Both are in the same place.
    """
    if aside is None:
        return
    places = [one.full("").rstrip("/") for one in (store, aside)]
    if store.is_local and aside.is_local:
        places = list(map(os.path.realpath, places))
    if places[0] == places[1]:
        raise OptionError(
            f"bad_records: {aside.uri} is the dataset itself. Name another place for records that "
            "cannot be read"
        )


def commit_ingest(
    plan: IngestPlan, results: Sequence[IngestedPieces], *, files: int
) -> IngestResult:
    """Commit what tasks wrote: bad records first, then the rows; each once for the job."""
    put_aside_all(plan, results)
    fragments = written_fragments(results)
    version = plan.write.read_version
    if fragments or not plan.write.appends:
        with committing(plan, version):
            version = version_of(plan, commit_plan(plan.write, fragments, once=JOB))
    return acknowledged(plan, results, version=version, rows=fragments.row_count, files=files)


def committing(plan: IngestPlan, since: int) -> AbstractContextManager[None]:
    """What a job with an id does around its commit; see :meth:`Journal.committing`."""
    return nullcontext() if plan.journal is None else plan.journal.committing("rows", since)


def version_of(plan: IngestPlan, manifest: Manifest) -> int:
    """The version that the job made, given the one that its commit returned.

    That is a later one if another run of the job was first.
    """
    return made_version(manifest, plan.job_id) or manifest.version


def written_fragments(results: Sequence[IngestedPieces]) -> FragmentList:
    """The fragments of all tasks, in the order of the rows."""
    packed = (data for result in results for data in result.fragments)
    return unpacked_fragments(packed, "the result of a task")


def put_aside_all(plan: IngestPlan, results: Sequence[IngestedPieces]) -> None:
    """Commit the bad records of all tasks."""
    bad = [data for result in results for data in result.bad_fragments]
    put_aside(plan, unpacked_fragments(bad, "the result of a task"))


def put_aside(plan: IngestPlan, fragments: Sequence[Fragment]) -> None:
    """Commit bad records, unless an earlier run of the job did before it was stopped.

    Raises
    ------
    OptionError
        That run had others.
    """
    aside, journal = plan.bad_records, plan.journal
    if aside is None:
        return
    if journal is None:
        if fragments:
            commit_plan(aside, fragments, once=JOB)
        return
    made = None
    if aside.base is not None:
        made = find_made(journal, "bad", aside.store, aside.base)
    if made is not None:
        _expect_same(journal, aside, made, fragments)
    elif fragments:
        with journal.committing("bad", aside.read_version):
            commit_plan(aside, fragments, once=JOB)


def _expect_same(
    journal: Journal, aside: WritePlan, made: int, fragments: Sequence[Fragment]
) -> None:
    """Check that a version has the bad records of a job that there are now.

    Two requests; also the records, where they are in other files.
    """
    try:
        manifest = open_version(aside.store, made)
    except VersionNotFoundError:
        return  # it was cleaned up
    transaction = read_transaction(aside.store, manifest)
    if transaction is None or transaction.properties.get(JOB) != journal.job_id:
        return
    operation = read_operation(transaction.operation)
    if not isinstance(operation, Append | Overwrite):
        return
    earlier, now = (FragmentList.of(one) for one in (operation.fragments, fragments))
    if earlier.row_count != now.row_count:
        found = f"{now.row_count}"
    elif _paths(earlier) == _paths(now) or _are_same(aside, manifest, earlier, now):
        return
    else:
        found = "others"
    raise OptionError(
        f"job_id: a run of {journal.job_id} was stopped when it had put {earlier.row_count} bad "
        f"records into {aside.store.uri} (version {made}), and now there are {found}: the files "
        "have changed since. Nothing was written. Ingest them with another job_id, and delete the "
        "records of this one, if they are not to be there twice"
    )


def _paths(fragments: FragmentList) -> list[str]:
    return [file.path for fragment in fragments for file in fragment.files]


def _are_same(
    aside: WritePlan, manifest: Manifest, earlier: FragmentList, now: FragmentList
) -> bool:
    """Whether as many bad records are from the same lines; true if the earlier ones were removed.

    Reasons are not compared: other releases give them in other words.
    """
    columns = ["file", "line", "record"]
    bases = manifest.wire.base_paths
    one, other = (
        Scanner.of(staged_rows(aside, part, bases), columns=columns).to_batches()
        for part in (earlier, now)
    )
    rest: Any = None
    try:
        for batch in one:
            left: Any = batch
            while left.num_rows:
                if rest is None or not rest.num_rows:
                    rest = next(other, None)
                count = 0 if rest is None else min(left.num_rows, rest.num_rows)
                if not count or not left.slice(0, count).equals(rest.slice(0, count)):
                    return False
                left, rest = left.slice(count), rest.slice(count)
    except (DataFileMissingError, ObjectNotFoundError):
        return True
    return True


def find_made(
    journal: Journal, commit: NotedCommit, store: ObjectStore, newest: Manifest
) -> int | None:
    """The version that an earlier run of a job made.

    Raises
    ------
    VersionNotFoundError
        It may have made one of those that were cleaned up.

    Notes
    -----
    The newest manifest tells, unless it has forgotten jobs. Then one listing of the journal, and
    one request for each version since a run that was stopped while it committed.
    """
    begun = partial(journal.begun, commit)
    made, searched = search_forgotten(store, newest, JOB, journal.job_id, begun)
    if made is not None or not searched:
        return made
    left = {location.version for location in list_versions_past(store, newest.version)}
    missing = next((number for number in searched if number not in left), None)
    if missing is not None:
        raise VersionNotFoundError(
            f"job {journal.job_id} on {store.uri}: a run of it was stopped while it committed a "
            f"version after {searched[0] - 1}, and clean-up has removed version {missing}, so it "
            "cannot be seen whether the rows are there. Look for some of them; if there are none, "
            "ingest the files with another job_id"
        )
    return None


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
