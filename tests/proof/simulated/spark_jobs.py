"""Writes of Spark in a simulation: its own writers, called as Spark may call them.

Tasks are tried again, run twice at a time, or go on after the job has ended; drivers commit twice,
and abort what was committed. No session of Spark is needed for that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.proof.simulated.changes import Change
from tests.proof.simulated.frames import schema_of, table

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.tasks import JOB
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.errors import GlaiveError, StoreError
from glaive.spark.options import StreamOptions
from glaive.spark.stream_sink import LanceStreamWriter
from glaive.spark.writer import LanceArrowWriter, WriteJob
from glaive.table.load import open_latest
from glaive.table.named_jobs import NamedJob

_Writer = LanceArrowWriter | LanceStreamWriter

_ATTEMPTS = 3
"""Times that Spark tries a task."""


def _job(at: LanceDataset, name: str, properties: Mapping[str, str] | None = None) -> WriteJob:
    given = {JOB: name, **(properties or {})}
    options = WriteOptions(mode="append", transaction_properties=given)
    columns = schema_of(at)
    plan = plan_write(at.store, columns, options, at.manifest)
    return WriteJob(plan=plan, columns=columns, allow_truncation=False)


def _tasks(writer: _Writer, rows: Mapping[int, int], rng: random.Random) -> list[Any]:
    """The messages of tasks of a row each; None for one that failed every time."""
    messages = []
    for key, value in rows.items():
        written: list[Any] = []
        given = table({key: value}, writer.job.columns)
        for _ in range(_ATTEMPTS):
            try:
                written.append(writer.write(iter(given.to_batches())))
            except StoreError:
                continue
            if rng.random() < 0.7:  # else a speculative copy runs, too
                break
        messages.append(rng.choice(written) if written else None)
    return messages


def _driven(
    writer: _Writer,
    rows: Mapping[int, int],
    rng: random.Random,
    commit: Callable[[list[Any]], None],
    abort: Callable[[list[Any]], None],
) -> None:
    """What the driver of a job does, and what may go on after it."""
    messages = _tasks(writer, rows, rng)
    if None in messages:
        abort(messages)
        raise StoreError("a task of a simulated job failed every time. Run the job again.")
    try:
        commit(messages)
    except GlaiveError:
        abort(messages)
        raise
    after = rng.random()
    if after < 0.2:
        abort(messages)  # the answer of the commit was lost on its way to the scheduler
    elif after < 0.4:
        commit(messages)
    elif after < 0.5:  # a second driver, whose tasks failed
        abort([*_tasks(writer, rows, rng)[:1], None])
    elif after < 0.7:
        _tasks(writer, rows, rng)  # tasks that nobody waits for any more


def spark_job(number: int, rng: random.Random) -> Change:
    """A frame that is appended: once, whatever becomes of its tasks and drivers."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}
    planned: list[WriteJob] = []
    """The job is planned once: what tries again is its tasks and its commit."""

    def run(at: LanceDataset, _: Change) -> None:
        if not planned:
            planned.append(_job(at, f"job {number}"))
        writer = LanceArrowWriter(planned[0])
        _driven(writer, rows, rng, writer.commit, writer.abort)

    return Change(number, "append", run, rows=rows, retried=True)


def named_job(number: int, rng: random.Random) -> Change:
    """A frame that drivers append who know no more of one another than the name of their job."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}
    name = f"job {number}"

    def drive(at: LanceDataset) -> None:
        writer = LanceArrowWriter(_job(at, f"{name} {rng.random()}", NamedJob(name).properties))
        _driven(writer, rows, rng, writer.commit, writer.abort)

    def run(at: LanceDataset, _: Change) -> None:
        drive(at)
        if rng.random() < 0.5:
            drive(LanceDataset.of(at.store, open_latest(at.store)))

    return Change(number, "append", run, rows=rows, retried=True)


def stream(number: int, rng: random.Random) -> Change:
    """A batch of a stream, which restarts until it knows that the batch is there."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}
    app, batch = f"query {number}", rng.randrange(3)

    def run(at: LanceDataset, _: Change) -> None:
        def writer() -> LanceStreamWriter:
            """Spark makes a new one for each batch, and for each attempt of it."""
            return LanceStreamWriter(_job(at, f"{app} {rng.random()}"), StreamOptions(), app)

        tasks = writer()
        _driven(
            tasks,
            rows,
            rng,
            lambda messages: writer().commit(messages, batch),
            lambda messages: writer().abort(messages, batch),
        )
        if rng.random() < 0.3:  # the checkpoint does not know yet: the batch is run again
            again = _tasks(tasks, rows, rng)
            if None not in again:
                writer().commit(again, batch)

    return Change(number, "append", run, rows=rows, retried=True)
