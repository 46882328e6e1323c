"""Progress of the steps of a long command."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from glaive.cli.output import public, visible
from glaive.dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


POLL_SECONDS = 0.2

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step."""

    label: str
    seconds: float


class Steps:
    """Runs steps one after the other and records their durations.

    Parameters
    ----------
    console
        Displays a progress bar during each step, if it is a terminal.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.done: list[Step] = []
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
        step = Step(label, time.perf_counter() - start)
        self.done.append(step)
        self.console.print(f"[green]✓[/] {shown} [dim]{step.seconds:.1f} s[/]", highlight=False)
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
    steps: Steps, master: str | None, app_name: str, log: Path | None, settings: dict[str, str]
) -> SparkSession:
    """Start Spark as a step.

    Workers compile the kernels that they need, each once for all of them: all kernels would take
    a minute of two cores before the first step.

    Parameters
    ----------
    log
        File for the log of Spark; standard error when None.
    """
    from glaive.spark import session

    with nullcontext() if log is None else _log_to(log):
        steps.spark = steps.run("Start Spark", lambda: session(app_name, master, **settings))
    return steps.spark


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of a Java process started in this block to a file.

    Spark logs to the standard error that it inherits, which would mix with the progress bars and
    tables. The redirection is permanent for that process; for this one it ends with the block.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    original = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
