"""Compaction."""

from glaive.dataset.compact import Compaction as Compaction
from glaive.dataset.compaction_tasks import CompactionMetrics as CompactionMetrics
from glaive.dataset.compaction_tasks import CompactionKeywords as CompactionOptions
from glaive.dataset.compaction_tasks import CompactionPlan as CompactionPlan
from glaive.dataset.compaction_tasks import CompactionTask as CompactionTask
from glaive.dataset.compaction_tasks import RewriteResult as RewriteResult
