"""Lance datasets and files in pure Python.

Names are loaded when first used: ``import glaive`` costs a millisecond and loads neither
Arrow nor numba, object stores or Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glaive.config import settings
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
    from glaive.dataset.merging.merge_insert import MergeInsertBuilder
    from glaive.dataset.open import dataset
    from glaive.dataset.scanner import LanceScanner, Scanner
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
    from glaive.index.text.tokenizers.query_tokens import FtsToken, tokenize
    from glaive.ingestion.job import IngestResult, ingest
    from glaive.scan.metrics import ScanStatistics
    from glaive.scan.run.compare import ColumnOrdering
    from glaive.scan.session import Session

__all__ = [
    "BatchUDF",
    "Blob",
    "BlobArray",
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
    "dataset",
    "ingest",
    "settings",
    "tokenize",
    "write_dataset",
]

__version__ = "0.1.0"

_HOMES = {
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
    "BatchUDF": "glaive.dataset.columns.udf",
    "batch_udf": "glaive.dataset.columns.udf",
    "CleanupStats": "glaive.dataset.versions.cleanup",
    "Transaction": "glaive.dataset.commits.transactions",
    "LanceOperation": "glaive.dataset.commits.lance_operation",
    "Index": "glaive.dataset.commits.index_metadata",
    "FragmentMetadata": "glaive.dataset.fragments.metadata",
    "Blob": "glaive.format.blob_type",
    "BlobArray": "glaive.format.blob_type",
    "BlobFile": "glaive.scan.blobs.file",
    "BlobType": "glaive.format.blob_type",
    "ColumnOrdering": "glaive.scan.run.compare",
    "blob_array": "glaive.dataset.blobs.values",
    "blob_field": "glaive.dataset.blobs.values",
    "DatasetBasePath": "glaive.dataset.writing.base_paths",
    "GlaiveError": "glaive.errors",
    "LanceDataset": "glaive.dataset.dataset",
    "LanceFragment": "glaive.dataset.fragments.fragment",
    "LanceSchema": "glaive.format.fields",
    "Scanner": "glaive.dataset.scanner",
    "Session": "glaive.scan.session",
    "settings": "glaive.config",
    "IngestResult": "glaive.ingestion.job",
    "ingest": "glaive.ingestion.job",
    "tokenize": "glaive.index.text.tokenizers.query_tokens",
    "write_dataset": "glaive.dataset.write",
}

_MODULES = (
    "commit",
    "dataset",
    "errors",
    "file",
    "fragment",
    "indices",
    "optimize",
    "progress",
    "query",
    "schema",
    "spark",
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
    raise AttributeError(f"module 'glaive' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
