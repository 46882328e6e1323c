"""The file systems that one of fsspec works through, such as those of a chained URI, and what they
are opened with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from glaive.errors import OptionError

__all__ = [
    "archives_of",
    "chain_of",
    "finds_itself",
    "refuse_this_machine",
    "unwrapped",
    "with_other_secrets",
    "without_cache",
]

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
