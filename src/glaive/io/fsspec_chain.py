"""The file systems that one of fsspec works through, such as those of a chained URI, and what they
are opened with.
"""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from stat import S_ISLNK
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote

from glaive.clock import monotonic
from glaive.config import USUAL_RATIO, settings
from glaive.errors import LimitError, ObjectNotFoundError, OptionError, StoreError
from glaive.io.remote import described
from glaive.io.store import ObjectMeta, ObjectStore

_MOST: Final = 100
"""File systems of a chain that are looked at, and a few more."""


def chain_of(system: Any) -> list[Any]:
    """A file system, and those that it works through: a cache through what it keeps files of."""
    found = [system]
    for one in found:
        if len(found) < _MOST:
            found += [below for below in _below(one) if not any(below is known for known in found)]
    return found


def _below(system: Any) -> Iterator[Any]:
    for name in ("fs", "sync_fs"):
        below = getattr(system, name, None)
        if below is not None:
            yield below
    several = getattr(system, "fss", None)  # of references: by the scheme of what they lead to
    if isinstance(several, Mapping):
        yield from several.values()


def unwrapped(system: Any, key: str) -> tuple[Any, str]:
    """The file system behind one that only shows a folder of it, and what it calls a name there."""
    from fsspec.implementations.dirfs import DirFileSystem

    while isinstance(system, DirFileSystem):
        system, key = system.fs, f"{system.path}/{key.lstrip('/')}"
    return getattr(system, "sync_fs", system), key


def without_cache(system: Any, uri: str) -> Any:
    """The file system behind the caches of fsspec that come first in a chain.

    They show names as they were when they were first read, and a request that failed leaves them
    with half of a file, or with zeros: a tag that moved since would not keep its version. An
    archive is one file, of which half cannot be opened; so only zeros in it matter.

    Raises
    ------
    OptionError
        What is behind them works through another cache.
    """
    while _is_cache(system):
        system = system.fs
    if any(map(_is_cache, chain_of(system))) or any(map(_keeps_parts, _holding(system))):
        raise OptionError(
            f"{uri} works through a cache, which shows files as they were, or zeros where a "
            "request failed. Leave the cache out."
        )
    return system


def _is_cache(system: Any) -> bool:
    from fsspec.implementations.cached import CachingFileSystem

    return isinstance(system, CachingFileSystem)


def _keeps_parts(system: Any) -> bool:
    """Whether it is a cache of parts of files, not of whole ones."""
    from fsspec.implementations.cached import WholeFileCacheFileSystem

    return _is_cache(system) and not isinstance(system, WholeFileCacheFileSystem)


def _holding(system: Any) -> list[Any]:
    """The file systems that have the archives which a file system shows, at any depth."""
    return [one for archive in archives_of(system) for one in chain_of(archive.of.fs)]


def archives_of(system: Any) -> list[Any]:
    """The file systems of archives that one works through, and those of archives around these."""
    found: list[Any] = []
    for one in (looked_at := chain_of(system)):
        holder = getattr(getattr(one, "of", None), "fs", None)
        if holder is not None and len(looked_at) < _MOST:
            found.append(one)
            looked_at += chain_of(holder)
    return found


def _is_of_this_machine(system: Any) -> bool:
    """Whether its names are those of files of this machine. Those of files in an archive are not.

    Such files have a store of their own, which alone keeps to a directory among links, pipes,
    devices and holes.
    """
    from fsspec.generic import GenericFileSystem
    from fsspec.implementations.local import LocalFileSystem

    # One that is generic opens others by what each name says: a path is of this machine.
    return any(isinstance(one, LocalFileSystem | GenericFileSystem) for one in chain_of(system))


def finds_itself(system: Any) -> bool:
    """Whether a file system, or one that it works through, looks for files in a way of its own."""
    from fsspec.asyn import AsyncFileSystem
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.spec import AbstractFileSystem

    inherited = (AbstractFileSystem.find, AsyncFileSystem._find, None)  # noqa: SLF001  # documented for subclasses; there is no public name
    ways = [
        getattr(type(one), name, None)
        for one in chain_of(system)
        if not isinstance(one, DirFileSystem)
        for name in ("find", "_find")
    ]
    return any(way not in inherited for way in ways)


def refuse_this_machine(system: Any, uri: str) -> None:
    """Refuse a file system whose files the store of directories opens, with its own checks.

    Raises
    ------
    OptionError
        It works on files of this machine.
    """
    if _is_of_this_machine(system):
        raise OptionError(
            f"{uri} leads to files of this machine, which fsspec does not open here. Give their "
            "path itself; there is nothing to cache on a disk."
        )


