"""Convert errors from Spark's processes back to glaive's classes.

Planning, tasks and commits run in other processes. Their errors arrive as one long message that
includes two tracebacks. glaive extracts its own error from the message and raises it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from glaive import errors
from glaive.errors import (
    ColumnNotFoundError,
    CorruptFileError,
    GlaiveError,
    JobError,
    MissingDependencyError,
)
from glaive.format.field import split_path

P = ParamSpec("P")
R = TypeVar("R")

RAISED = re.compile(r"^(?:[^'\"\n]*PythonException: )?glaive\.errors\.(\w+): (.+)$", re.MULTILINE)
"""A line of an error that Python raised; values of rows, which Spark quotes, may look like it."""

TRACEBACK = "Traceback (most recent call last)"
"""Part of errors that Python code raised in a worker, as opposed to errors of the cluster."""

LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\)(?: \((.+?)\))?: (.+)")
"""A task that failed too often: where its last attempt ran, and why the attempt ended."""

ENDED = re.compile(
    r"(?:Job \d+ cancelled because )?SparkContext was shut down|on a stopped SparkContext"
    r"|Master removed our application[^\n]*"
    r"|\[(?:INVALID_HANDLE\.SESSION_\w+|NO_ACTIVE_SESSION)\][^\n]*|Cannot invoke RPC[^\n]*"
    r"|Python worker exited unexpectedly|Checkpoint block \S+ not found"
)
"""The session ended while the job ran, or the Spark Connect server forgot it. Or the process ended
that Spark commits in. Or rows are lost whose only copy was in the cluster.
"""

UNREACHABLE = re.compile(r"StatusCode\.UNAVAILABLE")
"""The Spark Connect server has been silent for some minutes."""

ALL_CRASHED = re.compile(r"java\.io\.IOException\)?:? (?:Stream closed|Broken pipe)")
"""Workers and the process that starts workers ended: Spark cannot write to it."""

ORPHANS = "files that its tasks wrote are in no version, and vacuum removes them"

UNCOMMITTED = "Nothing was committed"


@contextmanager
def as_glaive_errors() -> Iterator[None]:
    """Raise glaive's error instead of a Spark error that it caused in a worker.

    Also converts errors for workers that lack glaive.
    """
    try:
        yield
    except Exception as error:
        original = find_glaive_error(str(error))
        if original is None and "No module named 'glaive'" in str(error):
            original = MissingDependencyError(
                "the workers of this session have no glaive. Install the driver's version for the "
                "Python of the workers (PYSPARK_PYTHON), or ship it with spark.archives"
            )
        if original is None:
            raise
        raise original from error


@contextmanager
def naming_columns(
    known: Iterable[str], where: str, qualifiers: Container[str] = ()
) -> Iterator[None]:
    """Raise an error for an unknown column that names the closest of all columns.

    Spark knows only the columns that are read, and would suggest one of these, or glaive's own.

    Parameters
    ----------
    known
        All existing columns.
    where
        Their location, for the message.
    qualifiers
        Names of tables, in lower case, that ``known`` lacks before its columns.

    Raises
    ------
    ColumnNotFoundError
        A column is missing.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
            raise
        given = split_path((error.getMessageParameters() or {}).get("objectName", ""))
        name = ".".join(given)
        qualifier, _, rest = name.partition(".")
        column = rest if rest and qualifier.lower() in qualifiers else name
        raise ColumnNotFoundError.among(column, known, where=where) from error


@contextmanager
def naming_job(
    job_id: str, uri: str, *, named: bool, left: str = ORPHANS, made: str = UNCOMMITTED
) -> Iterator[None]:
    """Raise :class:`glaive.errors.JobError` if Spark lost processes of a job, or was stopped.

    Use it before a commit: the message says that the dataset is unchanged, unless ``made`` is
    given.

    Parameters
    ----------
    job_id, uri
        The job, and the dataset that it changes.
    named
        Whether the caller chose the id.
    left
        Text about the files that its tasks wrote.
    made
        Text about the commits that the job may have made.
    """
    try:
        yield
    except GlaiveError:
        raise
    except Exception as error:
        reason = _lost_processes(str(error))
        if reason is None:
            raise
        again = (
            f"run it again with job_id={job_id!r}: it commits once, whatever came of this run"
            if named
            else "run it again"
        )
        raise JobError(
            f"job {job_id} on {uri}: the cluster lost it: {reason}. {made}; {left}. "
            f"Give the workers more memory or other machines, and {again}"
        ) from error


def _lost_processes(text: str) -> str | None:
    """Return why Spark ended a job because of lost processes; ``None`` for other errors."""
    if TRACEBACK in text:
        return None
    task = LOST_TASK.search(text)
    if task is not None:
        where = "" if task[1] is None else f" (on {task[1]})"
        return f"{task[2].strip().rstrip('.')}{where}"
    if UNREACHABLE.search(text):
        return "the server of Spark Connect does not answer, and may still go on with it"
    if ALL_CRASHED.search(text):
        return "the processes of its Python exited unexpectedly"
    ended = ENDED.search(text)
    return None if ended is None else ended[0].strip().rstrip(".")


def without_inner_frames(method: Callable[P, R]) -> Callable[P, R]:
    """Remove glaive's inner calls from errors that reach Spark.

    Spark puts the traceback of a data source's method before the error, so thirty lines would hide
    the message.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except GlaiveError as error:
            raise error.with_traceback(None) from None

    return call


def find_glaive_error(text: str) -> GlaiveError | None:
    """Return glaive's last error in a worker's traceback, or ``None``."""
    raised = RAISED.findall(text)
    if not raised:
        return None
    name, message = raised[-1]
    error_class = getattr(errors, name, None)
    if not (isinstance(error_class, type) and issubclass(error_class, GlaiveError)):
        return None
    return _damage(message) if error_class is CorruptFileError else error_class(message)


def _damage(message: str) -> CorruptFileError:
    """Return the error with a message split into its parts, which copies of the error need."""
    text, _, remedy = message.rpartition("). The file is damaged; ")
    rule, _, where = text.rpartition(" (in ")
    sides, _, found = rule.rpartition(", found ")
    what, _, expected = sides.partition(": expected ")
    if not (remedy and expected):  # Spark may have cut it off
        what, expected, found, where = message, "a sound file", "damage", "a file of a task"
    error = CorruptFileError(what, expected=expected, found=found, where=where)
    error.args = (message,)
    return error
