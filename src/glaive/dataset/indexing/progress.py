"""Progress of a build, as it is reported to users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from glaive.dataclass import dataclass
from glaive.dataset.indexing.source import CountRows
from glaive.dataset.progress_line import current_line

__all__ = ["IndexProgress", "reporting"]


@dataclass(frozen=True)
class IndexProgress:
    """What happened while an index is built.

    Parameters
    ----------
    event
        ``start``, ``progress`` or ``complete``.
    stage
        What is done: ``load_data``.
    completed, total
        Units that were done, and of the whole stage, if known.
    unit
        What is counted: ``rows``.
    """

    event: Literal["start", "progress", "complete"]
    stage: str
    completed: int | None = None
    total: int | None = None
    unit: str = ""

    @property
    def fraction(self) -> float | None:
        """Share that was done; None if it is not known."""
        if self.completed is None or not self.total:
            return None
        return min(self.completed / self.total, 1.0)


@contextmanager
def reporting(
    callback: Callable[[IndexProgress], object] | None, stage: str, total: int
) -> Iterator[CountRows | None]:
    """Report a stage that reads so many rows, perhaps several times, and show it on the line."""
    line = current_line()
    if callback is None and line is None:
        yield None
        return
    done = 0

    def tell(event: Literal["start", "progress", "complete"], rows: int) -> None:
        if line is not None:
            line.move_to(rows, total)
        if callback is not None:
            callback(IndexProgress(event, stage, rows, total, "rows"))

    def count_rows(rows: int) -> None:
        nonlocal done
        done = min(total, done + rows)
        tell("progress", done)

    tell("start", 0)
    yield count_rows
    tell("complete", total)
