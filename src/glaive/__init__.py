"""Lance datasets and files in pure Python.

Names are loaded on first use: ``import glaive`` takes a millisecond. Arrow, numba,
object stores and Spark are loaded later.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

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
    from glaive.dataset.blobs import BlobColumn, blob_array, blob_field
    from glaive.dataset.cleanup import (
        CleanupCandidateFile,
        CleanupExplanation,
        CleanupReferencedBranch,
        CleanupStats,
    )
    from glaive.dataset.columns.udf import BatchUDF, batch_udf
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.fragment import LanceFragment
    from glaive.dataset.fragment_metadata import FragmentMetadata
    from glaive.dataset.indexing.task import IndexProgress
    from glaive.dataset.lance_operation import Index, IndexFile, LanceOperation
    from glaive.dataset.merging.merge_insert import MergeInsertBuilder
    from glaive.dataset.monitoring import bytes_read_counter, iops_counter, simd_info
    from glaive.dataset.open import dataset as _open
    from glaive.dataset.open import sql
    from glaive.dataset.scanner import LanceScanner, Scanner
    from glaive.dataset.stats import DataStatistics, FieldStatistics
    from glaive.dataset.transactions import Transaction
    from glaive.dataset.write import write_dataset
    from glaive.dataset.writing.plan import DatasetBasePath
    from glaive.errors import GlaiveError
    from glaive.format.blobs import Blob, BlobArray, BlobType
    from glaive.format.extension import json_to_schema, schema_to_json
    from glaive.format.fields import LanceSchema
    from glaive.index.text.tokenizers import FtsToken, tokenize
    from glaive.ingestion.job import ingest
    from glaive.ingestion.task import IngestResult
    from glaive.scan.blob_files import BlobFile
    from glaive.scan.options import ScanStatistics
    from glaive.scan.run.compare import ColumnOrdering
    from glaive.scan.snapshot import Session
    from glaive.tracing import set_logger

    class _Dataset:
        """The type of ``glaive.dataset``: a module that can be called as the function."""

        ColumnOrdering = ColumnOrdering
        LanceDataset = LanceDataset
        LanceOperation = LanceOperation
        __call__ = staticmethod(_open)

    dataset = _Dataset()

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

_NAMES = {
    "config": "settings",
    "dataset.blobs": "BlobColumn blob_array blob_field",
    "dataset.columns.udf": "BatchUDF batch_udf",
    "dataset.lance_operation": "Index IndexFile LanceOperation",
    "dataset.transactions": "Transaction",
    "dataset.dataset": "LanceDataset",
    "dataset.fragment": "LanceFragment",
    "dataset.fragment_metadata": "FragmentMetadata",
    "dataset.indexing.task": "IndexProgress",
    "dataset.monitoring": "bytes_read_counter iops_counter simd_info",
    "dataset.merging.merge_insert": "MergeInsertBuilder",
    "dataset.scanner": "LanceScanner Scanner",
    "dataset.open": "sql",
    "dataset.stats": "DataStatistics FieldStatistics",
    "dataset.cleanup": (
        "CleanupCandidateFile CleanupExplanation CleanupReferencedBranch CleanupStats"
    ),
    "dataset.version": "sanitize_ts",
    "dataset.write": "write_dataset",
    "dataset.writing.plan": "DatasetBasePath",
    "errors": "GlaiveError",
    "format.blobs": "Blob BlobArray BlobType",
    "format.fields": "LanceSchema",
    "format.extension": "json_to_schema schema_to_json",
    "index.text.tokenizers": "FtsToken tokenize",
    "ingestion.job": "IngestResult ingest",
    "tracing": "set_logger",
    "scan.blob_files": "BlobFile",
    "scan.options": "ScanStatistics",
    "scan.run.compare": "ColumnOrdering",
    "scan.snapshot": "Session",
}
"""Names by the module of glaive that has them."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

_MODULES = (
    "arrow bitmap blob commit compat dataset debug dependencies errors file fragment indices "
    "hf io lance log mem_wal namespace optimize otel progress query pydantic sampler schema "
    "spark torch tracing types udf util vector"
)
"""Modules available as ``glaive.errors`` and so on as soon as glaive is imported."""


_SUBMODULES = ("compute", "dataset", "fs", "pandas_compat", "substrait")
"""Modules of pyarrow that pylance imports, so that ``pa.dataset`` works after its import."""


def _of_pyarrow(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"pyarrow.{name}")
    raise AttributeError(f"module 'pyarrow' has no attribute {name!r}")


def _reach_submodules() -> None:
    """Import these modules on first use: importing all of them takes longer than glaive."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:
        vars(pyarrow).setdefault("__getattr__", _of_pyarrow)


_reach_submodules()


class _OfPylance:
    """Finder of missing modules that only have names of other modules."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        if not name.startswith("glaive."):
            return None
        from glaive.compat.modules import spec_of

        return spec_of(name)


sys.meta_path.append(_OfPylance)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value: object = getattr(import_module(f"glaive.{_HOMES[name]}"), name)
        _reach_submodules()
        globals()[name] = value  # the next access does not call this function
        return value
    if name in _MODULES.split():
        return import_module(f"glaive.{name}")
    from glaive.compat.absent import REFUSED, absent_names

    return absent_names(__name__, REFUSED[__name__], globals())(name)


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__")]
    return sorted({*own, *__all__, *_MODULES.split()})
