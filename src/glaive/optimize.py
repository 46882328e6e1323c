"""Compaction under the names of ``lance.optimize``."""

from __future__ import annotations

from typing import TypedDict

from glaive.dataset.compact import Compaction
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


class CompactionOptions(TypedDict, total=False):
    """Options of :class:`Compaction`: a dictionary with any of these keys.

    :class:`glaive.dataset.compaction_tasks.CompactionOptions` describes them.
    """

    target_rows_per_fragment: int | None
    max_rows_per_group: int | None
    max_bytes_per_file: int | None
    materialize_deletions: bool | None
    materialize_deletions_threshold: float | None
    num_threads: int | None
    batch_size: int | None
    io_buffer_size: int | None
    compaction_mode: str | None
    binary_copy_read_batch_bytes: int | None
    defer_index_remap: bool | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None
    excluded_fragment_ids: list[int] | None
    data_storage_version: str | None
