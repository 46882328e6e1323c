"""A store whose credentials expire: opened again with new ones before they do.

Whoever gave them, such as a catalogue, is asked for others a minute ahead. Readers that are open
go on with the new ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from threading import RLock
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa

from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.errors import DatasetNotFoundError, GlaiveError, NotFoundError, OptionError, StoreError
from glaive.io.failures import without_named_secrets
from glaive.io.location import Location
from glaive.io.storage_options import PERMISSIONS, full_names, normalise_options
from glaive.io.store import ObjectStore, RangeReader
from glaive.io.uri import open_store
from glaive.io.wrapped import WrappedReader, WrappedStore
from glaive.process import now_ns, renewed
from glaive.types import ByteRange

# ruff: noqa: D102  # ObjectStore and RangeReader say what each method does


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
        self, uri: str, options: ExpiringOptions, store: ObjectStore | None = None, folder: str = ""
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


# --- What a namespace says of a table: one question, its answer checked, credentials renewed

_ASKED: Final = ("checksums", "fsync", "verify_checksums")
"""Options that say what the caller wants to be done, and not how a store is reached."""

_CREDENTIALS: Final = (
    frozenset(
        {
            "azure_client_secret",
            "azure_fabric_cluster_identifier",
            "azure_fabric_session_token",
            "azure_fabric_token_service_url",
            "azure_fabric_workload_host",
            "azure_federated_token_file",
            "azure_storage_account_key",
            "azure_storage_sas_key",
            "azure_storage_token",
        }
    ),
    frozenset(
        {
            "google_application_credentials",
            "google_bearer_token",
            "google_service_account",
            "google_service_account_key",
        }
    ),
)
"""Credentials of one kind of store, of which its client takes one, by an order of its own. On S3
keys come first.
"""


_LONGEST: Final = 1 << 16
"""Characters of an error of a client of another package, which may have all that a server said."""


@dataclass(frozen=True, slots=True)
class TableAnswer:
    """The answer of a namespace about a table.

    Parameters
    ----------
    path
        Names of the table.
    location
        Where it lies.
    storage_options
        Of its store: those given and, winning, those of the namespace; an
        :class:`ExpiringOptions` if these expire.
    managed
        Whether the namespace gives out the versions.
    """

    path: tuple[str, ...]
    location: str = field(repr=False)  # a URL may have a key
    storage_options: Mapping[str, str] | None = field(repr=False)
    managed: bool


@dataclass(frozen=True, slots=True)
class _Renewal:
    """Asks a catalogue for newer storage options of a table."""

    client: Any
    table_id: tuple[str, ...]
    location: str = field(repr=False)  # a URL may have a key
    own: Mapping[str, str] | None = field(repr=False)

    def __call__(self) -> Mapping[str, str]:
        answer = _asked(self.client.describe_table, "DescribeTableRequest", self.table_id)
        location = answer_field(answer, "location")
        if location != self.location:  # its credentials are meant for that place
            raise _wrong(self.table_id, f"{self.location!r} as location, as before", location)
        return _together(self.own or {}, _reported(answer, self.table_id) or {})


def ask_for_table(
    client: Any,
    table_id: Sequence[str] | None,
    storage_options: Mapping[str, str] | None,
    *,
    create: bool = False,
) -> TableAnswer:
    """Where a table is, and how it is reached.

    Parameters
    ----------
    client
        Has methods ``describe_table`` and ``declare_table``, like those of ``lance_namespace``.
    table_id
        Path of names of the table.
    storage_options
        Overridden by those of the namespace.
    create
        Declare a table that does not exist yet.

    Raises
    ------
    OptionError
        ``client`` or ``table_id`` is missing, or no list of names.
    DatasetNotFoundError
        The namespace does not have the table, or reports no location.
    StoreError
        The namespace failed, or its answer is no answer.

    Notes
    -----
    One request. Options with ``expires_at_millis`` are asked for again before that time.
    """
    if client is None or table_id is None:
        raise OptionError(
            "Both 'namespace_client' and 'table_id' must be provided together: "
            "namespace_client and table_id: give both"
        )
    if isinstance(table_id, str) or not all(isinstance(name, str) for name in table_id):
        raise OptionError(f"table_id: expected a list of names, found {table_id!r:.100}")
    path = tuple(table_id)
    if create:
        answer = _asked(client.declare_table, "DeclareTableRequest", path)
    else:
        answer = _asked(client.describe_table, "DescribeTableRequest", path)
    location = answer_field(answer, "location")
    if not location:
        raise DatasetNotFoundError(
            f"the namespace reports no location for the table {list(path)}: it was not found"
        )
    if not isinstance(location, str):
        raise _wrong(path, "a text as location", location)
    reported = _reported(answer, path)
    options = storage_options
    if reported is not None:
        options = _together(storage_options or {}, reported)
        if EXPIRES in reported:
            options = ExpiringOptions(options, _Renewal(client, path, location, storage_options))
    managed = answer_field(answer, "managed_versioning") is True
    return TableAnswer(path, location, options, managed)


def catalogued_options(
    client: Any,
    table_id: Sequence[str] | None,
    storage_options: Mapping[str, str] | None,
    place: str | os.PathLike[str],
) -> Mapping[str, str] | None:
    """Storage options for a place with files of a table; those given where no namespace is.

    Raises
    ------
    OptionError
        As for :func:`check_kind`.
    """
    if client is None and table_id is None:
        return storage_options
    answer = ask_for_table(client, table_id, storage_options)
    if answer.storage_options is not storage_options:
        check_kind(answer.location, place)
    return answer.storage_options


def check_kind(location: str, place: str | os.PathLike[str]) -> None:
    """Check that options of a catalogue are used for the kind of store that they were given for.

    It says where a store of that kind is; with one of another kind, this machine's credentials for
    that would be sent there.

    Raises
    ------
    OptionError
        The place of a table, and the one that the options would be used for, are of two kinds.
    """
    theirs, ours = Location.parse(location).scheme, Location.parse(os.fspath(place)).scheme
    if theirs != ours:
        raise OptionError(
            f"{os.fspath(place)!r:.200}: the namespace gives storage options for its table at "
            f"{location!r:.200}, another kind of store. Name a place of that kind, or leave out "
            "namespace_client and table_id"
        )


def answer_field(answer: object, name: str) -> Any:
    """A field of an answer: of a mapping or a model; ``None`` if it has none."""
    if isinstance(answer, Mapping):
        return answer.get(name)
    return getattr(answer, name, None)


def _asked(method: Any, kind: str, path: tuple[str, ...]) -> Any:
    """The answer of the catalogue; its errors, which are of any class, as those of glaive."""
    try:
        return method(_request(kind, list(path)))
    except GlaiveError:
        raise
    except Exception as error:
        name = type(error).__name__
        text = f"table {list(path)}: the namespace answered with {name}: {said_by(error)}"
        if name in ("TableNotFoundError", "NamespaceNotFoundError"):
            raise DatasetNotFoundError(f"{text} (it was not found)") from error
        if isinstance(error, LookupError):
            raise NotFoundError(text) from error
        raise StoreError(text) from error


def said_by(error: Exception) -> str:
    """What the error of a client says, which another package may have made, without credentials."""
    return without_named_secrets(str(error)[:_LONGEST])


def _reported(answer: object, path: tuple[str, ...]) -> dict[str, str] | None:
    reported = answer_field(answer, "storage_options")
    if reported is None:
        return None
    if not isinstance(reported, Mapping):
        raise _wrong(path, "a mapping as storage options", type(reported).__name__)
    for key in reported:
        if str(key).lower() in PERMISSIONS:
            raise StoreError(
                f"table {list(path)}: the namespace gives the storage option {key!r}, which only "
                "who opens the table may give. Give it in storage_options."
            )
    try:
        return normalise_options(reported)
    except OptionError as error:
        raise StoreError(f"table {list(path)}: of the namespace's answer, {error}") from None


def _together(own: Mapping[str, str], reported: Mapping[str, str]) -> dict[str, str]:
    """Options that the caller gave, and those of the catalogue, which win by whatever name.

    Else credentials of the caller went where the catalogue has others for: it gives those of a
    kind of store, or none of them. A session token belongs to its key. What the caller or a
    setting of the process says of comparing files, and of forcing them to disk, is done.
    """
    of_process = settings.checksums is not None, settings.fsync, settings.verify is not None
    asked = {name for name, is_set in zip(_ASKED, of_process, strict=True) if is_set}
    asked.update(name for name in map(str.lower, map(str, own)) if name in _ASKED)
    taken = {name for key in reported for name in full_names(str(key))} - asked
    if "aws_access_key_id" in taken:
        taken.add("aws_session_token")
    taken.update(*(names for names in _CREDENTIALS if not taken.isdisjoint(names)))
    return {
        **{key: text for key, text in own.items() if taken.isdisjoint(full_names(str(key)))},
        **{key: text for key, text in reported.items() if str(key).lower() not in asked},
    }


def _wrong(path: tuple[str, ...], expected: str, found: object) -> StoreError:
    return StoreError(
        f"table {list(path)}: the namespace was expected to give {expected}, found {found!r:.100}. "
        "Check which server answers"
    )


def _request(kind: str, table_id: list[str]) -> Any:
    try:
        import lance_namespace
    except ImportError:
        # Other client libraries only read the id.
        return SimpleNamespace(id=table_id, version=None, location=None)
    return getattr(lance_namespace, kind)(id=table_id)
