"""The public API: datasets, scanners, fragments, and how to write rows.

The function that opens a dataset has the name of this package, and importing a package sets
its name in ``glaive``. So the module is callable: ``glaive.dataset(uri)`` is
:func:`glaive.dataset.open.dataset` even if the package was imported before.
``help(glaive.dataset.open.dataset)`` explains its parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glaive.compat.absent import REFUSED, absent_names

if TYPE_CHECKING:
    from inspect import Signature

    from glaive.dataset.dataset import LanceDataset as LanceDataset
    from glaive.dataset.fragment import LanceFragment as LanceFragment
    from glaive.dataset.lance_operation import LanceOperation as LanceOperation
    from glaive.dataset.merging.merge_insert import MergeInsertBuilder as MergeInsertBuilder
    from glaive.dataset.scanner import LanceScanner as LanceScanner
    from glaive.dataset.transactions import Transaction as Transaction
    from glaive.dataset.write import write_dataset as write_dataset
    from glaive.scan.run.compare import ColumnOrdering as ColumnOrdering

    def __getattr__(name: str) -> Any: ...  # the other names of ``_HOMES``


_SHARED = (
    "BatchUDF BlobFile CleanupExplanation CleanupStats ColumnOrdering DataStatistics "
    "DatasetBasePath FieldStatistics FragmentMetadata Index IndexFile IndexProgress "
    "LanceDataset LanceFragment LanceOperation LanceScanner LanceSchema MergeInsertBuilder "
    "ScanStatistics Session Transaction batch_udf write_dataset"
)
"""Names that ``glaive`` also exports."""

_RESULTS = (
    "AlterColumn AutoCleanupConfig Branch BulkCommitResult DatasetStats DeleteResult "
    "ExecuteResult IndexInformation Tag UpdateResult Version VersionRef"
)
"""Classes of results of methods."""

_HOMES = {
    **dict.fromkeys(_SHARED.split(), "glaive"),
    **dict.fromkeys(_RESULTS.split(), "glaive.dataset.scanner_builder"),
    "BatchUDFCheckpoint": "glaive.udf",
    "Bitmap": "glaive.dataset.fragment_metadata",
    "Branches": "glaive.dataset.refs",
    "ChangeFeed": "glaive.dataset.change_feed",
    "Compaction": "glaive.dataset.compact",
    "CompactionMetrics": "glaive.dataset.compaction_tasks",
    "DEFAULT_BLOB_BUFFER_SIZE": "glaive.blob",
    "DataFile": "glaive.dataset.fragment_metadata",
    "DatasetDelta": "glaive.dataset.change_feed",
    "DatasetOptimizer": "glaive.dataset.maintenance",
    "DocumentGranularity": "glaive.scan.text_queries",
    "FullTextQuery": "glaive.scan.text_queries",
    "MinHashQuery": "glaive.scan.nearest.options",
    "IOStats": "glaive.io.store",
    "IndexConfig": "glaive.dataset.indexing.create",
    "IndexSegment": "glaive.indices",
    "LANCE_COMMIT_MESSAGE_KEY": "glaive.format.transaction",
    "LanceStats": "glaive.dataset.stats",
    "SupportedDistributedIndices": "glaive.dataset.indexing.create",
    "ScannerBuilder": "glaive.dataset.scanner_builder",
    "SqlQuery": "glaive.dataset.interop",
    "SqlQueryBuilder": "glaive.dataset.interop",
    "Tags": "glaive.dataset.refs",
    "VectorIndexReader": "glaive.dataset.indexing.vector_models",
    "model_to_dict": "glaive.dataset.writing.source",
    "td_to_micros": "glaive.dataset.version",
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
        # cloudpickle (Ray, Spark) pickles only plain modules by name.
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})

    def __getattr__(self, name: str) -> Any:
        # Classes and functions that pylance's module of this name has.
        if name not in _HOMES:
            return _refused(name)
        return getattr(import_module(_HOMES[name]), name)


sys.modules[__name__].__class__ = _Callable
