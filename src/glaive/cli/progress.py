"""Progress of the steps of a long command."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from glaive.cli.output import public, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


POLL_SECONDS = 0.2

Result = TypeVar("Result")


class Steps:
    """Runs steps one after the other.

    Parameters
    ----------
    console
        Displays a progress bar during each step, if it is a terminal.
    log
        File for the log of Spark.
    """

    def __init__(self, console: Console, log: Path) -> None:
        self.console, self.log = console, log
        self.spark: SparkSession | None = None

    def run(self, label: str, work: Callable[[], Result]) -> Result:
        """Call ``work`` and return its result; display the progress of Spark's tasks."""
        start, shown = time.perf_counter(), escape(visible(public(label)))
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[tasks]}"),
            TimeElapsedColumn(),
        )
        with (
            Progress(
                *columns, console=self.console, transient=True, disable=not self.console.is_terminal
            ) as progress,
            ThreadPoolExecutor(1, thread_name_prefix="step") as worker,
        ):
            bar = progress.add_task(shown, total=None, tasks="")
            future = worker.submit(work)
            try:
                while wait([future], POLL_SECONDS).not_done:
                    finished, total = self._tasks()
                    if total:
                        text = f"{finished}/{total} tasks"
                        progress.update(bar, completed=finished, total=total, tasks=text)
            except KeyboardInterrupt:
                if self.spark is not None:
                    self.spark.sparkContext.cancelAllJobs()
                raise
            result = future.result()
        seconds = time.perf_counter() - start
        self.console.print(f"[green]✓[/] {shown} [dim]{seconds:.1f} s[/]", highlight=False)
        return result

    def _tasks(self) -> tuple[int, int]:
        if self.spark is None:
            return 0, 0
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        return (
            sum(stage.numCompletedTasks for stage in running),
            sum(stage.numTasks for stage in running),
        )

    def start_spark(
        self, master: str | None, app_name: str, settings: Mapping[str, str]
    ) -> SparkSession:
        """Start Spark as a step; it logs only errors, to a file.

        Workers compile the kernels that they need, and share them. All kernels would take a minute
        of two cores before the first step.
        """
        from glaive.spark import session

        settings = {"spark.log.level": "ERROR", **settings}
        with _log_to(self.log):
            self.spark = self.run("Start Spark", lambda: session(app_name, master, **settings))
        return self.spark


@contextmanager
def steps_of_spark(*, to_stderr: bool) -> Iterator[Steps]:
    """Yield steps; stop their Spark, and remove its log, when the block ends."""
    from glaive.io.failures import spilling

    with spilling("the log of Spark"):
        handle, name = tempfile.mkstemp(prefix="glaive-", suffix=".log")  # of this user alone
    os.close(handle)
    steps = Steps(Console(stderr=to_stderr), Path(name))
    try:
        yield steps
    finally:
        if steps.spark is not None:
            steps.spark.stop()
        Path(name).unlink(missing_ok=True)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of a Java process started in this block to a file.

    Spark logs to the standard error that it inherits, which would mix with the progress bars and
    tables. The redirection is permanent for that process; for this one it ends with the block.
    """
    sys.stderr.flush()
    original = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
