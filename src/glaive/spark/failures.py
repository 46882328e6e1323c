"""Convert errors from Spark's processes back to glaive's classes.

Planning, tasks and commits run in other processes. Their errors arrive as one long message that
includes two tracebacks; glaive's own error is extracted from it and raised.
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
    """Raise glaive's error instead of a Spark error that it caused in a worker.

    The error for a missing source path is converted as well.
    """
    try:
        yield
    except Exception as error:
        original = find_glaive_error(str(error))
        missing = MISSING_PATH.search(str(error))
        if original is None and missing is not None:
            original = NotFoundError(f"{missing[1]} does not exist. Check the path")
        if original is None:
            raise
        raise original from error


def find_glaive_error(text: str) -> GlaiveError | None:
    """The last error of glaive in a worker's traceback; None if there is none."""
    raised = RAISED.findall(text)
    if not raised:
        return None
    name, message = raised[-1]
    error_class = getattr(errors, name, None)
    if not (isinstance(error_class, type) and issubclass(error_class, GlaiveError)):
        return None
    if issubclass(error_class, CorruptFileError):
        # The constructor builds the message from parts; this one is complete.
        error = error_class.__new__(error_class)
        error.args = (message,)
        return error
    return error_class(message)
