"""Links among what file systems of fsspec have, and a walk that ends at them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from stat import S_ISLNK
from typing import Any, Final

from glaive.clock import monotonic
from glaive.errors import StoreError
from glaive.io.fsspec_asking import is_over_ftp, lines_shown, list_folder
from glaive.io.fsspec_chain import finds_itself, unwrapped
from glaive.io.fsspec_entries import checked, is_folder, named_files

__all__ = ["is_link", "walked"]

_OVER_SSH: Final = re.compile(r"\b(?:ssh|sftp)://")

_LONGEST: Final = 4096
"""Characters of the path of a folder whose files are looked for."""

_FOLDERS: Final = 8
"""Folders whose links are held for a second."""

_WORDS: Final = 16
"""Words before a name in a listing for people, at most; mostly eight."""


def is_link(system: Any, key: str, full: str) -> bool:
    """Whether a name is a link, as far as a file system tells. One request.

    Over SSH ``info`` is of what a link leads to: a client is asked for the name itself, or the
    folder is listed. So it is with FTP, whose servers call links by several words, or show only
    their modes, some of them only in listings for people.

    Raises
    ------
    StoreError
        What it says is none of that.
    """
    system, key = unwrapped(system, key)
    client = getattr(system, "ftp", None)
    look = getattr(client, "lstat", None)
    try:
        if look is not None:
            mode = look(key).st_mode
            return mode is not None and S_ISLNK(mode)
        if client is not None or _OVER_SSH.search(full):
            folder = key.rpartition("/")[0] or "/"
            return key.rstrip("/") in _links_in(system, folder, int(monotonic()))
        entry = system.info(key)
    except FileNotFoundError:
        return False
    with checked(full):
        return _is_said_to_be_link(entry)


@lru_cache(_FOLDERS)
def _links_in(system: Any, folder: str, _second: int) -> frozenset[str]:
    """The links in a folder, which is listed once in a second, whoever asks for how many."""
    entries = named_files(system, list_folder(system, folder), folder)
    lines = lines_shown(system, folder)
    with checked(folder):
        found = [name for name, entry in entries if _is_said_to_be_link(entry)]
        # As "lrwxrwxrwx 1 u u 5 Nov 27 07:28 data -> ../x". How many words a name has before it
        # depends on the server, and on its owners: whatever a line may end with is taken for one.
        for line in lines:
            words = line.partition(" -> ")[0].split(maxsplit=_WORDS) if line[:1] == "l" else ()
            ends = (" ".join(words[at:]) for at in range(1, len(words)))
            found += [f"{folder.rstrip('/')}/{end}" for end in ends]
    return frozenset(found)


def _is_said_to_be_link(entry: Mapping[str, Any]) -> bool:
    words = f"{entry.get('type')}".lower()
    mode = str(entry.get("unix.mode", ""))
    return bool(entry.get("islink")) or "link" in words or mode.startswith("l")


def walked(system: Any, key: str, full: str) -> list[Any]:
    """What is at any depth below a folder, but not what is behind links.

    ``find`` of fsspec leaves out what a server does not list, and follows links of FTP in circles.
    """
    if finds_itself(system):
        system.invalidate_cache(key)
        return [*system.find(key, detail=True).values()]
    entries: list[Any] = []
    folders, seen = [key], {"", key}
    for folder in folders:
        try:
            found = list_folder(system, folder)
        except FileNotFoundError:
            if folder == key:
                raise
            continue  # deleted since its name was listed
        entries += found
        with checked(full):
            below = [entry["name"].rstrip("/") for entry in found if is_folder(entry)]
        for name in below:
            if len(name) > _LONGEST:
                raise StoreError(f"cannot list {full}: its folders are too deep.")
            is_other = name not in seen and name.rpartition("/")[2] not in (".", "..")
            # Only FTP calls links folders.
            if is_other and not (is_over_ftp(system) and is_link(system, name, full)):
                seen.add(name)
                folders.append(name)
    return entries
