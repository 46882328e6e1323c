"""A change of a dataset by a job: its id, and the version that it made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from glaive.dataclass import dataclass
from glaive.dataset.rows.retry import with_retries
from glaive.dataset.tasks import COUNTS, JOB, Job
from glaive.errors import OptionError, VersionNotFoundError
from glaive.format.manifest import Manifest
from glaive.spark.failures import NOTHING, naming_job
from glaive.spark.jobs.runner import SparkRunner
from glaive.spark.write_job import ENGINE
from glaive.table.app_transactions import AppTransaction
from glaive.table.load import find_transaction, open_version, read_transaction
from glaive.table.named_jobs import NamedJob, forgotten_until, made_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.version import OpenedVersion
    from glaive.io.store import ObjectStore

__all__ = ["LOOK_BACK", "SparkJob", "given_transaction", "parse_counts"]

_SO_FAR = "What it had committed before, if anything, stays"

LOOK_BACK = 256
"""Newest versions among which the commit of a job is looked for that the newest manifest does not
name."""


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A change whose tasks run in a Spark cluster.

    Parameters
    ----------
    spark
        The session.
    id
        Names the change: running it again with the same id returns the version that it made.
    named
        Whether the caller chose the id, so that an earlier run may have made a version.
    transaction
        Of an application: nothing is done if the dataset has it, or a later one.
    """

    spark: SparkSession
    id: str
    named: bool = False
    transaction: AppTransaction | None = None
    runner: SparkRunner = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runner", SparkRunner(self.spark))

    @classmethod
    def of(cls, spark: SparkSession, job_id: str | None, txn: object = None) -> SparkJob:
        """A job with the caller's id, or with a new one.

        Raises
        ------
        OptionError
            The id is no text, or empty; or ``txn`` is no transaction.
        """
        given: object = job_id
        transaction = given_transaction(txn)
        if given is None:
            return cls(spark, str(uuid4()), transaction=transaction)
        if not isinstance(given, str) or not given:
            raise OptionError(f"job_id: expected a text that names this change, found {given!r}")
        return cls(spark, given, named=True, transaction=transaction)

    @property
    def commit(self) -> Job:
        """Where tasks run, and what the only commit records."""
        if not self.named:
            return self.each_commit
        job = self.each_commit
        return replace(job, properties={**job.properties, **NamedJob(self.id).properties})

    @property
    def each_commit(self) -> Job:
        """Where tasks run, and what each commit records, if there may be several."""
        properties = {JOB: self.id, ENGINE: "spark"}
        if self.transaction is not None:
            properties |= self.transaction.properties
        return Job(runner=self.runner, properties=properties, once=JOB)

    def change(
        self,
        dataset: LanceDataset,
        change: Callable[[OpenedVersion, Job], tuple[Manifest, Any]],
        *,
        retries: int = 10,
        several_commits: bool = False,
    ) -> dict[str, int]:
        """Run a change on the newest version and move the dataset to the version it makes.

        Parameters
        ----------
        change
            Plans, runs tasks and commits; called again on the newest version if other writers
            changed the same rows.
        several_commits
            Whether the change may commit more than once, so that no version is the job's only one.

        Returns
        -------
        dict
            The counts that the change recorded, and ``version``.

        Raises
        ------
        JobError
            The cluster lost processes of the job; nothing was committed, or with several commits
            none after the last that was made.
        """
        dataset.checkout_latest()
        done = self.made(dataset, several_commits=several_commits)
        if done is None:
            job = self.each_commit if several_commits else self.commit
            first = dataset.version

            def unless_made(opened: OpenedVersion) -> tuple[Manifest, Any]:
                # Commits look at later versions only: before a retry, another driver of this job,
                # taken for dead, may have been first.
                if opened.manifest.version > first:
                    made = self._made(opened.store, opened.manifest, first, several_commits)
                    if made is not None:
                        return made, None
                return change(opened, job)

            what = _SO_FAR if several_commits else NOTHING
            with naming_job(self.id, dataset.uri, named=self.named, made=what):
                with_retries(dataset, unless_made, conflict_retries=retries)
        else:
            dataset.go_back(done)
        return {"version": dataset.version, **self._counts(dataset)}

    def made(self, dataset: LanceDataset, *, several_commits: bool = False) -> Manifest | None:
        """The version that an earlier run with this id made.

        The newest one, if it has the job's transaction of an application, or if clean-up removed
        the version of the job. At most one request, but for ids that the caller chose one for each
        of the newest versions whose jobs the newest manifest does not know, or, with several
        commits, for each of the newest versions.
        """
        since = max(0, dataset.version - LOOK_BACK)
        return self._made(dataset.store, dataset.manifest, since, several_commits)

    def _made(
        self, store: ObjectStore, newest: Manifest, since: int, several_commits: bool
    ) -> Manifest | None:
        """The same among the versions after ``since``."""
        if self.transaction is not None and self.transaction.is_applied(newest):
            return newest
        if not self.named:
            return None
        made = made_version(newest, self.id)
        if made is not None:
            try:
                return open_version(store, made, scheme=newest.scheme)
            except VersionNotFoundError:
                return newest
        until = newest.version if several_commits else forgotten_until(newest)
        if until <= since:
            return None
        return find_transaction(store, since, JOB, self.id, until=until, known=newest.version)

    def _counts(self, dataset: LanceDataset) -> dict[str, int]:
        """The counts that this job recorded; none if it made no version."""
        transaction = read_transaction(dataset.store, dataset.manifest)
        if transaction is None or transaction.properties.get(JOB) != self.id:
            return {}
        return parse_counts(transaction.properties.get(COUNTS))


def given_transaction(txn: object) -> AppTransaction | None:
    """The transaction of an application that a caller names, if any.

    Raises
    ------
    OptionError
        It is neither ``None`` nor a name and a number.
    """
    match txn:
        case None:
            return None
        case [str() as application, int() as number]:
            return AppTransaction(application, number)
    raise OptionError(
        f'txn: expected an application and a number, such as ("nightly", 20260512), found {txn!r}'
    )


def parse_counts(text: str | None) -> dict[str, int]:
    """Counts as they are recorded; what is no such text has none."""
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # written by another tool
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: count for name, count in values.items() if isinstance(count, int)}
