"""Progress of writes and of index builds, under the names of ``lance.progress``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.indexing.progress import IndexProgress

__all__ = ["FragmentWriteProgress", "IndexProgress", "NoopFragmentWriteProgress"]


class FragmentWriteProgress(ABC):
    """Called for each file; derive from it and pass an instance as ``progress``."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A file is started; the fragment has no files yet."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A file is finished; the fragment has it, but no id yet."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Does nothing."""

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""
