"""Plan and run the steps of a pipeline; a failed run continues at the failed step."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.dataset.stats import short_texts
from glaive.dataset.tasks import JOB
from glaive.errors import (
    DatasetNotFoundError,
    ExpectationError,
    GlaiveError,
    OptionError,
    RefNotFoundError,
)
from glaive.format.field import quoted_name
from glaive.ingestion.sources import BAD_RECORDS
from glaive.ingestion.task import Expectations, OnViolation
from glaive.pipeline.runs import (
    DatasetName,
    Pipeline,
    RunRecord,
    Runs,
    Step,
    StepContext,
    StepRecord,
    render_report,
)
from glaive.table.load import read_transaction
from glaive.table.named_jobs import made_version

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# --- The plan of a run, made without Spark and without changes ---------------------------

# --- Facts about datasets for plans and reports: version, rows, bytes, and a sample -----

SAMPLE_ROWS: Final = 5
SAMPLE_COLUMNS: Final = 12


def dataset_facts(
    uri: str, storage: Mapping[str, str], branch: str | None = None
) -> dict[str, int] | None:
    """Return ``version``, ``rows`` and ``bytes`` of the newest version.

    Return ``None`` if the dataset is missing. Cost: one or two requests.
    """
    opened = _opened(uri, storage, branch)
    if opened is None:
        return None
    return {
        "version": opened.version,
        "rows": opened.count_rows(),
        "bytes": opened.manifest.columns.file_bytes,
    }


def sample_of(
    uri: str, storage: Mapping[str, str], branch: str | None = None
) -> dict[str, list[Any]] | None:
    """Return ``columns`` and a few ``rows`` as short strings; ``None`` for a missing dataset."""
    opened = _opened(uri, storage, branch)
    if opened is None:
        return None
    names = opened.schema.names[:SAMPLE_COLUMNS]
    rows = opened.to_table(columns=names, limit=SAMPLE_ROWS)
    columns = list(map(short_texts, rows.columns))
    return {"columns": names, "rows": [list(row) for row in zip(*columns, strict=True)]}


def _opened(uri: str, storage: Mapping[str, str], branch: str | None) -> LanceDataset | None:
    try:
        version = None if branch is None else (branch, None)
        return dataset(uri, version=version, storage_options=dict(storage) or None)
    except (DatasetNotFoundError, RefNotFoundError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step as it would run.

    Parameters
    ----------
    name, kind, summary
        Name, kind and description of the step.
    after
        Steps that must run before.
    reads, writes
        Datasets by name, with their present version; ``None`` for a missing dataset.
    done
        Whether the run to continue has done the step.
    """

    name: str
    kind: str
    summary: str
    after: tuple[str, ...]
    reads: dict[str, int | None]
    writes: dict[str, int | None]
    done: bool


def plan(pipeline: Pipeline, record: RunRecord | None = None) -> list[PlannedStep]:
    """Return the steps in the order of a run.

    Parameters
    ----------
    record
        The run to continue; default: a new run.

    Raises
    ------
    OptionError
        A step reads a missing dataset, and no earlier step writes it.

    Notes
    -----
    This takes one or two requests for each dataset.
    """
    versions = check_inputs(pipeline)
    return [
        PlannedStep(
            name=name,
            kind=step.kind,
            summary=step.shown,
            after=pipeline.depends[name],
            reads={one: versions[one] for one in step.reads(pipeline.datasets)},
            writes={one: versions[one] for one in step.writes()},
            done=record is not None and name in record.steps and record.steps[name].state == "done",
        )
        for name, step in pipeline.steps.items()
    ]


def check_inputs(pipeline: Pipeline) -> dict[str, int | None]:
    """Return the newest version of each dataset, by name.

    Raises
    ------
    OptionError
        As :func:`plan`.
    """
    facts: dict[str, Any] = {
        name: dataset_facts(uri, pipeline.storage) for name, uri in pipeline.datasets.items()
    }
    written: set[str] = set()
    for name, step in pipeline.steps.items():
        for read in step.reads(pipeline.datasets):
            if facts[read] is None and read not in written:
                raise OptionError(
                    f"{pipeline.file.name}, step {name}: it reads the dataset {read!r}, which does "
                    f"not exist ({pipeline.datasets[read]}), and no step before it writes it. "
                    "Correct the table [datasets], or name that step in the key after"
                )
        written.update(step.writes())
    return {name: None if fact is None else fact["version"] for name, fact in facts.items()}


# --- Expectations of steps that write rows: conditions, and the treatment of other rows --

