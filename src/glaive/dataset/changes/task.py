"""Tasks of a change feed: values that can be sent to other processes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from glaive.dataclass import dataclass

__all__ = ["TASK_ROWS", "ChangeTask", "RewrittenRows"]

TASK_ROWS = 1 << 20
"""Physical rows of a fragment that one task looks at, at most; more in versions of a trillion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenRows:
    """Rows of a fragment of which some columns were rewritten in place.

    Parameters
    ----------
    by_version
        They are the rows that were last updated in another version than before.
    offsets
        Otherwise the physical rows as a roaring bitmap; ``None`` for all.
    """

    by_version: bool = False
    offsets: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """The changed rows in a part of one fragment, as they were before or after a commit.

    Parameters
    ----------
    commit_version, commit_timestamp
        The version that changed them, and its time.
    after
        Whether rows are inserted or have their new values; otherwise they are deleted or have
        their old values.
    read_version
        The version that has the rows.
    compared_version
        The version on the other side of the commit, if its rows matter: ``None`` if no row of the
        fragment can be there as well.
    fragment_id
        The fragment, in ``read_version``.
    shared
        Whether the other version has the fragment, too: only some rows of it changed.
    rewritten
        Which rows of a shared fragment have values that were rewritten in place, if any.
    start, stop
        The physical rows to look at.
    rows
        Number of changed rows, about.
    file_bytes
        Bytes of the data files for these rows, about.
    others
        Field ids that mean other columns in ``read_version`` than in the version whose schema the
        feed has; ``None`` if that is not known.
    """

    commit_version: int
    commit_timestamp: datetime
    after: bool
    read_version: int
    compared_version: int | None
    fragment_id: int
    shared: bool = False
    rewritten: RewrittenRows | None = None
    start: int = 0
    stop: int
    rows: int
    file_bytes: int = 0
    others: frozenset[int] | None = frozenset()

    def part(self, start: int, stop: int) -> ChangeTask:
        """The same task for the physical rows from ``start`` to ``stop``."""
        share = (stop - start) / max(1, self.stop - self.start)
        return replace(
            self,
            start=start,
            stop=stop,
            rows=round(self.rows * share),
            file_bytes=round(self.file_bytes * share),
        )

    @property
    def complete(self) -> bool:
        """Whether all live rows from ``start`` to ``stop`` may have changed."""
        return not self.shared
