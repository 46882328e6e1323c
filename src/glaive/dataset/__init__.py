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

if TYPE_CHECKING:
    from inspect import Signature

    from glaive.dataset.dataset import LanceDataset

_HOMES = {
    "BatchUDF": "glaive.dataset.columns.udf",
    "BlobFile": "glaive.scan.blobs.file",
    "Branches": "glaive.dataset.versions.refs",
    "ChangeFeed": "glaive.dataset.changes.feed",
    "CleanupExplanation": "glaive.dataset.versions.cleanup",
    "CleanupStats": "glaive.dataset.versions.cleanup",
    "ColumnOrdering": "glaive.scan.run.compare",
    "Compaction": "glaive.dataset.compaction.optimize",
    "CompactionMetrics": "glaive.dataset.compaction.result",
    "DataFile": "glaive.dataset.fragments.metadata",
    "DataStatistics": "glaive.dataset.stats",
    "DatasetDelta": "glaive.dataset.versions.delta",
    "DatasetOptimizer": "glaive.dataset.compaction.optimize",
    "FieldStatistics": "glaive.dataset.stats",
    "FragmentMetadata": "glaive.dataset.fragments.metadata",
    "DocumentGranularity": "glaive.scan.full_text.queries",
    "FullTextQuery": "glaive.scan.full_text.queries",
    "Index": "glaive.dataset.commits.index_metadata",
    "IndexConfig": "glaive.dataset.indexing.parameters",
    "IndexFile": "glaive.dataset.commits.index_metadata",
    "IndexProgress": "glaive.dataset.indexing.progress",
    "IndexSegment": "glaive.indices",
    "LANCE_COMMIT_MESSAGE_KEY": "glaive.format.transaction",
    "LanceDataset": "glaive.dataset.dataset",
    "LanceFragment": "glaive.dataset.fragments.fragment",
    "LanceOperation": "glaive.dataset.commits.lance_operation",
    "LanceScanner": "glaive.dataset.scanner",
    "LanceSchema": "glaive.format.fields",
    "LanceStats": "glaive.dataset.stats",
    "MergeInsertBuilder": "glaive.dataset.merging.merge_insert",
    "SupportedDistributedIndices": "glaive.dataset.indexing.parameters",
    "SqlQuery": "glaive.dataset.interop",
    "SqlQueryBuilder": "glaive.dataset.interop",
    "Tags": "glaive.dataset.versions.refs",
    "Transaction": "glaive.dataset.commits.transactions",
    "VectorIndexReader": "glaive.dataset.indexing.vector_parts",
    "batch_udf": "glaive.dataset.columns.udf",
    "write_dataset": "glaive.dataset.write",
}


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

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})

    def __getattr__(self, name: str) -> Any:
        # Names of classes and functions that pylance has in its module of this name.
        if name not in _HOMES:
            raise AttributeError(f"module 'glaive.dataset' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


sys.modules[__name__].__class__ = _Callable
