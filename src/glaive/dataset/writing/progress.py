"""Progress of writes: what is called when a data file is started and finished."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.errors import OptionError
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store

__all__ = [
    "FileSystemFragmentWriteProgress",
    "FragmentWriteProgress",
    "NoopFragmentWriteProgress",
    "NumberedProgress",
]


class FragmentWriteProgress(ABC):
    """Called for each file; derive from it and pass an instance as ``progress``."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A file is started; of ``LanceFragment.create``, the fragment has its name and the id."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A file is finished; the fragment has it."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Does nothing."""

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""


class NumberedProgress(FragmentWriteProgress):
    """Tells another one of the only fragment of a write, whose id is known."""

    def __init__(self, inner: FragmentWriteProgress, number: int) -> None:
        self._inner, self._number = inner, number

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Tell that the file is started."""
        self._inner.begin(replace(fragment, id=self._number), **kwargs)

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Tell that the file is finished."""
        self._inner.complete(replace(fragment, id=self._number), **kwargs)


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Keeps notes of unfinished files in a folder, so that another process can see them.

    For each file there are ``fragment_<id>.json``, its metadata, and while it is being written
    ``fragment_<id>.in_progress`` with the id and ``metadata``.

    Parameters
    ----------
    base_uri
        The folder: a path, or a URI of an object store.
    metadata
        Texts that are written into each note, such as the name of the worker.
    """

    PROGRESS_EXT: ClassVar[str] = ".in_progress"

    def __init__(self, base_uri: str, metadata: Mapping[str, str] | None = None) -> None:
        self._base_uri = base_uri
        self._metadata = dict(metadata or {})
        self._store: ObjectStore | None = None
        if any(not isinstance(one, str) for pair in self._metadata.items() for one in pair):
            raise OptionError(f"metadata: expected texts, found {metadata!r:.80}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Write both notes of the fragment."""
        note = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._put(f"fragment_{fragment.id}{self.PROGRESS_EXT}", note)
        self._put(f"fragment_{fragment.id}.json", fragment.to_json())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Delete the note of the unfinished file."""
        self._open().delete([f"fragment_{fragment.id}{self.PROGRESS_EXT}"])

    def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = open_store(self._base_uri)
        return self._store

    def _put(self, name: str, content: object) -> None:
        self._open().put(name, [json.dumps(content).encode()])
