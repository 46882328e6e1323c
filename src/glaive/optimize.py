"""Compaction under the names of ``lance.optimize``."""

from __future__ import annotations

from glaive.dataset.compaction.optimize import Compaction
from glaive.dataset.compaction.plan import CompactionOptions, CompactionPlan, CompactionTask
from glaive.dataset.compaction.task import CompactionMetrics, RewriteResult

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
]
