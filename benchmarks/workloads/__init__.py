"""Workloads of the benchmark: one module per topic, each with its ``WORKLOADS``.

To add a topic, write its module and name it in ``TOPICS``, in the order of the table.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from benchmarks.workloads.common import Bench, Row, Workload

__all__ = ["TOPICS", "Bench", "Row", "Workload", "workloads"]

TOPICS = (
    "scans",
    "nested",
    "stored",
    "streams",
    "queries",
    "search",
    "takes",
    "cold",
    "tables",
    "writes",
    "changes",
    "processes",
    "memory",
    "vectors",
)


def workloads() -> list[Workload]:
    """Return all workloads in the order of the table."""
    found: list[Workload] = []
    for topic in TOPICS:
        module = import_module(f"benchmarks.workloads.{topic}")
        found += [replace(workload, group=topic) for workload in module.WORKLOADS]
    return found
