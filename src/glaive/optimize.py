"""Compaction under the names of ``lance.optimize``."""

from __future__ import annotations

from glaive.dataset.compact_task import CompactionMetrics, RewriteResult
from glaive.dataset.compaction import CompactionOptions, CompactionPlan, CompactionTask
from glaive.dataset.optimize import Compaction

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
]
