"""Run the steps of a pipeline; a run that failed goes on at the step that failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from glaive.errors import GlaiveError, OptionError
from glaive.pipeline.expectations import quarantine_job
from glaive.pipeline.facts import dataset_facts, has_made, sample_of
from glaive.pipeline.pipeline import Pipeline
from glaive.pipeline.plan import check_inputs
from glaive.pipeline.report import render_report
from glaive.pipeline.runs import RunRecord, Runs, StepRecord
from glaive.pipeline.step import Step, StepContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["REPORT", "Observer", "run"]

REPORT = "report.html"
"""The page of a run, beside its record."""

Work: TypeAlias = Callable[[], Mapping[str, int]]
Observer: TypeAlias = Callable[[str, Work], Mapping[str, int]]
"""Given the name of a step and its work; calls it, and may display its progress."""


def run(
    pipeline: Pipeline,
    session: Callable[[], SparkSession] | None = None,
    *,
    run_id: str | None = None,
    record: RunRecord | None = None,
    observer: Observer | None = None,
) -> RunRecord:
    """Run all steps that are not done, one after the other; each is a job of the cluster.

    Parameters
    ----------
    session
        Returns the Spark session, when the first step needs one. Default: as the file says.
    run_id
        Of a new run, or of one that goes on; default: a new id.
    record
        A run that goes on.
    observer
        Displays progress.

    Returns
    -------
    RunRecord
        The record, as it was written to the folder of runs, with the page ``report.html``.

    Raises
    ------
    OptionError
        A dataset is missing, or a finished step of the run has other keys or parameters now.
    GlaiveError
        A step failed; the record says which. Running it again goes on there: what its job
        committed is not repeated.

    Notes
    -----
    Two processes must not run the same run at a time: each would do the steps that are not done,
    and commit them once.
    """
    runs = Runs.of(pipeline)
    if record is None and run_id is not None:
        record = runs.find(run_id)
    if record is None:
        check_inputs(pipeline)
        record = runs.start(pipeline, run_id)
    else:
        _check_same(pipeline, record)
    _prepare(pipeline, record)
    waiting = [name for name in pipeline.steps if record.steps[name].state != "done"]
    if not waiting:
        return record
    record.state, record.ended = "running", None
    record.started = record.started or _now()
    runs.keep(record)
    try:
        spark = (session or _session_of(pipeline))()
        _ship(pipeline, spark)
        for name in waiting:
            _run_step(pipeline, name, record, runs, spark, observer or _unobserved)
        record.state = "done"
    except BaseException as error:
        record.state = "failed"
        for step in record.steps.values():
            if step.state == "running":
                step.state, step.error = "failed", _message(error)
        raise
    finally:
        record.ended = _now()
        runs.keep(record)
        runs.write(record, REPORT, render_report(pipeline, record).encode())
    return record


def _check_same(pipeline: Pipeline, record: RunRecord) -> None:
    """Refuse to go on with steps that were done otherwise."""
    kept = record.parameters.items()  # older records have credentials, too
    recorded = {name: value for name, value in kept if name not in pipeline.credentials}
    if recorded != pipeline.shown_parameters:
        raise OptionError(
            f"run {record.id}: it had the parameters {recorded}. Give these, or start a new run"
        )
    for name, step in record.steps.items():
        if step.digest == pipeline.digests.get(name):
            continue
        if step.state == "done" or (step.attempts and _has_committed(pipeline, record, name)):
            raise OptionError(
                f"run {record.id}: the step {name!r} was done and has other keys now. Start a new "
                "run, or undo the change"
            )


def _has_committed(pipeline: Pipeline, record: RunRecord, name: str) -> bool:
    """Whether a job of a step made a version, though the record does not say so.

    Also one of bad records alone: the job would not put others aside. One or two requests for each
    dataset.
    """
    step = pipeline.steps.get(name)
    job = _job_id(pipeline, record, name)
    return step is not None and any(
        has_made(pipeline.datasets[written], pipeline.storage, (job, quarantine_job(job)), branch)
        for written in step.writes()
        for branch in {None, step.branch_written}
    )


def _job_id(pipeline: Pipeline, record: RunRecord, name: str) -> str:
    return f"{pipeline.name}.{record.id}.{name}"


def _prepare(pipeline: Pipeline, record: RunRecord) -> None:
    """A record for each step, in the order of the pipeline."""
    earlier = record.steps
    record.steps = {}
    for name, step in pipeline.steps.items():
        found = earlier.get(name)
        if found is None or found.state != "done":
            attempts = 0 if found is None else found.attempts
            found = StepRecord(kind=step.kind, attempts=attempts)
        found.summary, found.after = step.shown, list(pipeline.depends[name])
        found.digest = pipeline.digests[name]
        record.steps[name] = found


def _run_step(
    pipeline: Pipeline,
    name: str,
    record: RunRecord,
    runs: Runs,
    spark: SparkSession,
    observer: Observer,
) -> None:
    step, entry = pipeline.steps[name], record.steps[name]
    entry.state, entry.started, entry.attempts = "running", _now(), entry.attempts + 1
    entry.before = _facts(pipeline, step)
    runs.keep(record)
    context = StepContext(
        spark=spark,
        name=name,
        job_id=_job_id(pipeline, record, name),
        datasets=pipeline.datasets,
        parameters=pipeline.parameters,
        folder=str(pipeline.folder),
        # Of these keys: what another function has made is no part of its columns.
        scratch=runs.scratch(record, f"{name}-{entry.digest}"),
        storage=pipeline.storage,
        again=entry.attempts > 1,
    )
    start = time.perf_counter()
    try:
        entry.counts = dict(observer(name, lambda: step.run(context)))
    finally:
        entry.seconds = round(time.perf_counter() - start, 3)
    entry.after_it = _facts(pipeline, step)
    for written in step.writes()[:1]:
        entry.sample = sample_of(pipeline.datasets[written], pipeline.storage, step.branch_written)
    entry.state = "done"
    runs.keep(record)


def _facts(pipeline: Pipeline, step: Step) -> dict[str, dict[str, int] | None]:
    return {
        name: dataset_facts(pipeline.datasets[name], pipeline.storage, step.branch_written)
        for name in step.writes()
    }


def _session_of(pipeline: Pipeline) -> Callable[[], SparkSession]:
    def start() -> SparkSession:
        from glaive.spark import session

        name = f"glaive {pipeline.name}"
        return session(name, pipeline.master, pipeline.remote, **pipeline.conf)

    return start


def _ship(pipeline: Pipeline, spark: SparkSession) -> None:
    """Let this process and the workers import the modules of the pipeline."""
    for module in pipeline.modules:
        folder = str(Path(module).parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        spark.addArtifacts(str(module), pyfile=True)


def _unobserved(_: str, work: Work) -> Mapping[str, int]:
    return work()


def _message(error: BaseException) -> str:
    text = GlaiveError.without_secrets(str(error).strip()) or type(error).__name__
    return text[:4000]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
