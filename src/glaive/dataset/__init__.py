"""What users see: datasets, scanners, fragments, and how rows are written.

The package has the name of the function that opens a dataset, and importing a package sets
its name in ``glaive``. So the module is callable: ``glaive.dataset(uri)`` is
:func:`glaive.dataset.open.dataset` whether or not the package was imported before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED

if TYPE_CHECKING:
    from inspect import Signature

    from glaive.dataset.dataset import LanceDataset

_HOMES = {
    "AlterColumn": "glaive.dataset.result_types",
    "AutoCleanupConfig": "glaive.dataset.result_types",
    "BatchUDF": "glaive.dataset.columns.udf",
    "BatchUDFCheckpoint": "glaive.udf",
    "Bitmap": "glaive.dataset.bitmap",
    "BlobFile": "glaive.scan.blobs.file",
    "Branch": "glaive.dataset.result_types",
    "Branches": "glaive.dataset.versions.refs",
    "ChangeFeed": "glaive.dataset.changes.feed",
    "BulkCommitResult": "glaive.dataset.result_types",
    "CleanupExplanation": "glaive.dataset.versions.cleanup",
    "CleanupStats": "glaive.dataset.versions.cleanup",
    "ColumnOrdering": "glaive.scan.run.compare",
    "Compaction": "glaive.dataset.compaction.optimize",
    "CompactionMetrics": "glaive.dataset.compaction.result",
    "DEFAULT_BLOB_BUFFER_SIZE": "glaive.blob",
    "DataFile": "glaive.dataset.fragments.metadata",
    "DataStatistics": "glaive.dataset.stats",
    "DatasetBasePath": "glaive.dataset.writing.base_paths",
    "DatasetDelta": "glaive.dataset.versions.delta",
    "DatasetOptimizer": "glaive.dataset.compaction.optimize",
    "DatasetStats": "glaive.dataset.result_types",
    "DeleteResult": "glaive.dataset.result_types",
    "DocumentGranularity": "glaive.scan.full_text.queries",
    "ExecuteResult": "glaive.dataset.result_types",
    "FieldStatistics": "glaive.dataset.stats",
    "FragmentMetadata": "glaive.dataset.fragments.metadata",
    "FullTextQuery": "glaive.scan.full_text.queries",
    "MinHashQuery": "glaive.scan.nearest.minhash_query",
    "IOStats": "glaive.io.stats",
    "Index": "glaive.dataset.commits.index_metadata",
    "IndexConfig": "glaive.dataset.indexing.parameters",
    "IndexFile": "glaive.dataset.commits.index_metadata",
    "IndexProgress": "glaive.dataset.indexing.progress",
    "IndexSegment": "glaive.indices",
    "IndexInformation": "glaive.dataset.result_types",
    "LANCE_COMMIT_MESSAGE_KEY": "glaive.format.transaction",
    "LanceDataset": "glaive.dataset.dataset",
    "LanceFragment": "glaive.dataset.fragments.fragment",
    "LanceOperation": "glaive.dataset.commits.lance_operation",
    "LanceScanner": "glaive.dataset.scanner",
    "LanceSchema": "glaive.format.fields",
    "LanceStats": "glaive.dataset.stats",
    "MergeInsertBuilder": "glaive.dataset.merging.merge_insert",
    "SupportedDistributedIndices": "glaive.dataset.indexing.parameters",
    "ScanStatistics": "glaive.scan.metrics",
    "ScannerBuilder": "glaive.dataset.scanner_builder",
    "Session": "glaive.scan.session",
    "SqlQuery": "glaive.dataset.queries",
    "SqlQueryBuilder": "glaive.dataset.queries",
    "Tag": "glaive.dataset.result_types",
    "Tags": "glaive.dataset.versions.refs",
    "Transaction": "glaive.dataset.commits.transactions",
    "VectorIndexReader": "glaive.dataset.indexing.vector_parts",
    "UpdateResult": "glaive.dataset.result_types",
    "Version": "glaive.dataset.result_types",
    "VersionRef": "glaive.dataset.result_types",
    "batch_udf": "glaive.dataset.columns.udf",
    "model_to_dict": "glaive.dataset.writing.models",
    "td_to_micros": "glaive.dataset.versions.moments",
    "write_dataset": "glaive.dataset.write",
}


_refused = absent_names(__name__, REFUSED[__name__], globals())


@cache
def _function() -> Callable[..., LanceDataset]:
    from glaive.dataset.open import dataset

    return dataset


class _Callable(ModuleType):
    @property
    def __signature__(self) -> Signature:
        from inspect import signature

        return signature(_function())

    def __call__(self, *args: Any, **options: Any) -> LanceDataset:
        """Open a dataset; see :func:`glaive.dataset.open.dataset`."""
        return _function()(*args, **options)

    def __reduce__(self) -> tuple[object, ...]:
        # cloudpickle, of Ray and Spark, knows plain modules only.
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})

    def __getattr__(self, name: str) -> Any:
        # Names of classes and functions that pylance has in its module of this name.
        if name not in _HOMES:
            return _refused(name)
        return getattr(import_module(_HOMES[name]), name)


sys.modules[__name__].__class__ = _Callable
