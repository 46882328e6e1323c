"""What a scan or a search did, handed to who asked for it."""

from __future__ import annotations

import logging

from glaive.io.stats import IOStats
from glaive.scan.metrics import Meter, ScanStatistics
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot

__all__ = ["report", "statistics"]

_log = logging.getLogger("glaive.scan")


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
    if callback is None:
        return
    meter.count("output_rows", rows)
    try:
        callback(statistics(meter, before, snapshot.store.counters.snapshot()))
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
