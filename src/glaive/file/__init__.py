"""One ``.lance`` file, of any version; the names of ``lance.file`` are here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.file.files import (
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceFileMetadata,
        LanceFileReader,
        LanceFileSession,
        LanceFileStatistics,
        LanceFileWriter,
        LancePageMetadata,
        ListResult,
        ReaderResults,
    )
    from glaive.file.versions import stable_version

__all__ = [
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceFileMetadata",
    "LanceFileReader",
    "LanceFileSession",
    "LanceFileStatistics",
    "LanceFileWriter",
    "LancePageMetadata",
    "ListResult",
    "ReaderResults",
    "stable_version",
]

_HOMES = {"stable_version": "versions"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"glaive.file.{_HOMES.get(name, 'files')}"), name)
