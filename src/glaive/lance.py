"""The names of ``lance.lance``, pylance's compiled module, which some packages import from."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from glaive.compat.absent import REFUSED, absent_names
from glaive.compat.alias import PYLANCE_VERSION

__all__ = ["__version__"]

__version__ = PYLANCE_VERSION

_NAMES = {
    "arrow": "BFloat16 bfloat16_array",
    "bitmap": "Bitmap",
    "blob": "LanceBlobFile",
    "dataset.metrics_export": "bytes_read_counter iops_counter simd_info",
    "dataset.versions.cleanup": (
        "CleanupCandidateFile CleanupExplanation CleanupReferencedBranch CleanupStats"
    ),
    "dataset.writing.plan": "DatasetBasePath",
    "debug": "format_fragment format_manifest format_schema list_transactions",
    "file": (
        "LanceBufferDescriptor LanceColumnMetadata LanceFileMetadata LanceFileReader "
        "LanceFileSession LanceFileStatistics LanceFileWriter LancePageMetadata stable_version"
    ),
    "dataset.pylance_members": "manifest_needs_migration",
    "fragment": "DeletionFile RowDatasetVersionMeta RowIdMeta RowIdSequence",
    "io.store": "IOStats",
    "optimize": "Compaction CompactionMetrics CompactionPlan CompactionTask RewriteResult",
    "otel": (
        "MetricDescription MetricPoint lance_metrics_catalog register_lance_metrics_recorder "
        "snapshot_lance_metrics"
    ),
    "scan.options": "ScanStatistics",
    "schema": "LanceSchema",
    "tracing": "TraceEvent capture_trace_events shutdown_tracing trace_to_chrome",
}
"""Names by the module of glaive that has them."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

_refused = absent_names(__name__, REFUSED[__name__], globals())


def __getattr__(name: str) -> Any:
    if name == "indices":
        return import_module("glaive.indices.training")
    if name not in _HOMES:
        return _refused(name)
    return getattr(import_module(f"glaive.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
