"""Fragments under the names of ``lance.fragment``."""

from __future__ import annotations

from glaive.dataset.fragment import LanceFragment
from glaive.dataset.fragment_metadata import DataFile, DeletionFile, FragmentMetadata
from glaive.dataset.uncommitted import write_fragments

__all__ = ["DataFile", "DeletionFile", "FragmentMetadata", "LanceFragment", "write_fragments"]
