"""Scans of nested columns."""

from __future__ import annotations

from benchmarks.workloads.common import Workload, scan

__all__ = ["WORKLOADS"]

WORKLOADS = [
    Workload("scan list<int32>", 7, scan("nested", ["ints"])),
    Workload("scan list<string>", None, scan("nested", ["strings"])),
    Workload("scan struct with nulls", 7, scan("nested", ["struct"])),
    Workload("scan map<string, int64>", None, scan("maps")),
    Workload("scan packed struct", None, scan("packed")),
]
