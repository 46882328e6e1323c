"""Fragments under the names of ``lance.fragment``."""

from __future__ import annotations

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED
from glaive.dataset.bitmap import Bitmap
from glaive.dataset.columns.udf import BatchUDF
from glaive.dataset.fragments.data_files import DataFile, DeletionFile
from glaive.dataset.fragments.fragment import FragmentSession, LanceFragment
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.fragments.row_ids import RowDatasetVersionMeta, RowIdMeta, RowIdSequence
from glaive.dataset.writing.options import DEFAULT_MAX_BYTES_PER_FILE
from glaive.dataset.writing.progress import FragmentWriteProgress, NoopFragmentWriteProgress
from glaive.dataset.writing.uncommitted import write_fragments
from glaive.scan.session import Session

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
