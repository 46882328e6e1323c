"""Retry a change for the newest version after another writer changed the same rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from glaive.clock import monotonic
from glaive.dataset.progress_line import current_line
from glaive.errors import CommitConflictError, CommitContentionError, OptionError, OptionRangeError
from glaive.format.flags import check_writable
from glaive.format.manifest import Manifest

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["RETRY_TIMEOUT", "check_retries", "with_retries"]

RETRY_TIMEOUT = timedelta(seconds=30)
"""How long changes are retried."""

R = TypeVar("R")


def check_retries(conflict_retries: object, retry_timeout: object) -> None:
    """Check how often and how long a change is to be tried again.

    Raises
    ------
    OptionError
        The number is none, or negative, or the duration is none.
    """
    if isinstance(conflict_retries, bool) or not isinstance(conflict_retries, int | np.integer):
        raise OptionError(f"conflict_retries: expected a number, found {conflict_retries!r:.60}")
    if conflict_retries < 0:
        raise OptionRangeError(f"conflict_retries: expected a number ≥ 0, found {conflict_retries}")
    if not isinstance(retry_timeout, timedelta):
        raise OptionError(f"retry_timeout: expected a timedelta, found {retry_timeout!r}")


def with_retries(
    dataset: OpenDataset,
    change: Callable[[OpenedVersion], tuple[Manifest, R]],
    *,
    conflict_retries: int = 10,
    retry_timeout: timedelta = RETRY_TIMEOUT,
) -> R:
    """Execute a change and move the dataset to the new version; see ``LanceDataset.delete``.

    ``change`` is called with the version to change; it commits, and returns the new version and
    a result. Nothing is written if the dataset uses a feature that this writer does not support.
    """
    check_retries(conflict_retries, retry_timeout)
    until = monotonic() + retry_timeout.total_seconds()
    at = dataset.opened
    for attempt in range(int(conflict_retries) + 1):
        wire = at.manifest.wire
        check_writable(
            wire.reader_feature_flags, wire.writer_feature_flags, where=at.manifest.where
        )
        try:
            manifest, result = change(at)
        except CommitConflictError as error:
            if not error.retryable:
                raise
            if attempt == conflict_retries or monotonic() >= until:
                raise CommitContentionError(
                    f"Too many concurrent writers: {at.uri}: others changed the same rows at "
                    f"every one of {attempt + 1} attempts, the last in version {error.version} "
                    f"({error.operation}). Nothing was changed; try again, or allow more "
                    "conflict_retries or a longer retry_timeout."
                ) from error
            at = at.at_latest(error.version)
            line = current_line()
            if line is not None:
                line.move_to(0, None)
        else:
            dataset.move_to(manifest)
            return result
    raise AssertionError("unreachable: the last attempt returns or raises")
