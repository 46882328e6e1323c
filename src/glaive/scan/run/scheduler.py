"""Schedule the work of a scan: inline, on the cores, or on the I/O threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import chain, islice
from typing import Final, TypeVar

from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.io.pool import alone, gather, ordered_map, worker_count
from glaive.scan.bound import BoundFragment
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.plan import FragmentRows
from glaive.scan.views import BoundProjection

T = TypeVar("T")
R = TypeVar("R")

_FETCHES_AHEAD: Final = 24
"""Maximum windows or fragments fetched ahead, to limit memory."""

ALIGNED_ROWS: Final = 4096
"""Jobs within a page begin on multiples of this, where the chunks of most pages begin."""

_WIDE_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of ``ALIGNED_ROWS`` rows of an aligned window: chunks of wider rows are short."""


def whole_chunks(rows: int, width: int) -> int:
    """Round a number of rows of ``width`` bytes, so that windows begin where chunks do."""
    if width * ALIGNED_ROWS > _WIDE_BYTES:
        return max(1, _WIDE_BYTES // width)
    return max(ALIGNED_ROWS, rows // ALIGNED_ROWS * ALIGNED_ROWS)


@dataclass(frozen=True, slots=True, eq=False)
class ScanRun:
    """The projection, the options and the meter of a scan."""

    source: BoundProjection
    options: ScanOptions
    meter: Meter = field(default_factory=Meter)

    def is_mapped(self, ranges: Sequence[FragmentRows]) -> bool:
        """Return whether the files of a plan are mapped, by its first fragment."""
        return not ranges or self.source.is_mapped(ranges[0].position)

    def opened(self, ranges: Sequence[FragmentRows]) -> Iterator[tuple[BoundFragment, int, int]]:
        """Yield the fragments of ranges, with the first and last (exclusive) row of each.

        Fetched fragments are opened concurrently, ahead of their use.
        """

        def bind(rows: FragmentRows) -> tuple[BoundFragment, int, int]:
            bound = self.source.fragment(rows.position)
            bound.expect("sequential")
            return bound, rows.start, rows.stop

        if self.is_mapped(ranges):
            return map(bind, ranges)
        ahead = self.options.fragment_readahead or _FETCHES_AHEAD
        return ordered_map(bind, ranges, ahead=ahead, workers=settings.io_concurrency)

    def map(
        self,
        work: Callable[[T], R],
        jobs: Iterable[T],
        ranges: Sequence[FragmentRows],
        *,
        job_bytes: int,
        inline: bool = False,
        stream: bool = True,
    ) -> Iterable[R]:
        """Apply ``work`` to jobs; yield results in order, unless the options disable it.

        Parameters
        ----------
        ranges
            The ranges of the jobs.
        job_bytes
            Approximate bytes of memory of a job.
        inline
            Run on this thread if the files are mapped.
        stream
            Keep few results waiting. Otherwise all jobs may run before the first result is used.
        """
        mapped = self.is_mapped(ranges)
        if mapped and inline:
            return map(work, jobs)
        if mapped and not stream:
            return gather(work, jobs)
        jobs = iter(jobs)
        # A stream may fetch dozens of windows ahead: decode the first alone to know their size.
        first: Iterable[R] = alone(work, jobs) if mapped else ()
        if stream and not mapped and not self.source.projection.row_sizes.are_known:
            first = map(work, islice(jobs, 1))
        ahead = self.options.windows_ahead(job_bytes, mapped=mapped)
        others = ordered_map(
            work,
            jobs,
            ahead=ahead or (worker_count() + 1 if mapped else _FETCHES_AHEAD),
            workers=None if mapped else settings.io_concurrency,
            in_order=self.options.scan_in_order,
        )
        return chain(first, others)
