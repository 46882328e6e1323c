"""Compaction under the names of ``lance.optimize``."""

from __future__ import annotations

from glaive.dataset.compact import Compaction
from glaive.dataset.compaction_tasks import CompactionKeywords as CompactionOptions
from glaive.dataset.compaction_tasks import (
    CompactionMetrics,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
]
