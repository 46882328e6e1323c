"""What file systems of fsspec say of files: some hand on what a server answered, of any type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from glaive.errors import StoreError
from glaive.io.store import ObjectMeta, ObjectStore, described

__all__ = ["checked", "meta_of", "named_files"]


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
    """Names and entries of the files in a listing, in the order of names.

    Raises
    ------
    StoreError
        Something in it has no name.
    """
    with checked(full):
        files = [
            (_text(system._strip_protocol(_text(entry["name"]))), entry)  # noqa: SLF001  # documented for subclasses; there is no public name
            for entry in entries
            if entry.get("type") != "directory"
        ]
        return sorted(files, key=lambda file: file[0])


def meta_of(store: ObjectStore, path: str, entry: Any) -> ObjectMeta:
    """Size and time of a file.

    Raises
    ------
    StoreError
        The size is none that a file has.
    """
    with checked(store.full(path)):
        size, time = int(entry.get("size") or 0), _time(entry)
    return described(store, path, size, time)


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
