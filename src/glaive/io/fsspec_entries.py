"""What file systems of fsspec say of files: some hand on what a server answered, of any type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from stat import S_ISLNK
from typing import Any, Final

from glaive.clock import monotonic
from glaive.errors import ObjectNotFoundError, StoreError
from glaive.io.fsspec_asking import is_over_ftp, list_folder
from glaive.io.fsspec_chain import finds_itself, unwrapped
from glaive.io.remote import described
from glaive.io.store import ObjectMeta, ObjectStore

__all__ = ["UnsizedFile", "checked", "is_link", "listed_of", "meta_of", "named_files", "walked"]

_OVER_SSH: Final = re.compile(r"\b(?:ssh|sftp)://")

_LONGEST: Final = 4096
"""Characters of the path of a folder whose files are looked for."""

_FOLDERS: Final = 8
"""Folders whose links are held for a second."""

_WORDS: Final = 16
"""Words before a name in a listing for people, at most; mostly eight."""


@contextmanager
def checked(full: str) -> Iterator[None]:
    """Look at what a file system said.

    Raises
    ------
    StoreError
        It is not of the types that it should be.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"cannot look up {full}: what the file system says is no name or size of a file "
            f"({type(error).__name__}). Check which server answers."
        ) from None


def named_files(system: Any, entries: Iterable[Any], full: str) -> list[tuple[str, Any]]:
    """Names and entries of the files in a listing, in the order of names, each once.

    Raises
    ------
    StoreError
        Something in it has no name.
    """
    with checked(full):
        files = {
            _text(system._strip_protocol(_text(entry["name"]))): entry  # noqa: SLF001  # documented for subclasses; there is no public name
            for entry in entries
            if not _is_folder(entry)
        }
        return sorted(files.items(), key=lambda file: file[0])


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
            below = [entry["name"].rstrip("/") for entry in found if _is_folder(entry)]
        for name in below:
            if len(name) > _LONGEST:
                raise StoreError(f"cannot list {full}: its folders are too deep.")
            is_other = name not in seen and name.rpartition("/")[2] not in (".", "..")
            # Only FTP calls links folders.
            if is_other and not (is_over_ftp(system) and is_link(system, name, full)):
                seen.add(name)
                folders.append(name)
    return entries


def _is_folder(entry: Mapping[str, Any]) -> bool:
    return entry.get("type") == "directory"


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
    lines: list[str] = []
    shown = getattr(getattr(system, "ftp", None), "dir", None)
    if shown is not None:
        shown(folder, lines.append)
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
    return bool(entry.get("islink")) or "link" in words or _mode_of(entry).startswith("l")


def _mode_of(entry: Mapping[str, Any]) -> str:
    return _text(entry.get("unix.mode", ""))


def meta_of(store: ObjectStore, path: str, entry: Any) -> ObjectMeta:
    """Size and time of a file.

    Raises
    ------
    StoreError
        There is no size, or one that no file has.
    """
    with checked(store.full(path)):
        size, time = entry.get("size"), _time(entry)
        size = None if size is None else int(size)
    if size is None:  # not 0: empty files are those that a writer left
        raise StoreError(
            f"cannot look up {store.full(path)}: the file system does not say how many bytes it "
            "has. Copy it to a store that does."
        )
    return described(store, path, size, time)


class UnsizedFile(ObjectMeta):
    """A file of a listing without sizes, as web servers have: who needs the size asks for it."""

    __slots__ = ("_ask", "_size")

    _ask: Callable[[str], ObjectMeta]
    _size: int | None

    def __init__(
        self, path: str, modified: datetime | None, ask: Callable[[str], ObjectMeta]
    ) -> None:
        given = {"path": path, "modified": modified, "_ask": ask, "_size": None}
        for name, part in given.items():
            object.__setattr__(self, name, part)  # a frozen class

    def __reduce__(self) -> tuple[Any, ...]:
        return (ObjectMeta, (self.path, self.size, self.modified))

    @property
    def size(self) -> int:
        """Bytes; 0 if the file was deleted since. One request, the first time."""
        if self._size is None:
            try:
                size = self._ask(self.path).size
            except ObjectNotFoundError:
                size = 0
            object.__setattr__(self, "_size", size)
            return size
        return self._size

    @property
    def stated_size(self) -> int | None:
        """The size, once somebody has asked for it."""
        return self._size


def listed_of(store: ObjectStore, path: str, entry: Any) -> ObjectMeta:
    """The same for an entry of a listing, which may have no size.

    Raises
    ------
    StoreError
        The size is none that a file has.
    """
    with checked(store.full(path)):
        if entry.get("size") is None:
            return UnsizedFile(path, _time(entry), store.head)
    return meta_of(store, path, entry)


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(type(name))
    return name


def _time(entry: Mapping[str, Any]) -> datetime | None:
    for key in ("mtime", "LastModified", "last_modified", "modified", "created"):
        time = entry.get(key)
        if isinstance(time, datetime):
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(time, int | float):
            with suppress(OverflowError, ValueError, OSError):  # an archive may have any number
                return datetime.fromtimestamp(time, UTC)
    return None
