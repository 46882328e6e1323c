"""Layer 4: one ``.lance`` file, all versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.file.files import LanceFileReader, LanceFileSession, LanceFileWriter

__all__ = ["LanceFileReader", "LanceFileSession", "LanceFileWriter"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from glaive.file import files

        return getattr(files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
