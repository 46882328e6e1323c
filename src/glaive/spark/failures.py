"""Errors from Spark's processes, given back their own class.

Planning, tasks and commits run in other processes; what they raise arrives as one long text
with two tracebacks around it. The line that matters is found in it and raised again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from glaive import errors
from glaive.errors import CorruptFileError, GlaiveError, NotFoundError

__all__ = ["as_glaive_errors", "find_glaive_error"]

RAISED = re.compile(r"^(?:.*?: )?glaive\.errors\.(\w+): (.+)$", re.MULTILINE)

MISSING_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?)\. SQLSTATE")


@contextmanager
def as_glaive_errors() -> Iterator[None]:
    """Turn an error of Spark that was one of glaive's in a worker into just this one.

    A source path that does not exist becomes one of glaive's as well.
    """
    try:
        yield
    except Exception as error:
        found = find_glaive_error(str(error))
        missing = MISSING_PATH.search(str(error))
        if found is None and missing is not None:
            found = NotFoundError(f"{missing[1]} does not exist. Check the path")
        if found is None:
            raise
        raise found from error


def find_glaive_error(text: str) -> GlaiveError | None:
    """Return the last error of glaive in a worker's traceback; None if there is none."""
    raised = RAISED.findall(text)
    if not raised:
        return None
    name, message = raised[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, GlaiveError)):
        return None
    if issubclass(kind, CorruptFileError):
        # Builds its message from parts; this one is complete.
        error = kind.__new__(kind)
        error.args = (message,)
        return error
    return kind(message)
