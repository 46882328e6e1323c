"""Errors from Spark's processes, given back their own class.

Planning, tasks and commits run in other processes; what they raise arrives as one long text
with two tracebacks around it. The line that matters is found in it and raised again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from glaive import errors
from glaive.errors import GlaiveError

__all__ = ["as_glaive_errors", "find_glaive_error"]

RAISED = re.compile(r"^(?:.*?: )?glaive\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def as_glaive_errors() -> Iterator[None]:
    """Turn an error of Spark that was one of glaive's in a worker into just this one."""
    try:
        yield
    except Exception as error:
        found = find_glaive_error(str(error))
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
    # Not called with the message: some classes build theirs from parts.
    error = kind.__new__(kind)
    error.args = (message,)
    return error
