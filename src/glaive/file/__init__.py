"""One ``.lance`` file, of any version; the names of ``lance.file`` are here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.file.files import LanceFileReader, LanceFileWriter
    from glaive.file.metadata import (
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceFileMetadata,
        LanceFileStatistics,
        LancePageMetadata,
    )
    from glaive.file.results import ReaderResults
    from glaive.file.session import LanceFileSession, ListResult
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

_HOMES = {
    "LanceFileReader": "files",
    "LanceFileSession": "session",
    "LanceFileWriter": "files",
    "ListResult": "session",
    "ReaderResults": "results",
    "stable_version": "versions",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"glaive.file.{_HOMES.get(name, 'metadata')}"), name)
