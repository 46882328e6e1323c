"""Scans of one column and of all columns into a table."""

from __future__ import annotations

from benchmarks.workloads.common import Workload, scan

__all__ = ["WORKLOADS"]

WORKLOADS = [
    Workload("scan float64 flat, one run", 20, scan("plain")),
    Workload("scan float64 flat, in chunks", 20, scan("flat")),
    Workload("scan bool", 20, scan("table", ["flag"])),
    Workload("scan vectors", 20, scan("vectors")),
    Workload("scan int64 bit-packed", 5, scan("table", ["seq"])),
    Workload("scan int32 bit-packed", 5, scan("table", ["small"])),
    Workload("scan float64 bit-packed", 5, scan("table", ["float"])),
    Workload("scan timestamp", 5, scan("table", ["time"])),
    Workload("scan int64 with nulls", 7, scan("table", ["nullable"])),
    Workload("scan string, 50 values", 8, scan("table", ["kind"])),
    Workload("scan dictionary array", 20, scan("dictionary")),
    Workload("scan text", 3, scan("table", ["text"])),
    Workload("scan table", 4, scan("table")),
]
