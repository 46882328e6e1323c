"""What a scan did: time and rows per step, requests and bytes."""

from __future__ import annotations

from dataclasses import field
from threading import Lock
from time import perf_counter_ns
from typing import Final

from glaive.dataclass import dataclass
from glaive.io.stats import IoCounters, IOStats

__all__ = ["NOBODY", "Figures", "Meter", "ScanStatistics", "Step", "UnreadMeter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanStatistics:
    """Figures of one scan, handed to ``scan_stats_callback`` when it has ended.

    Parameters
    ----------
    iops, requests
        Reads before and after near ones were joined; both count joined ones here.
    bytes_read
        Bytes requested.
    indices_loaded, parts_loaded
        Indices that were opened, also to ask what they would find, and parts of them that were
        read; 0 where they were kept from another search, or by ``prewarm_index``.
    index_comparisons
        Entries of indices that were compared with the filter or the query.
    index_cache_hits, index_cache_misses
        Lookups in the session's cache of indices.
    all_counts
        Rows and fragments per step; and ``fallbacks``, how often a quicker way was tried and
        given up, in all and by reason.
    all_times
        Nanoseconds per step, summed over threads.
    """

    iops: int = 0
    requests: int = 0
    bytes_read: int = 0
    indices_loaded: int = 0
    parts_loaded: int = 0
    index_comparisons: int = 0
    index_cache_hits: int = 0
    index_cache_misses: int = 0
    all_counts: dict[str, int] = field(default_factory=dict)
    all_times: dict[str, int] = field(default_factory=dict)


_NOTHING: Final = IOStats()


class Figures(dict[str, int]):
    """Figures by name, 0 where there is none: a ``Counter`` takes longer to make than to use."""

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        return 0


class Meter:
    """Sums up figures by name. Threads may share one."""

    __slots__ = ("_lock", "counts", "reads", "times")

    def __init__(self) -> None:
        self.counts, self.times = Figures(), Figures()
        self.reads: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def count(self, name: str, number: int) -> None:
        """Add to a count."""
        with self._lock:
            self.counts[name] += number

    def fallback(self, path: str, reason: str, error: Exception | None = None) -> None:
        """Count that a quicker way was tried and given up, and why.

        Parameters
        ----------
        path
            What was tried.
        reason
            Few different ones: each is a count of its own.
        error
            What happened, for the log.
        """
        with self._lock:
            self.counts["fallbacks"] += 1
            self.counts[f"fallbacks, {path}: {reason}"] += 1
        _log_fallback(path, reason, error)

    def step(self, name: str, counters: IoCounters | None = None) -> Step:
        """Add the time that a block takes, and what is read of a store meanwhile."""
        return Step(self, name, counters)

    def spend(self, name: str, nanoseconds: int, iops: int = 0, size: int = 0) -> None:
        """Add to the time of a step, and to its reads."""
        with self._lock:
            self.times[name] += nanoseconds
            if iops:
                for kind, number in (("iops", iops), ("bytes", size)):
                    self.reads[name, kind] = self.reads.get((name, kind), 0) + number


class Step:
    """A block whose time is added to that of a step. Used once."""

    __slots__ = ("_before", "_counters", "_meter", "_name", "_started")

    def __init__(self, meter: Meter, name: str, counters: IoCounters | None = None) -> None:
        self._meter, self._name, self._counters = meter, name, counters

    def __enter__(self) -> None:
        self._before = _NOTHING if self._counters is None else self._counters.snapshot()
        self._started = perf_counter_ns()

    def __exit__(self, *_error: object) -> None:
        spent, before = perf_counter_ns() - self._started, self._before
        after = before if self._counters is None else self._counters.snapshot()
        size = after.read_bytes - before.read_bytes
        self._meter.spend(self._name, spent, after.read_iops - before.read_iops, size)


class _NoStep(Step):
    """A block whose time nobody asks for. Used any number of times, by any thread."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_error: object) -> None:
        pass


class UnreadMeter(Meter):
    """A meter whose figures nobody reads: it keeps none, so that all scans may share one."""

    __slots__ = ("_step",)

    def __init__(self) -> None:
        super().__init__()
        self._step = _NoStep(self, "")

    def count(self, name: str, number: int) -> None:
        """Add nothing."""

    def spend(self, name: str, nanoseconds: int, iops: int = 0, size: int = 0) -> None:
        """Add nothing."""

    def step(self, name: str, counters: IoCounters | None = None) -> Step:
        """A block that is not timed."""
        return self._step

    def fallback(self, path: str, reason: str, error: Exception | None = None) -> None:
        """Only log that a quicker way was tried and given up."""
        _log_fallback(path, reason, error)


NOBODY: Final = UnreadMeter()
"""The meter of scans of which no figures are asked for."""


def _log_fallback(path: str, reason: str, error: Exception | None) -> None:
    import logging

    logging.getLogger("glaive.scan").debug(
        "%s: %s; reading the general way", path, reason, exc_info=error
    )
