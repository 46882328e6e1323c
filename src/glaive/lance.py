"""The names of ``lance.lance``, pylance's compiled module, which some packages import from."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from glaive.compat.absent import absent_names
from glaive.compat.alias import PYLANCE_VERSION
from glaive.compat.refusals import REFUSED

__all__ = ["__version__"]

__version__ = PYLANCE_VERSION

_HOMES = {
    "BFloat16": "arrow",
    "Bitmap": "bitmap",
    "CleanupCandidateFile": "dataset.versions.cleanup",
    "CleanupExplanation": "dataset.versions.cleanup",
    "CleanupReferencedBranch": "dataset.versions.cleanup",
    "CleanupStats": "dataset.versions.cleanup",
    "Compaction": "optimize",
    "CompactionMetrics": "optimize",
    "CompactionPlan": "optimize",
    "CompactionTask": "optimize",
    "DatasetBasePath": "dataset.writing.base_paths",
    "DeletionFile": "fragment",
    "IOStats": "io.stats",
    "LanceBlobFile": "blob",
    "LanceBufferDescriptor": "file",
    "LanceColumnMetadata": "file",
    "LanceFileMetadata": "file",
    "LanceFileReader": "file",
    "LanceFileSession": "file",
    "LanceFileStatistics": "file",
    "LanceFileWriter": "file",
    "LancePageMetadata": "file",
    "LanceSchema": "schema",
    "MetricDescription": "otel",
    "MetricPoint": "otel",
    "RewriteResult": "optimize",
    "RowDatasetVersionMeta": "fragment",
    "RowIdMeta": "fragment",
    "RowIdSequence": "fragment",
    "ScanStatistics": "scan.metrics",
    "TraceEvent": "tracing",
    "bfloat16_array": "arrow",
    "bytes_read_counter": "dataset.io_counters",
    "capture_trace_events": "tracing",
    "format_fragment": "debug",
    "format_manifest": "debug",
    "format_schema": "debug",
    "iops_counter": "dataset.io_counters",
    "lance_metrics_catalog": "otel",
    "list_transactions": "debug",
    "register_lance_metrics_recorder": "otel",
    "shutdown_tracing": "tracing",
    "simd_info": "dataset.io_counters",
    "snapshot_lance_metrics": "otel",
    "stable_version": "file",
    "trace_to_chrome": "tracing",
}
"""Modules of glaive with these names."""

_refused = absent_names(__name__, REFUSED[__name__], globals())


def __getattr__(name: str) -> Any:
    if name == "indices":
        return import_module("glaive.indices.training")
    if name not in _HOMES:
        return _refused(name)
    return getattr(import_module(f"glaive.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
