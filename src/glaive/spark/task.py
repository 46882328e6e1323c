"""What every task does at its start and end, in the Python worker of an executor."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyspark import TaskContext

import glaive
from glaive.errors import MissingDependencyError

__all__ = ["RELEASE", "in_task"]

RELEASE = glaive.__version__
"""Version of glaive in this process; that of the driver travels with the task."""


@contextmanager
def in_task(release: str) -> Iterator[None]:
    """Run a task: refuse another version of glaive than the driver's, and keep what was loaded.

    Parameters
    ----------
    release
        :data:`RELEASE` of the driver.

    Raises
    ------
    MissingDependencyError
        This executor has another version.
    """
    if release != RELEASE:
        raise MissingDependencyError(
            f"the driver has glaive {release}, the executor {socket.gethostname()} has {RELEASE}. "
            "Install the same version on all machines, or ship it with spark.archives"
        )
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
