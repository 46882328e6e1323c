"""Compare a whole file with its checksums."""

from __future__ import annotations

from glaive.file.open import open_reader
from glaive.file.protocol import FileReader
from glaive.file.v2.reading.reader import FileV2
from glaive.io.checksums import VerifyingReader, checksum_function
from glaive.io.store import ObjectStore

__all__ = ["compare_file", "has_checksums"]


def compare_file(store: ObjectStore, path: str, *, size: int | None = None) -> int | None:
    """Read all of a file that has a checksum, and compare it.

    Returns
    -------
    int or None
        The bytes of pages and global buffers that were compared; None if the file has no checksums,
        or xxhash, which makes them, is not installed.

    Raises
    ------
    CorruptFileError
        Some bytes differ from their checksum.
    """
    if checksum_function() is None:
        return None
    file = open_reader(store, path, size=size, verify="always")
    if not isinstance(file, FileV2) or not isinstance(file.reader, VerifyingReader):
        return None
    if file.container.checksums is None:
        return None
    for column in range(file.num_columns):
        file.container.column(column)
    return file.reader.compare_all()


def has_checksums(file: FileReader) -> bool:
    """Whether an opened file has checksums."""
    return isinstance(file, FileV2) and file.container.checksums_range() is not None
