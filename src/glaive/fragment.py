"""Fragments under the names of ``lance.fragment``."""

from __future__ import annotations

from glaive.dataset.fragments.data_files import DataFile, DeletionFile
from glaive.dataset.fragments.fragment import FragmentSession, LanceFragment
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.fragments.row_ids import RowDatasetVersionMeta, RowIdMeta, RowIdSequence
from glaive.dataset.writing.uncommitted import write_fragments

__all__ = [
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "FragmentSession",
    "LanceFragment",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "write_fragments",
]
