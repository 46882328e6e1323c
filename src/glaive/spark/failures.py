"""Convert errors from Spark's processes back to glaive's classes.

Planning, tasks and commits run in other processes. Their errors arrive as one long message that
includes two tracebacks; glaive's own error is extracted from it and raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from glaive import errors
from glaive.errors import CorruptFileError, GlaiveError, NotFoundError, SchemaError

__all__ = ["as_glaive_errors", "find_glaive_error"]

RAISED = re.compile(r"^(?:.*?: )?glaive\.errors\.(\w+): (.+)$", re.MULTILINE)

FAILED_FILE = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)\.\s"
)

MALFORMED = re.compile(
    r"\[MALFORMED_(?:CSV_RECORD|RECORD_IN_PARSING\.\w+)\] [^:\n]*: (.+?)(?: SQLSTATE.*)?$",
    re.MULTILINE,
)
"""The innermost one tells most: the record as it is in the file."""

MISSING_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?)\. SQLSTATE")


@contextmanager
def as_glaive_errors() -> Iterator[None]:
    """Raise glaive's error instead of a Spark error that it caused in a worker.

    Errors for a missing source path and for records that cannot be parsed are converted as well.
    """
    try:
        yield
    except Exception as error:
        original = find_glaive_error(str(error))
        missing = MISSING_PATH.search(str(error))
        if original is None and missing is not None:
            original = NotFoundError(f"{missing[1]} does not exist. Check the path")
        if original is None:
            original = _malformed(str(error))
        if original is None:
            raise
        raise original from error


def _malformed(text: str) -> SchemaError | None:
    """The error for a record that Spark cannot parse; None if there is none."""
    records, file = MALFORMED.findall(text), FAILED_FILE.search(text)
    if not records:
        return None
    where = "the sources" if file is None else file[1]
    return SchemaError(
        f"{where}: a record does not have the columns that were given or inferred: "
        f"{records[-1]:.200}. Correct it, name all columns in a schema, or give Spark's reader the "
        "option mode=DROPMALFORMED to leave such records out"
    )


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
