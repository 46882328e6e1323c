"""A store whose credentials expire: opened again with new ones before they do.

Whoever gave them, such as a catalogue, is asked for others a minute ahead. Readers that are open
go on with the new ones.
"""

# ruff: noqa: D102  # ObjectStore and RangeReader say what each method does

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any

import pyarrow as pa

from glaive.clock import now_ns
from glaive.errors import GlaiveError, StoreError
from glaive.forks import renewed
from glaive.io.storage_options import normalise_options
from glaive.io.store import ObjectStore, RangeReader
from glaive.io.uri import open_store
from glaive.io.wrapped import WrappedReader, WrappedStore
from glaive.types import ByteRange

__all__ = ["EXPIRES", "ExpiringOptions", "RenewedStore", "open_renewed"]


EXPIRES = "expires_at_millis"
"""The option with the time, in milliseconds since 1970, until which the others are valid."""

_AHEAD = "refresh_offset_millis"
_DEFAULT_AHEAD = 60_000


class ExpiringOptions(dict[str, str]):
    """Storage options that expire, and who has newer ones.

    Parameters
    ----------
    options
        With an entry ``expires_at_millis``, and perhaps ``refresh_offset_millis``: how long before
        that time others are asked for; a minute by default.
    renew
        Returns newer options. Pickled with the options.
    """

    def __init__(self, options: Mapping[str, str], renew: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(options)
        self.renew = renew

    def __reduce__(self) -> tuple[Any, ...]:
        return (ExpiringOptions, (dict(self), self.renew))


def open_renewed(uri: str, options: Mapping[str, str] | None) -> ObjectStore:
    """Open a store; one whose options expire is opened again before they do."""
    store = open_store(uri, options)
    if isinstance(options, ExpiringOptions) and not store.is_local:
        return RenewedStore(uri, options, store)
    return store


class RenewedStore(WrappedStore):
    """A store that is opened again with other options before its own expire.

    Parameters
    ----------
    uri, options
        What the catalogue named.
    store
        Opened with these, if it is.
    folder
        A folder of it that is meant: a link may lead there.
    """

    __slots__ = (
        "_first", "_folder", "_lock", "_next", "_now", "_options", "_uri", "_valid",
    )  # fmt: skip

    def __init__(
        self,
        uri: str,
        options: ExpiringOptions,
        store: ObjectStore | None = None,
        folder: str = "",
    ) -> None:
        self._uri, self._options, self._lock = uri, options, renewed(RLock())
        self._folder, self._next = folder, 0.0
        store = self._opened(options) if store is None else store
        self._now, self._first = (store, 0), store.reached_by
        self._valid = ExpiringOptions(store.options, options.renew)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RenewedStore, (self._uri, self._options, None, self._folder))

    def _opened(self, options: ExpiringOptions) -> ObjectStore:
        store = open_store(self._uri, options)
        if not self._folder:
            return store
        inner = store.below(self._folder)
        if inner is not None:
            return inner
        return open_store(f"{self._uri.rstrip('/')}/{self._folder}", options)

    def __repr__(self) -> str:
        return f"RenewedStore({self._now[0]!r})"

    @property
    def inner(self) -> ObjectStore:  # type: ignore[override]  # another one over time
        return self.current()[0]

    @property
    def options(self) -> Mapping[str, str]:
        """Those that are valid, and who has newer ones: for other places that they open, too."""
        self.current()
        return self._valid

    @property
    def reached_by(self) -> bytes:
        """That of the first options: newer ones are for the same, and readers go on with them."""
        return self._first

    def current(self) -> tuple[ObjectStore, int]:
        """The store with valid options, and how often it was opened again."""
        if not self._is_due():
            return self._now
        with self._lock:
            if self._is_due():
                try:
                    self._renew()
                finally:
                    self._next = _now_millis() + self._left() / 10
            return self._now

    def _is_due(self) -> bool:
        """Whether to ask for newer options now.

        Who has none yet, as those that keep what they gave, is not asked at each request.
        """
        left = self._left()
        return left <= 0 or (left <= self._ahead() and _now_millis() >= self._next)

    def _renew(self) -> None:
        """Open the store with newer options; other threads use them once it is opened."""
        old, generation = self._now
        try:
            given = normalise_options(self._options.renew())
            newer = ExpiringOptions(given, self._options.renew)
            store = self._opened(newer)
        except GlaiveError as error:
            if self._left() > 0:  # others are asked for again a little later
                import logging

                logging.getLogger(__name__).warning(
                    "credentials of %s were not renewed: %s", old.public_uri, error
                )
                return
            raise StoreError(
                f"{old.uri}: its credentials have expired, and asking for others failed: "
                f"{error} Open the dataset again when the catalogue is available."
            ) from error
        if _left(newer) <= 0:
            raise StoreError(
                f"{old.uri}: the catalogue gave credentials that have expired already "
                f"({EXPIRES}={newer.get(EXPIRES)}). Check the clocks of both machines."
            )
        self._now = store, generation + 1
        self._valid = ExpiringOptions(store.options, newer.renew)
        self._options = newer

    def _left(self) -> float:
        return _left(self._options)

    def _ahead(self) -> float:
        return _millis(self._options.get(_AHEAD), _DEFAULT_AHEAD)

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        return _RenewedReader(self, path, size)

    def below(self, path: str) -> ObjectStore | None:
        folder = f"{self._folder}/{path}" if self._folder else path
        return RenewedStore(self._uri, self._options, folder=folder)

    def again(self, uri: str) -> ObjectStore:
        return RenewedStore(uri, self._options)


class _RenewedReader(WrappedReader):
    """A reader that opens its object again when the store was."""

    __slots__ = ("_generation", "_name", "_size", "_source")

    def __init__(self, source: RenewedStore, path: str, size: int | None) -> None:
        store, self._generation = source.current()
        super().__init__(store.open(path, size=size))
        self._source, self._name, self._size = source, path, size

    def tail(self, size: int) -> pa.Buffer:
        return self._current().tail(size)

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        return self._current().read(ranges)

    def _current(self) -> RangeReader:
        store, generation = self._source.current()
        if generation != self._generation:
            self._inner = store.open(self._name, size=self._size)
            self._generation = generation
        return self._inner


def _left(options: Mapping[str, str]) -> float:
    """Milliseconds until options expire."""
    return _millis(options.get(EXPIRES), float("inf")) - _now_millis()


def _now_millis() -> float:
    """Milliseconds since 1970."""
    return now_ns() / 1e6


def _millis(text: str | None, default: float) -> float:
    """A time or a duration; the default if it is no number."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else default
