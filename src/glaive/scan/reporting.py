"""What a scan or a search did, handed to who asked for it."""

from __future__ import annotations

import logging

from glaive.events import EXECUTION, anyone_listens, emit
from glaive.io.stats import IOStats
from glaive.scan.metrics import NOBODY, Meter, ScanStatistics
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot

__all__ = ["counters_before", "meter_for", "report", "statistics"]

_log = logging.getLogger("glaive.scan")
_NOBODY_ASKS = IOStats()


def meter_for(options: ScanOptions) -> Meter:
    """A meter for a scan, for :func:`report`; one that counts nothing where nobody asks."""
    if options.scan_stats_callback is None and not anyone_listens():
        return NOBODY
    return Meter()


def counters_before(snapshot: Snapshot, options: ScanOptions) -> IOStats:
    """The store's counters before a scan, for :func:`report`; all 0 where nobody asks."""
    if options.scan_stats_callback is None and not anyone_listens():
        return _NOBODY_ASKS
    return snapshot.store.counters.snapshot()


def report(
    snapshot: Snapshot, options: ScanOptions, meter: Meter, before: IOStats, rows: int
) -> None:
    """Call ``scan_stats_callback``, if there is one; its errors are logged.

    Parameters
    ----------
    before
        The store's counters when the scan began.
    rows
        Of the result.
    """
    callback = options.scan_stats_callback
    if callback is None and not anyone_listens():
        return
    meter.count("output_rows", rows)
    figures = statistics(meter, before, snapshot.store.counters.snapshot())
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


def statistics(meter: Meter, before: IOStats, after: IOStats) -> ScanStatistics:
    """The figures between two readings of a store's counters."""
    reads = after.read_iops - before.read_iops
    counts = meter.counts
    return ScanStatistics(
        iops=reads,
        requests=reads,
        bytes_read=after.read_bytes - before.read_bytes,
        parts_loaded=counts["partitions_searched"],
        index_comparisons=counts["rows_compared"],
        all_counts=dict(counts),
        all_times=dict(meter.times),
    )