_VIOLATED: Final = re.compile(r"glaive expectation \((.+?)\) row (\{.*?\}?) end", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ExpectingStep(Step):
    """A step that writes rows, with the keys for expected rows.

    Parameters
    ----------
    target
        The dataset.
    expect
        A condition that every row must meet, or several by name; null counts as a violation.
    on_violation
        ``fail``, ``drop`` or ``quarantine``.
    quarantine
        The dataset for violating rows, with the columns ``file``, ``line``, ``reason``, ``record``
        (JSON), ``job_id``.
    """

    target: DatasetName
    expect: str | Mapping[str, str] | None = None
    on_violation: OnViolation = "fail"
    quarantine: DatasetName | None = None

    def check(self) -> None:
        """Refuse keys that exclude each other."""
        self.expectations()
        if self.quarantine == self.target:
            raise OptionError("quarantine: name another dataset, not the target of the step")

    def expectations(self) -> Expectations | None:
        """Return the conditions, or ``None``."""
        return Expectations.of(
            self.expect, self.on_violation, has_quarantine=self.quarantine is not None
        )

    def writes(self) -> tuple[str, ...]:
        """Return the dataset, and the dataset of violating rows."""
        return (self.target,) if self.quarantine is None else (self.target, self.quarantine)

    @contextmanager
    def expected(self, frame: DataFrame, context: StepContext) -> Iterator[ExpectedRows]:
        """Provide the rows of a frame that meet the conditions.

        Raises
        ------
        ExpectationError
            A row violates a condition, and ``on_violation`` is ``fail``: within the block, when
            the frame is computed.

        Notes
        -----
        For ``fail`` the conditions are part of the query. Otherwise Spark caches the frame until
        the block ends, and counts the violating rows first. If a cluster loses the cached frame,
        the step fails: after a second computation, other rows might meet the conditions. If the job
        of the step has already made its version, the frame is left unevaluated, because the query
        may return other rows now.
        """
        from glaive.spark.frame_writing import checkpointed
        from glaive.spark.lance_table.merge import can_lose_rows

        expectations = self.expectations()
        if expectations is None or self._has_committed(context):
            yield ExpectedRows(frame, {})
            return
        if expectations.on_violation == "fail":
            try:
                yield ExpectedRows(_failing(frame, expectations), {})
            except Exception as error:
                violated = _VIOLATED.search(str(error))
                if violated is None:
                    raise
                raise ExpectationError(
                    f"step {context.name}: a row violates the expectation {violated[1]}: "
                    f"{violated[2]}. Correct the source, or drop or quarantine such rows with "
                    "on_violation"
                ) from error
            return
        kept = checkpointed(frame) if can_lose_rows(context.spark) else frame.persist()
        try:
            yield self._without_violations(kept, expectations, context)
        finally:
            kept.unpersist()

    def _without_violations(
        self, frame: DataFrame, expectations: Expectations, context: StepContext
    ) -> ExpectedRows:
        from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

        tests = [_is_true(text) for _, text in expectations.conditions]
        reason: Any = F.lit(None)
        for (name, text), test in reversed(list(zip(expectations.conditions, tests, strict=True))):
            reason = F.when(~test, F.lit(f"expectation {name}: {text}")).otherwise(reason)
        passed = reduce(lambda left, right: left & right, tests)
        others = frame.where(~passed)
        if expectations.on_violation == "drop":
            return ExpectedRows(frame.where(passed), {"dropped": others.count()})
        values = {
            "file": F.lit(f"step {context.name}"),
            "line": F.lit(None).cast("bigint"),
            "reason": reason,
            "record": _row_text(frame).cast("binary"),
            "job_id": F.lit(context.job_id),
        }
        count = others.count()
        if self.quarantine is not None:
            rows = others.select(*(values[name].alias(name) for name in BAD_RECORDS.names))
            self._quarantine(rows, count, self.quarantine, context)
        return ExpectedRows(frame.where(passed), {"bad_records": count})

    def _quarantine(
        self, rows: DataFrame, count: int, quarantine: DatasetName, context: StepContext
    ) -> None:
        """Commit the violating rows, unless an earlier, stopped run of the step has done this.

        Raises
        ------
        OptionError
            The earlier run had other rows.
        """
        from glaive.spark import write

        job = quarantine_job(context.job_id)
        made = context.made_by(job, quarantine)
        if made is not None:
            _expect_same(context, job, made, rows, count)
        elif count:
            write(
                rows,
                context.datasets[quarantine],
                "append",
                job_id=job,
                arrow_schema=BAD_RECORDS,
                storage_options=context.storage or None,
            )

    def _has_committed(self, context: StepContext) -> bool:
        """Return whether the job of the step has made its version, even if the record lacks it."""
        target = DatasetName(self.writes()[0])
        return context.made_by(context.job_id, target, self.branch_written) is not None


def _expect_same(
    context: StepContext, job: str, made: LanceDataset, rows: DataFrame, count: int
) -> None:
    """Check that a version has the rows that would be put aside now.

    Raises
    ------
    OptionError
        The version has other rows.
    """
    from glaive.spark import read

    transaction = read_transaction(made.store, made.manifest)
    if transaction is None or transaction.properties.get(JOB) != job:
        return  # it was cleaned up
    storage: Any = {"storage_options": dict(context.storage)} if context.storage else {}
    own = f"job_id = '{context.job_id}'"
    earlier = read(context.spark, made.uri, version=made.version, filter=own, **storage)
    number = earlier.count()
    if number != count:
        found = f"{count}"
    elif rows.select("record").exceptAll(earlier.select("record")).isEmpty():
        return
    else:
        found = "others"
    raise OptionError(
        f"step {context.name}: a run of {job} put {number} rows into {made.uri} (version "
        f"{made.version}), and was then stopped. Now {found} were found: the query's sources have "
        "changed since. Nothing was written. Let it read the same rows again, or start a new run. "
        "To avoid duplicates, delete the rows of this one"
    )


def quarantine_job(job: str) -> str:
    """Return the id of the job that quarantines rows."""
    return f"{job}.quarantine"


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The rows that meet the conditions, and the number of violating rows."""

    frame: DataFrame
    counts: Mapping[str, int]


def _failing(frame: DataFrame, expectations: Expectations) -> DataFrame:
    """Return a frame whose computation fails at the first row that violates a condition."""
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    shown = F.substring(_row_text(frame), 1, 300)
    for name, text in expectations.conditions:
        message = F.concat(F.lit(f"glaive expectation ({name}: {text}) row "), shown, F.lit(" end"))
        failed = F.raise_error(message).cast("boolean")
        frame = frame.where(F.when(_is_true(text), F.lit(True)).otherwise(failed))
    return frame


def _is_true(condition: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    return F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))


def _row_text(frame: DataFrame) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    quoted = list(map(quoted_name, frame.columns))
    return F.to_json(F.struct(*quoted))


REPORT = "report.html"
"""The page of a run, in the folder of its record."""

Work: TypeAlias = Callable[[], Mapping[str, int]]
Observer: TypeAlias = Callable[[str, Work], Mapping[str, int]]
"""A function that gets the name and the work of a step, calls it, and may show progress."""


def run(
    pipeline: Pipeline,
    session: Callable[[], SparkSession] | None = None,
    *,
    run_id: str | None = None,
    record: RunRecord | None = None,
    observer: Observer | None = None,
) -> RunRecord:
    """Run all unfinished steps one after the other, each as a job of the cluster.

    Parameters
    ----------
    session
        A function that returns the Spark session. ``run`` calls it when the first step needs a
        session. Default: the session that the file describes.
    run_id
        Id of a new run, or of a run to continue; default: a new id.
    record
        The run to continue.
    observer
        A function that gets the name and the work of each step, and displays progress.

    Returns
    -------
    RunRecord
        The record, as it was written to the folder of runs, with the page ``report.html``.

    Raises
    ------
    OptionError
        A dataset is missing, or the keys or parameters of a finished step have changed.
    GlaiveError
        A step failed; the record names it. A second call continues at this step, and keeps the
        commits of its job.

    Notes
    -----
    Run a run in one process at a time. Two processes would both do the unfinished steps, though
    each step commits once.
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
            _run_step(pipeline, name, record, runs, spark, observer or (lambda _, work: work()))
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
    """Refuse to continue if finished steps had other keys or parameters."""
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
    """Return whether a job of a step made a version, even if the record lacks it.

    This includes a version of bad records alone: the job would skip other bad records. It takes one
    or two requests for each dataset.
    """
    step = pipeline.steps.get(name)
    job = _job_id(pipeline, record, name)
    return step is not None and any(
        made_version(opened.manifest, one)
        for written in step.writes()
        for branch in {None, step.branch_written}
        if (opened := _opened(pipeline.datasets[written], pipeline.storage, branch)) is not None
        for one in (job, quarantine_job(job))
    )


def _job_id(pipeline: Pipeline, record: RunRecord, name: str) -> str:
    return f"{pipeline.name}.{record.id}.{name}"


def _prepare(pipeline: Pipeline, record: RunRecord) -> None:
    """Set a record for each step, in the order of the pipeline."""
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
        # The digest of the keys: results of another function must not get into its columns.
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


def _message(error: BaseException) -> str:
    text = GlaiveError.without_secrets(str(error).strip()) or type(error).__name__
    return text[:4000]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
