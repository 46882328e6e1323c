"""What every task does at its start and end, in the Python worker of an executor."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyspark import TaskContext

from glaive.spark.release import check_release

__all__ = ["in_task"]


@contextmanager
def in_task(release: str) -> Iterator[None]:
    """Run a task: refuse another version of glaive than the driver's, and keep what was loaded.

    Parameters
    ----------
    release
        That of the driver.

    Raises
    ------
    MissingDependencyError
        This executor has another version.
    """
    check_release(release)
    yield
    if TaskContext.get() is not None:
        _freeze_loaded()


@cache
def _freeze_loaded() -> None:
    """Exempt all that the first task has loaded from garbage collection.

    PySpark collects garbage after every task, which takes 35 ms for the modules that tasks load.
    """
    gc.collect()
    gc.freeze()
