"""Sets of files on their way between processes."""

from __future__ import annotations

import zlib

from glaive.table.references import FileSet

__all__ = ["PackedFiles"]


class PackedFiles:
    """A set of files that is compressed where it is pickled, and unpacked where it is used.

    So a process that only hands it on holds some 25 bytes of each random name, not 220.

    Parameters
    ----------
    files
        The files, or what another process packed; they do not change any more.
    """

    __slots__ = ("_given",)

    def __init__(self, files: FileSet | bytes) -> None:
        self._given = files

    @property
    def files(self) -> FileSet:
        """The files; unpacked with each call."""
        return _unpack(self._given) if isinstance(self._given, bytes) else self._given

    def __reduce__(self) -> tuple[object, ...]:
        given = self._given
        return PackedFiles, (given if isinstance(given, bytes) else _pack(given),)


def _pack(files: FileSet) -> bytes:
    """Sorted names, which have no control characters, by lines; then those of folders."""
    lines = ("\n".join(sorted(names)) for names in (files.paths, files.indices))
    return zlib.compress("\0".join(lines).encode(), 1)


def _unpack(packed: bytes) -> FileSet:
    paths, indices = zlib.decompress(packed).decode().split("\0")
    return FileSet(
        set(paths.split("\n")) if paths else set(), set(indices.split("\n")) if indices else set()
    )
