"""What a scan or a search did, handed to who asked for it."""

from __future__ import annotations

import logging

from glaive.events import EXECUTION, anyone_listens, emit
from glaive.io.stats import IOStats
from glaive.named_tuple import NamedTuple
from glaive.scan.metrics import NOBODY, Meter, ScanStatistics
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot

__all__ = ["Reading", "counters_before", "meter_for", "report", "statistics"]

_log = logging.getLogger("glaive.scan")


class Reading(NamedTuple):
    """The counters of a store and of a cache of indices at one time."""

    store: IOStats
    indices: int
    parts: int
    hits: int
    misses: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Reading:
        """Read the counters of a version."""
        cache = snapshot.session.index_cache
        counts = cache.opened, cache.loaded, cache.hits, cache.misses
        return cls(snapshot.store.counters.snapshot(), *counts)


_NOBODY_ASKS = Reading(IOStats(), 0, 0, 0, 0)


def meter_for(options: ScanOptions) -> Meter:
    """A meter for a scan, for :func:`report`; one that counts nothing where nobody asks."""
    if options.scan_stats_callback is None and not anyone_listens():
        return NOBODY
    return Meter()


def counters_before(snapshot: Snapshot, options: ScanOptions) -> Reading:
    """The counters before a scan, for :func:`report`; all 0 where nobody asks."""
    if options.scan_stats_callback is None and not anyone_listens():
        return _NOBODY_ASKS
    return Reading.of(snapshot)


def report(
    snapshot: Snapshot, options: ScanOptions, meter: Meter, before: Reading, rows: int
) -> None:
    """Call ``scan_stats_callback``, if there is one; its errors are logged.

    Parameters
    ----------
    before
        The counters when the scan began.
    rows
        Of the result.
    """
    callback = options.scan_stats_callback
    if callback is None and not anyone_listens():
        return
    meter.count("output_rows", rows)
    figures = statistics(meter, before, Reading.of(snapshot))
    emit(
        EXECUTION,
        type="plan_run",
        output_rows=rows,
        iops=figures.iops,
        requests=figures.requests,
        bytes_read=figures.bytes_read,
        indices_loaded=figures.indices_loaded,
        parts_loaded=figures.parts_loaded,
        index_comparisons=figures.index_comparisons,
    )
    if callback is None:
        return
    try:
        callback(figures)
    except Exception:
        _log.exception("scan_stats_callback failed")


def statistics(meter: Meter, before: Reading, after: Reading) -> ScanStatistics:
    """The figures between two readings of the counters."""
    reads = after.store.read_iops - before.store.read_iops
    counts = meter.counts
    return ScanStatistics(
        iops=reads,
        requests=reads,
        bytes_read=after.store.read_bytes - before.store.read_bytes,
        indices_loaded=after.indices - before.indices,
        parts_loaded=after.parts - before.parts,
        index_cache_hits=after.hits - before.hits,
        index_cache_misses=after.misses - before.misses,
        index_comparisons=counts["rows_compared"] + counts["index_comparisons"],
        all_counts=dict(counts),
        all_times=dict(meter.times),
    )
