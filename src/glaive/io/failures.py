"""What went wrong in a store, in words: system and object store errors to ``StoreError``."""

from __future__ import annotations

import errno
from stat import S_ISDIR

from glaive.errors import (
    CorruptFileError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
)
from glaive.types import ByteRange

__all__ = ["beyond_end", "from_object_store", "from_system", "not_a_file"]

_PERMISSION = "Check the permissions, or choose another place"
_REMEDIES = {
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "The file system is read-only; choose another place",
    errno.ENOSPC: "The disk is full; free some space and try again",
    errno.EDQUOT: "The disk quota is used up; free some space and try again",
    errno.EISDIR: "It is a directory where a file was expected; check the path",
    errno.ENOTDIR: "A part of the path is a file, not a directory; check the path",
    errno.EMFILE: "Too many files are open in this process; raise the limit (ulimit -n)",
    errno.ENFILE: "Too many files are open on this machine; close some and try again",
    errno.ENAMETOOLONG: "The path is too long; choose a shorter one",
    errno.ENOMEM: "No memory or address space left; read fewer files at once",
    errno.EIO: "The disk reports an error; check the device",
}
_OBJECT_REMEDIES = {
    "PermissionDeniedError": "Check that the credentials may do this",
    "UnauthenticatedError": "Check the credentials in storage_options or the environment",
    "NotSupportedError": "This kind of store cannot do that",
    "InvalidPathError": "Check the path",
}


def from_system(error: OSError, path: str, doing: str) -> StoreError:
    """Translate an error of the operating system; ``doing`` as in ``"read"``, ``"write"``."""
    if isinstance(error, FileNotFoundError):
        if doing == "write":
            return ObjectNotFoundError(
                f"cannot write {path}: its directory is gone, or a link on the way leads nowhere. "
                "Check the path, and whether somebody deletes the dataset."
            )
        return ObjectNotFoundError(f"cannot {doing} {path}: there is no such file. Check the path.")
    if isinstance(error, FileExistsError):
        return ObjectExistsError(f"cannot {doing} {path}: it exists already.")
    remedy = _REMEDIES.get(error.errno or 0, "Check the place and try again")
    return StoreError(f"cannot {doing} {path}: {error.strerror or error}. {remedy}.")


def not_a_file(path: str, mode: int) -> StoreError:
    """Describe a directory, a pipe or a device where a file was expected."""
    found = "a directory" if S_ISDIR(mode) else "a pipe, a socket or a device"
    return StoreError(
        f"cannot read {path}: it is {found} where a file was expected. Check the path."
    )


def from_object_store(error: Exception, path: str, doing: str) -> StoreError:
    """Translate an error that obstore raised."""
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(
            f"cannot {doing} {path}: there is no such object. Check the path."
        )
    if kind == "AlreadyExistsError":
        return ObjectExistsError(f"cannot {doing} {path}: it exists already.")
    if kind == "PreconditionError":
        return ObjectExistsError(f"cannot {doing} {path}: another writer was first.")
    first_line = str(error).split("\n", 1)[0].rstrip(".")
    remedy = _OBJECT_REMEDIES.get(kind, "Check storage_options and the network, then try again")
    return StoreError(f"cannot {doing} {path}: {first_line}. {remedy}.")


def beyond_end(path: str, asked: ByteRange, size: int) -> CorruptFileError:
    """Describe a range that the object is too short for."""
    return CorruptFileError(
        "byte range",
        expected=f"bytes {asked.offset}..{asked.end} within the file",
        found=f"a file of {size} bytes",
        where=path,
    )
