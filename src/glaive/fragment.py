"""Fragments under the names of ``lance.fragment``."""

from __future__ import annotations

from glaive.compat.absent import REFUSED, absent_names
from glaive.dataset.columns.udf import BatchUDF
from glaive.dataset.commits.transactions import write_fragments
from glaive.dataset.fragments.fragment import FragmentSession, LanceFragment
from glaive.dataset.fragments.metadata import (
    Bitmap,
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
    RowIdSequence,
)
from glaive.dataset.writing.fragments import FragmentWriteProgress, NoopFragmentWriteProgress
from glaive.dataset.writing.plan import DEFAULT_MAX_BYTES_PER_FILE
from glaive.scan.snapshot import Session

__all__ = [
    "DEFAULT_MAX_BYTES_PER_FILE",
    "BatchUDF",
    "Bitmap",
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "FragmentSession",
    "FragmentWriteProgress",
    "LanceFragment",
    "NoopFragmentWriteProgress",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "Session",
    "write_fragments",
]

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
