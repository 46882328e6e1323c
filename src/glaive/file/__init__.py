"""Layer 4: one ``.lance`` file, all versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.file.files import LanceFileReader, LanceFileWriter
    from glaive.file.session import LanceFileSession

__all__ = ["LanceFileReader", "LanceFileSession", "LanceFileWriter"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "LanceFileSession":
        from glaive.file.session import LanceFileSession

        return LanceFileSession
    from glaive.file import files

    return getattr(files, name)
