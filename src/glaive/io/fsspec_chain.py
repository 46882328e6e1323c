"""The file systems that one of fsspec works through, such as those of a chained URI."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["chain_of", "is_of_this_machine"]

_MOST: Final = 100
"""File systems of a chain that are looked at: one may work through itself."""


def chain_of(system: Any) -> list[Any]:
    """A file system, and those that it works through: a cache through what it keeps files of."""
    found = [system]
    while len(found) < _MOST:
        below = getattr(found[-1], "fs", None) or getattr(found[-1], "sync_fs", None)
        if below is None:
            break
        found.append(below)
    return found


def is_of_this_machine(system: Any) -> bool:
    """Whether its names are those of files of this machine. Those of files in an archive are not.

    Such files have a store of their own, which alone keeps to a directory among links, pipes,
    devices and holes.
    """
    from fsspec.implementations.local import LocalFileSystem

    return any(isinstance(one, LocalFileSystem) for one in chain_of(system))
