"""Ask file systems of fsspec what there is: some say that nothing is where a server refused.

A listing without what was refused would make a clean-up delete what a tag keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from glaive.io.fsspec_chain import unwrapped

__all__ = ["asked", "is_over_ftp", "is_there", "lines_shown", "list_folder", "look_up"]

T = TypeVar("T")

_MISSING: Final = (404, 410)
"""Codes of servers over HTTP that say that there is nothing."""


def asked(system: Any, key: str, ask: Callable[[], T]) -> T:
    """Return what ``ask`` returns; its ``FileNotFoundError`` comes only where there is no file.

    Where a client of FTP says that there is none, its folder is listed, too.
    """
    try:
        return ask()
    except FileNotFoundError as error:
        _raise_refusal(error)
        if not _is_listed(system, key):
            raise
    try:
        return ask()
    except FileNotFoundError as error:
        raise error.__cause__ or OSError(f"the server does not show {key}") from None


def is_there(system: Any, key: str) -> bool:
    """Whether there is an object now: others may have made it since its folder was listed.

    An error where the server does not tell, as when it did not answer.
    """
    try:
        look_up(system, key)
    except FileNotFoundError:
        return False
    return True


def look_up(system: Any, key: str) -> Any:
    """What there is to say of an object now; ``FileNotFoundError`` only if there is none."""
    return asked(system, key, lambda: _fresh(system, key.rpartition("/")[0]).info(key))


def list_folder(system: Any, key: str) -> Sequence[Any]:
    """What is in a folder now; ``FileNotFoundError`` only if there is no such folder.

    A client of FTP shows a folder that a server refuses to list as an empty one: where it shows
    nothing, the server is asked once more, for the listing that people get.
    """
    try:
        entries: Sequence[Any] = _fresh(system, key).ls(key, detail=True)
    except FileNotFoundError as error:
        _raise_refusal(error)
        if not is_over_ftp(system):
            raise
        entries = []
    if entries or not is_over_ftp(system) or not _has_lines(system, key):
        return entries
    again: Sequence[Any] = _fresh(system, key).ls(key, detail=True)
    if not again:
        raise OSError("the server does not say what is there in a way that fsspec understands")
    return again


def _has_lines(system: Any, key: str) -> bool:
    """Whether a folder has a listing for people that shows something."""
    from ftplib import Error

    try:
        lines = lines_shown(system, key)
    except Error as error:
        if key.strip("/") and not _is_listed(system, key):
            raise FileNotFoundError(key) from None
        raise error from None
    words = [line.split() for line in lines]
    return any(line and line[0] != "total" and line[-1] not in (".", "..") for line in words)


def lines_shown(system: Any, folder: str) -> list[str]:
    """The listing of a folder that people get over FTP; nothing of other file systems."""
    system, folder = unwrapped(system, folder)
    lines: list[str] = []
    if is_over_ftp(system):
        _ftp_of(system).dir(folder, lines.append)
    return lines


def _fresh(system: Any, folder: str) -> Any:
    """The same file system, which will list a folder and not show what it has seen before."""
    system.invalidate_cache(folder)
    if not folder:
        system.invalidate_cache("/")
    return system


def _is_listed(system: Any, key: str) -> bool:
    """Whether the folder of a name has it, where a client of FTP says that there is nothing."""
    if not is_over_ftp(system):
        return False
    system, key = unwrapped(system, key)
    folder = key.rstrip("/").rpartition("/")[0]
    try:
        entries = list_folder(system, folder or "/")
    except FileNotFoundError:
        return False
    return any(entry["name"].strip("/") == key.strip("/") for entry in entries)


def is_over_ftp(system: Any) -> bool:
    """Whether a file system shows what a client of FTP was answered."""
    return _ftp_of(system) is not None


def _ftp_of(system: Any) -> Any:
    """The client of a file system over FTP; that of SFTP says itself what was refused."""
    client = getattr(unwrapped(system, "")[0], "ftp", None)
    return client if hasattr(client, "dir") else None


def _raise_refusal(error: FileNotFoundError) -> None:
    """Raise what a client made a missing file of, if no server said that there is none."""
    cause = error.__cause__
    missing = FileNotFoundError | NotADirectoryError
    status = getattr(cause, "status", None)
    refused = isinstance(cause, OSError) and not isinstance(cause, missing)
    if cause is not None and (refused if status is None else status not in _MISSING):
        raise cause from None