def with_other_secrets(options: Mapping[str, str], uri: str, secret: str) -> dict[str, str]:
    """Options, and beside them, by names of no option, what else may be a credential: passwords of
    the URI, and fsspec's own settings.

    Parameters
    ----------
    options
        The storage options.
    uri
        It may be a chain, of which each part may have a password.
    secret
        The password of its first part, as it is written there.
    """
    import fsspec

    others = {"password of the URI": secret, "password that is sent": unquote(secret)}
    others |= {f"part {at} of the URI": one for at, one in enumerate(uri.split("::"))}
    return {**options, **others, **dict(_texts_in(fsspec.config.conf, "setting"))}


def _texts_in(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Texts at any depth of settings of files and variables, by the names that lead to each."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts_in(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):  # as user and password, which some take together
        for at, inner in enumerate(value):
            yield from _texts_in(inner, f"{at}.{name}")
    elif isinstance(value, str):
        yield name, value


# --- Archives that fsspec opens: a few bytes there may unpack to any number -------------
# They may be compressed, or have holes. Who reads a file as a whole, or as far as it says, takes
# memory for all that it unpacks to. So does who opens an archive, for its names and headers.

_ARCHIVES: Final = ("tar", "zip", "libarchive")

_IN_PARTS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Ways to pack a file of a ``.zip`` that Python unpacks as far as it is asked to."""

_LONGEST_HEADER: Final = 16 * 1024
"""Bytes of a header in a ``.tar``, such as a long name: it is read as a whole, and some releases
of Python take time by the square of it."""

_HEADERS: Final = 4 * 1024**2
_HEADER_RATIO: Final = 32
"""Bytes of all headers of a ``.tar``, or times its own bytes: Python holds some times as many."""

_DEEPEST: Final = 64
"""Folders around a file of an archive: fsspec makes the path of each of them."""

_REMEDY: Final = "If the archive is trusted, unpack it and give the folder."


class _PackedStore(Protocol):
    """The part of a store of fsspec that is asked for sizes."""

    @property
    def system(self) -> Any:
        """The file system of this thread."""

    def full(self, path: str) -> str:
        """URI of an object."""

    def reading(self, path: str, doing: str, read: Callable[[], Any]) -> Any:
        """Return what is read, or raise a ``StoreError``."""


def refuse_unpacked(store: _PackedStore, key: str, path: str) -> int | None:
    """Refuse a file of an archive that unpacks to much more than the archive has; no other one.

    Requests only for one larger than the limit: the size of the archive.

    Parameters
    ----------
    store
        The store.
    key, path
        What its file system and the store call the file.

    Returns
    -------
    int or None
        The bytes of a file of a ``.zip``: one that is read to its end may unpack to more.

    Raises
    ------
    LimitError
        It has more bytes than ``max_decoded_bytes_per_page``, and than ``USUAL_RATIO`` times those
        of the archive; or it is packed in a way that is not unpacked in parts.
    StoreError
        There is no such file, or the archive cannot be read.
    """
    if not archives_of(store.system):
        return None

    def look(ask: Callable[[], Any]) -> Any:
        return store.reading(path, "look up", ask)

    size, way = look(lambda: _size_and_way(*unwrapped(store.system, key)))
    _refuse(store.full(path), size, way, lambda: look(lambda: _packed(store.system)))
    return None if way is None else size


def _refuse(full: str, size: int, way: int | None, packed_size: Callable[[], int]) -> None:
    if way is not None and way not in _IN_PARTS:
        raise LimitError(
            f"{full} is packed in a way (number {way}) in which a few bytes unpack to any number "
            f"of them at once; only stored and deflated files are read. {_REMEDY}"
        )
    most = settings.max_decoded_bytes_per_page
    if size > most and size > USUAL_RATIO * (packed := packed_size()):
        raise LimitError(
            f"{full} would unpack to {size} bytes, out of an archive of {packed}; at "
            f"most {most} are allowed. If the archive is trusted, allow more: set "
            "GLAIVE_MAX_DECODED_BYTES_PER_PAGE, or unpack it."
        )


def _size_and_way(archive: Any, name: str) -> tuple[int, int | None]:
    """Bytes that a file claims to unpack to, and the number of the way in which a ``.zip`` has
    packed it. ``FileNotFoundError`` if there is none: libarchive would read nothing of it.
    """
    entry = archive.info(name)
    return int(entry["size"]), entry.get("compress_type")


def _packed(system: Any) -> int:
    """Bytes of the archive; of one in another, those of the smallest of them."""
    files = [archive.of for archive in archives_of(system)]
    return min(int(file.fs.info(file.path)["size"]) for file in files)


def check_chain(uri: str, options: Mapping[str, str]) -> None:
    """Refuse what fsspec must not open in a chained URI, before it does.

    These are archives, whose headers are all read then. And references where the file of them
    chooses what is opened besides: file systems of any scheme. What cannot be read is left to
    fsspec, which says why.

    Parameters
    ----------
    uri, options
        What fsspec will get.

    Raises
    ------
    OptionError
        The caller does not say to which file systems references may lead.
    LimitError
        An archive lies in another one and unpacks to much more than that has. Or it is a ``.tar``
        that does so as a whole, has more headers than it has bytes for, or one that is too long.
        Or a file of it lies too deep.
    """
    parts = uri.split("::")
    for at in reversed(range(len(parts))):  # the outermost archive is the last one
        kind, given = parts[at].partition("://")[0], {} if at else options
        if kind == "reference" and not given.get("remote_protocol"):
            raise OptionError(
                f"{uri} leads where a file of references says. Name what may be opened for them in "
                "storage_options={'remote_protocol': 's3'}, and reference:// first in the URI."
            )
        if kind in _ARCHIVES:
            try:
                _refuse_archive(kind, "::".join(parts[at + 1 :]) or given.get("fo", ""), given)
            except LimitError:
                raise
            except Exception:  # of any client or archive; fsspec meets it again
                return


def _refuse_archive(kind: str, place: str, given: Mapping[str, str]) -> None:
    import fsspec

    file = fsspec.open(place, protocol=given.get("target_protocol"))
    if archives_of(file.fs):
        size, way = _size_and_way(*unwrapped(file.fs, file.path))
        _refuse(place, size, way, lambda: _packed(file.fs))
    with file as packed:
        if kind == "zip":
            names: Iterator[str] = iter(zipfile.ZipFile(packed).namelist())
        elif kind == "tar":
            size = packed.seek(0, os.SEEK_END)
            packed.seek(0)
            unpacked = _unpacking(packed, file.path, given.get("compression"))
            headers: Any = _Bounded(unpacked, place, size)
            names = (entry.name for entry in tarfile.TarFile(fileobj=headers))
        else:
            return
        if any(name.count("/") > _DEEPEST for name in names):
            raise LimitError(f"{place} has a file in more than {_DEEPEST} folders. {_REMEDY}")


def _unpacking(packed: Any, path: str, compression: str | None) -> Any:
    """The file as it unpacks, by what fsspec makes of its name."""
    from fsspec.compression import compr
    from fsspec.utils import infer_compression

    way = compression or infer_compression(path)
    return packed if way is None else compr[way](packed)


class _Bounded:
    """A ``.tar`` that is read by its headers, and so far as it may unpack."""

    __slots__ = ("_file", "_left", "_most", "_place", "_size")

    def __init__(self, file: Any, place: str, size: int) -> None:
        self._file, self._place, self._size = file, place, size
        self._most = max(settings.max_decoded_bytes_per_page, USUAL_RATIO * size)
        self._left = max(_HEADERS, _HEADER_RATIO * size)

    def tell(self) -> int:
        """Where the file is read next."""
        return int(self._file.tell())

    def seek(self, position: int) -> int:
        """Go to a position, to which a compressed file is unpacked."""
        if position > self._most:
            _refuse(self._place, position, None, lambda: self._size)
        return int(self._file.seek(position))

    def read(self, size: int) -> bytes:
        """Read a header."""
        if size > _LONGEST_HEADER:
            raise LimitError(f"{self._place} has a header of {size} bytes. {_REMEDY}")
        self._left -= size
        if self._left < 0:
            raise LimitError(
                f"{self._place} has too many headers for {self._size} bytes. {_REMEDY}"
            )
        return bytes(self._file.read(size))


# --- Ask file systems of fsspec what there is: some say that nothing is where a server refused
# A listing without what was refused would make a clean-up delete what a tag keeps.

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


# --- What file systems of fsspec say of files: some hand on what a server answered, of any type


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
            if not is_folder(entry)
        }
        return sorted(files.items(), key=lambda file: file[0])


def is_folder(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is one of a folder, or of a link to one over FTP."""
    return entry.get("type") == "directory"


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


# --- Links among what file systems of fsspec have, and a walk that ends at them ---------

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
