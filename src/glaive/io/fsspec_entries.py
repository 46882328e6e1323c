"""What file systems of fsspec say of files: some hand on what a server answered, of any type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from glaive.errors import ObjectNotFoundError, StoreError
from glaive.io.remote import described
from glaive.io.store import ObjectMeta, ObjectStore

__all__ = ["UnsizedFile", "checked", "is_folder", "listed_of", "meta_of", "named_files"]


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
