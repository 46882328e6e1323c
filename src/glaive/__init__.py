"""Lance datasets and files in pure Python.

Names are loaded when first used: ``import glaive`` costs a millisecond and loads neither
Arrow nor numba, object stores or Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glaive import (
        arrow,
        bitmap,
        blob,
        commit,
        compat,
        debug,
        dependencies,
        errors,
        file,
        fragment,
        hf,
        indices,
        io,
        log,
        optimize,
        otel,
        progress,
        pydantic,
        query,
        sampler,
        schema,
        spark,
        torch,
        tracing,
        types,
        udf,
        util,
        vector,
    )
    from glaive.config import settings
    from glaive.dataset.blobs.binary_column import BlobColumn
    from glaive.dataset.blobs.values import (
        Blob,
        BlobArray,
        BlobFile,
        BlobType,
        blob_array,
        blob_field,
    )
    from glaive.dataset.columns.udf import BatchUDF, batch_udf
    from glaive.dataset.commits.index_metadata import Index, IndexFile
    from glaive.dataset.commits.lance_operation import LanceOperation
    from glaive.dataset.commits.transactions import Transaction
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.fragments.fragment import LanceFragment
    from glaive.dataset.fragments.metadata import FragmentMetadata
    from glaive.dataset.indexing.progress import IndexProgress
    from glaive.dataset.io_counters import bytes_read_counter, iops_counter, simd_info
    from glaive.dataset.merging.merge_insert import MergeInsertBuilder
    from glaive.dataset.open import dataset
    from glaive.dataset.scanner import LanceScanner, Scanner
    from glaive.dataset.sql import sql
    from glaive.dataset.stats import DataStatistics, FieldStatistics
    from glaive.dataset.versions.cleanup import (
        CleanupCandidateFile,
        CleanupExplanation,
        CleanupReferencedBranch,
        CleanupStats,
    )
    from glaive.dataset.write import write_dataset
    from glaive.dataset.writing.base_paths import DatasetBasePath
    from glaive.errors import GlaiveError
    from glaive.format.fields import LanceSchema
    from glaive.format.json_schema import json_to_schema, schema_to_json
    from glaive.index.text.tokenizers.query_tokens import FtsToken, tokenize
    from glaive.ingestion.job import IngestResult, ingest
    from glaive.log import set_logger
    from glaive.scan.metrics import ScanStatistics
    from glaive.scan.run.compare import ColumnOrdering
    from glaive.scan.session import Session

__all__ = [
    "BatchUDF",
    "Blob",
    "BlobArray",
    "BlobColumn",
    "BlobFile",
    "BlobType",
    "CleanupCandidateFile",
    "CleanupExplanation",
    "CleanupReferencedBranch",
    "CleanupStats",
    "ColumnOrdering",
    "DataStatistics",
    "DatasetBasePath",
    "FieldStatistics",
    "FragmentMetadata",
    "FtsToken",
    "GlaiveError",
    "Index",
    "IndexFile",
    "IndexProgress",
    "IngestResult",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceSchema",
    "MergeInsertBuilder",
    "ScanStatistics",
    "Scanner",
    "Session",
    "Transaction",
    "batch_udf",
    "blob_array",
    "blob_field",
    "bytes_read_counter",
    "dataset",
    "ingest",
    "iops_counter",
    "json_to_schema",
    "schema_to_json",
    "set_logger",
    "settings",
    "simd_info",
    "sql",
    "tokenize",
    "write_dataset",
]

__version__ = "0.1.0"

_HOMES = {
    "BatchUDF": "glaive.dataset.columns.udf",
    "Blob": "glaive.format.blob_type",
    "BlobArray": "glaive.format.blob_type",
    "BlobColumn": "glaive.dataset.blobs.binary_column",
    "BlobFile": "glaive.scan.blobs.file",
    "BlobType": "glaive.format.blob_type",
    "CleanupCandidateFile": "glaive.dataset.versions.cleanup",
    "CleanupExplanation": "glaive.dataset.versions.cleanup",
    "CleanupReferencedBranch": "glaive.dataset.versions.cleanup",
    "DataStatistics": "glaive.dataset.stats",
    "FieldStatistics": "glaive.dataset.stats",
    "FtsToken": "glaive.index.text.tokenizers.query_tokens",
    "IndexFile": "glaive.dataset.commits.index_metadata",
    "IndexProgress": "glaive.dataset.indexing.progress",
    "LanceScanner": "glaive.dataset.scanner",
    "ScanStatistics": "glaive.scan.metrics",
    "MergeInsertBuilder": "glaive.dataset.merging.merge_insert",
    "batch_udf": "glaive.dataset.columns.udf",
    "CleanupStats": "glaive.dataset.versions.cleanup",
    "ColumnOrdering": "glaive.scan.run.compare",
    "DatasetBasePath": "glaive.dataset.writing.base_paths",
    "FragmentMetadata": "glaive.dataset.fragments.metadata",
    "GlaiveError": "glaive.errors",
    "Index": "glaive.dataset.commits.index_metadata",
    "LanceDataset": "glaive.dataset.dataset",
    "LanceFragment": "glaive.dataset.fragments.fragment",
    "LanceOperation": "glaive.dataset.commits.lance_operation",
    "LanceSchema": "glaive.format.fields",
    "Scanner": "glaive.dataset.scanner",
    "Session": "glaive.scan.session",
    "Transaction": "glaive.dataset.commits.transactions",
    "blob_array": "glaive.dataset.blobs.values",
    "blob_field": "glaive.dataset.blobs.values",
    "bytes_read_counter": "glaive.dataset.io_counters",
    "iops_counter": "glaive.dataset.io_counters",
    "json_to_schema": "glaive.format.json_schema",
    "sanitize_ts": "glaive.dataset.versions.moments",
    "schema_to_json": "glaive.format.json_schema",
    "set_logger": "glaive.log",
    "settings": "glaive.config",
    "IngestResult": "glaive.ingestion.job",
    "ingest": "glaive.ingestion.job",
    "tokenize": "glaive.index.text.tokenizers.query_tokens",
    "simd_info": "glaive.dataset.io_counters",
    "sql": "glaive.dataset.sql",
    "write_dataset": "glaive.dataset.write",
}

_MODULES = (
    "arrow",
    "bitmap",
    "blob",
    "commit",
    "compat",
    "dataset",
    "debug",
    "dependencies",
    "errors",
    "file",
    "fragment",
    "indices",
    "hf",
    "io",
    "lance",
    "log",
    "mem_wal",
    "namespace",
    "optimize",
    "otel",
    "progress",
    "query",
    "pydantic",
    "sampler",
    "schema",
    "spark",
    "torch",
    "tracing",
    "types",
    "udf",
    "util",
    "vector",
)
"""Available as ``glaive.errors`` and so on without an import."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # the next access does not come here
        return value
    if name in _MODULES:
        return import_module(f"glaive.{name}")
    from glaive.compat.absent import absent_names
    from glaive.compat.refusals import REFUSED

    return absent_names(__name__, REFUSED[__name__], globals())(name)


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__")]
    return sorted({*own, *__all__, *_MODULES})
