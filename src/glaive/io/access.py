"""Open stores for locations that callers, datasets and catalogues specify.

A manifest lists base paths, and a row may have the URI of its value. These locations may come from
somebody other than the caller. So glaive opens them with the options that the caller gave for them.
A location in the same bucket or on the same host gets the options of the root. The caller must
allow by name: a scheme other than the root's, another web server, and all locations of fsspec.

Decision: ``docs/adr/0014-places-that-a-dataset-names.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import count
from threading import RLock
from types import SimpleNamespace
from typing import Any, Final, Self

import pyarrow as pa

from glaive.config import added, settings
from glaive.dataclass import dataclass
from glaive.errors import (
    AccessError,
    DatasetNotFoundError,
    GlaiveError,
    NotFoundError,
    OptionError,
    StoreError,
)
from glaive.io.failures import without_named_secrets
from glaive.io.local import LocalStore
from glaive.io.location import (
    CONTROLS,
    FABRIC,
    LOCAL_SCHEMES,
    RENAMED,
    SCHEMES,
    Location,
    check_root,
    path_of_file_uri,
    path_text,
    with_secret,
    with_slashes,
)
from glaive.io.storage_options import PERMISSIONS, full_names, normalise_options, read_switch
from glaive.io.store import ObjectStore, RangeReader
from glaive.io.wrapped import WrappedReader, WrappedStore
from glaive.process import fork_safe, now_ns
from glaive.types import ByteRange

# --- Open the store of a path or URI ----------------------------------------------------

_unnamed = count(1)
"""Numbers for the unnamed locations in memory."""


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> ObjectStore:
    """Return a store rooted at a directory, bucket prefix or location in memory.

    The URI must come from the caller. For locations that a dataset contains, use
    :func:`glaive.io.access.open_named`.

    Raises
    ------
    OptionError
        The scheme is unknown or followed by a single slash. The location has another type than
        string or path, is empty or has an invalid character. Or a storage option has an invalid
        value.
    MissingDependencyError
        The scheme needs a package that is missing.
    """
    text = path_text(uri)
    if not text:
        raise OptionError("the URI is empty; give a path or a URI such as s3://bucket/table")
    check_root(text, is_local=False)
    text = with_slashes(text)
    options = normalise_options(storage_options) if storage_options else {}
    options = {key: given for key, given in options.items() if key.lower() not in PERMISSIONS}
    scheme, mark, rest = text.partition("://")
    if not mark or len(scheme) < 2:  # "C:\table" is a path
        return LocalStore(os.path.expanduser(text), options)
    scheme = scheme.lower()
    if scheme in LOCAL_SCHEMES:
        return LocalStore(path_of_file_uri(text), options)
    if scheme == "memory" and not rest.strip("/"):
        rest = f"unnamed-{next(_unnamed)}"  # a new location each time, as in pylance
    if not rest.strip("/"):
        raise OptionError(f"{text}: no bucket or name after {scheme}://")
    if scheme not in SCHEMES:
        return _through_fsspec(text, scheme, rest, options)
    from glaive.io.objectstore import connect

    return connect(f"{RENAMED.get(scheme, scheme)}://{rest}", options)


def _through_fsspec(text: str, scheme: str, rest: str, options: dict[str, str]) -> ObjectStore:
    from glaive.io.fsspec import connect_fsspec, is_known

    prefix, plus, inner = scheme.partition("+")
    if prefix == "fsspec" and plus:
        return connect_fsspec(f"{inner}://{rest}", options)
    connect = added("stores").get(scheme)
    if connect is not None:
        store: ObjectStore = connect(text, options)
        return store
    if is_known(scheme):
        return connect_fsspec(text, options)
    raise OptionError(
        f"{text}: no object store for the scheme {scheme!r}. Use a path or {', '.join(SCHEMES)}; "
        "for other schemes of fsspec, pip install 'glaive[fsspec]'."
    )


def open_sibling(store: ObjectStore, uri: str) -> ObjectStore:
    """Open another location of the caller, such as a branch of an opened dataset.

    The location has the same storage options, with the same expiry, and the password of the
    caller's URI.
    """
    uri = with_secret(uri, store.secret)
    return store.again(uri) or open_store(uri, store.options)


def open_object(
    uri: str, storage_options: Mapping[str, str] | None = None
) -> tuple[ObjectStore, str]:
    """Return the store of the location that contains an object, and the object's path in it.

    Errors are the errors of :func:`open_store`, and an ``OptionError`` for a URI that ends with a
    slash.
    """
    text = uri = with_slashes(uri)
    is_local = uri.partition("://")[0].lower() in LOCAL_SCHEMES
    if is_local:
        text = path_of_file_uri(uri)
    folder, slash, name = text.rpartition("/")
    if not name:
        raise OptionError(f"{uri!r} names a directory; give the path of an object")
    folder = folder or ("/" if slash else ".")
    return open_store(f"local://{folder}" if is_local else folder, storage_options), name


# --- A store with credentials that expire: it is opened again with new ones in time -----
# A minute before, glaive asks their source, such as a catalogue, for new credentials. Readers that
# are open continue with these.

# ruff: noqa: D102  # ObjectStore and RangeReader say what each method does


EXPIRES = "expires_at_millis"
"""The option with the time, in milliseconds since 1970, at which the options expire."""

_REFRESH_OFFSET = "refresh_offset_millis"
_DEFAULT_REFRESH_MILLIS = 60_000


class ExpiringOptions(dict[str, str]):
    """Storage options that expire, with a function that returns newer options.

    Parameters
    ----------
    options
        Options with an entry ``expires_at_millis``. They may have ``refresh_offset_millis``: how
        long before that time to ask for newer options; a minute by default.
    renew
        Function that returns newer options. It is pickled with the options.
    """

    def __init__(self, options: Mapping[str, str], renew: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(options)
        self.renew = renew

    def __reduce__(self) -> tuple[Any, ...]:
        return (ExpiringOptions, (dict(self), self.renew))


def open_renewed(uri: str, options: Mapping[str, str] | None) -> ObjectStore:
    """Open a store. If its options expire, it is opened again with newer options in time."""
    store = open_store(uri, options)
    if isinstance(options, ExpiringOptions) and not store.is_local:
        return RenewedStore(uri, options, store)
    return store


class RenewedStore(WrappedStore):
    """A store that is opened again with newer options before its options expire.

    Parameters
    ----------
    uri, options
        URI and options from the catalogue.
    store
        The store that was opened with these, or ``None`` to open it.
    folder
        Folder of the store to use as the root; a symlink may lead to it.
    """

    __slots__ = (
        "_first", "_folder", "_lock", "_next", "_now", "_options", "_uri", "_valid",
    )  # fmt: skip

    def __init__(
        self, uri: str, options: ExpiringOptions, store: ObjectStore | None = None, folder: str = ""
    ) -> None:
        self._uri, self._options, self._lock = uri, options, fork_safe(RLock())
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
        """Valid options with the function that renews them; other locations get them, too."""
        self.current()
        return self._valid

    @property
    def reached_by(self) -> bytes:
        """Key of the first options: newer options reach the same store, and readers stay valid."""
        return self._first

    def current(self) -> tuple[ObjectStore, int]:
        """Return the store with valid options, and how often it was opened again."""
        if not self._is_due():
            return self._now
        with self._lock:
            if self._is_due():
                try:
                    self._renew()
                finally:
                    self._next = _now_millis() + _remaining_millis(self._options) / 10
            return self._now

    def _is_due(self) -> bool:
        """Return whether to ask for newer options now.

        After a failure, or an answer with the same options, some time passes before the next
        request.
        """
        left = _remaining_millis(self._options)
        return left <= 0 or (
            left <= _millis(self._options.get(_REFRESH_OFFSET), _DEFAULT_REFRESH_MILLIS)
            and _now_millis() >= self._next
        )

    def _renew(self) -> None:
        """Open the store with newer options; other threads use the store once it is opened."""
        old, generation = self._now
        try:
            given = normalise_options(self._options.renew())
            newer = ExpiringOptions(given, self._options.renew)
            store = self._opened(newer)
        except GlaiveError as error:
            if _remaining_millis(self._options) > 0:  # glaive asks again a little later
                import logging

                logging.getLogger(__name__).warning(
                    "credentials of %s were not renewed: %s", old.public_uri, error
                )
                return
            raise StoreError(
                f"{old.uri}: its credentials have expired, and asking for others failed: "
                f"{error} Open the dataset again when the catalogue is available."
            ) from error
        if _remaining_millis(newer) <= 0:
            raise StoreError(
                f"{old.uri}: the catalogue gave credentials that have expired already "
                f"({EXPIRES}={newer.get(EXPIRES)}). Check the clocks of both machines."
            )
        self._now = store, generation + 1
        self._valid = ExpiringOptions(store.options, newer.renew)
        self._options = newer

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        return _RenewedReader(self, path, size)

    def below(self, path: str) -> ObjectStore | None:
        folder = f"{self._folder}/{path}" if self._folder else path
        return RenewedStore(self._uri, self._options, folder=folder)

    def again(self, uri: str) -> ObjectStore:
        return RenewedStore(uri, self._options)


class _RenewedReader(WrappedReader):
    """A reader that opens its object again when its store was opened again."""

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


def _remaining_millis(options: Mapping[str, str]) -> float:
    """Return the milliseconds until options expire."""
    return _millis(options.get(EXPIRES), float("inf")) - _now_millis()


def _now_millis() -> float:
    """Return the current time in milliseconds since 1970."""
    return now_ns() / 1e6


def _millis(text: str | None, default: float) -> float:
    """Parse a time or a duration; return the default if it is invalid."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else default


# --- Ask a namespace about a table: check its answer, and renew credentials --------------

_FILE_OPTIONS: Final = ("checksums", "fsync", "verify_checksums")
"""Options for what glaive does with files; other options say how it reaches a store."""

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
"""Credentials of one kind of store: the client prefers some of them. S3 prefers its keys."""


_MAX_ERROR_CHARACTERS: Final = 1 << 16
"""Maximum characters of another package's error, which may contain a server's whole response."""


@dataclass(frozen=True, slots=True)
class TableAnswer:
    """The answer of a namespace about a table.

    Parameters
    ----------
    path
        Names of the table.
    location
        Path or URI of the table.
    storage_options
        Options of its store: the given options, overridden by the namespace's options. These are
        :class:`ExpiringOptions` if the namespace's options expire.
    managed
        Whether the namespace manages the versions.
    """

    path: tuple[str, ...]
    location: str = field(repr=False)  # a URL may have a key
    storage_options: Mapping[str, str] | None = field(repr=False)
    managed: bool


@dataclass(frozen=True, slots=True)
class _Renewal:
    """Function that asks a catalogue for newer storage options of a table."""

    client: Any
    table_id: tuple[str, ...]
    location: str = field(repr=False)  # a URL may have a key
    own: Mapping[str, str] | None = field(repr=False)

    def __call__(self) -> Mapping[str, str]:
        answer = _call(self.client.describe_table, "DescribeTableRequest", self.table_id)
        location = answer_field(answer, "location")
        if location != self.location:  # its credentials are meant for that location
            raise _unexpected(self.table_id, f"{self.location!r} as location, as before", location)
        return _merged_options(self.own or {}, _reported_options(answer, self.table_id) or {})


def ask_for_table(
    client: Any,
    table_id: Sequence[str] | None,
    storage_options: Mapping[str, str] | None,
    *,
    create: bool = False,
) -> TableAnswer:
    """Ask a namespace for the location of a table, and for the options to reach it.

    Parameters
    ----------
    client
        Object with methods ``describe_table`` and ``declare_table``, such as a
        ``lance_namespace`` client.
    table_id
        Path of names of the table.
    storage_options
        Options of the caller. Options of the namespace override them.
    create
        Whether to declare a missing table.

    Raises
    ------
    OptionError
        ``client`` or ``table_id`` is missing, or ``table_id`` is not a list of names.
    DatasetNotFoundError
        The namespace lacks the table or its location.
    StoreError
        The namespace failed, or its answer is invalid.

    Notes
    -----
    One request. Options with ``expires_at_millis`` are requested again before that time.
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
        answer = _call(client.declare_table, "DeclareTableRequest", path)
    else:
        answer = _call(client.describe_table, "DescribeTableRequest", path)
    location = answer_field(answer, "location")
    if not location:
        raise DatasetNotFoundError(
            f"the namespace reports no location for the table {list(path)}: it was not found"
        )
    if not isinstance(location, str):
        raise _unexpected(path, "a string as location", location)
    reported = _reported_options(answer, path)
    options = storage_options
    if reported is not None:
        options = _merged_options(storage_options or {}, reported)
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
    """Return storage options for a location with files of a table.

    The options come from the namespace, if ``client`` or ``table_id`` is given, else from the
    caller.

    Raises
    ------
    OptionError
        :func:`check_kind` found another kind of store.
    """
    if client is None and table_id is None:
        return storage_options
    answer = ask_for_table(client, table_id, storage_options)
    if answer.storage_options is not storage_options:
        check_kind(answer.location, place)
    return answer.storage_options


def check_kind(location: str, place: str | os.PathLike[str]) -> None:
    """Check that a catalogue's options are used for the same kind of store as its table.

    The catalogue's options contain the address of a store of that kind. With another kind, glaive
    would send this machine's credentials for the other kind to that address.

    Raises
    ------
    OptionError
        The table and the location for the options are in stores of two kinds.
    """
    theirs, ours = Location.parse(location).scheme, Location.parse(os.fspath(place)).scheme
    if theirs != ours:
        raise OptionError(
            f"{os.fspath(place)!r:.200}: the namespace gives storage options for its table at "
            f"{location!r:.200}, another kind of store. Name a place of that kind, or leave out "
            "namespace_client and table_id"
        )


def answer_field(answer: object, name: str) -> Any:
    """Return a field of an answer, a mapping or a model; ``None`` if it is missing."""
    if isinstance(answer, Mapping):
        return answer.get(name)
    return getattr(answer, name, None)


def _call(method: Any, kind: str, path: tuple[str, ...]) -> Any:
    """Ask the catalogue. Convert its errors, of any class, to errors of glaive."""
    try:
        return method(_request(kind, list(path)))
    except GlaiveError:
        raise
    except Exception as error:
        name = type(error).__name__
        text = f"table {list(path)}: the namespace answered with {name}: {client_message(error)}"
        if name in ("TableNotFoundError", "NamespaceNotFoundError"):
            raise DatasetNotFoundError(f"{text} (it was not found)") from error
        if isinstance(error, LookupError):
            raise NotFoundError(text) from error
        raise StoreError(text) from error


def client_message(error: Exception) -> str:
    """Return the message of a client's error, of any package; remove credentials."""
    return without_named_secrets(str(error)[:_MAX_ERROR_CHARACTERS])


def _reported_options(answer: object, path: tuple[str, ...]) -> dict[str, str] | None:
    reported = answer_field(answer, "storage_options")
    if reported is None:
        return None
    if not isinstance(reported, Mapping):
        raise _unexpected(path, "a mapping as storage options", type(reported).__name__)
    for key, text in reported.items():
        name = str(key).lower()
        # A JSON object names a class to import.
        if name in PERMISSIONS or (name == "manifest_store" and str(text).startswith("{")):
            raise StoreError(
                f"table {list(path)}: the namespace gives the storage option {key!r}, which only "
                "who opens the table may give. Give it in storage_options."
            )
    try:
        return normalise_options(reported)
    except OptionError as error:
        raise StoreError(f"table {list(path)}: of the namespace's answer, {error}") from None


def _merged_options(own: Mapping[str, str], reported: Mapping[str, str]) -> dict[str, str]:
    """Join the caller's options with the catalogue's, which override them under all names.

    An override of one credential removes all credentials of that kind of store. Otherwise the
    caller's credentials could be sent where the catalogue has its own. A session token is removed
    with its key. Only the caller, or a setting of the process, decides whether to compare
    checksums and force files to disk.
    """
    of_process = settings.checksums is not None, settings.fsync, settings.verify is not None
    asked = {name for name, is_set in zip(_FILE_OPTIONS, of_process, strict=True) if is_set}
    asked.update(name for name in map(str.lower, map(str, own)) if name in _FILE_OPTIONS)
    taken = {name for key in reported for name in full_names(str(key))} - asked
    if "aws_access_key_id" in taken:
        taken.add("aws_session_token")
    taken.update(*(names for names in _CREDENTIALS if not taken.isdisjoint(names)))
    return {
        **{key: text for key, text in own.items() if taken.isdisjoint(full_names(str(key)))},
        **{key: text for key, text in reported.items() if str(key).lower() not in asked},
    }


def _unexpected(path: tuple[str, ...], expected: str, found: object) -> StoreError:
    return StoreError(
        f"table {list(path)}: the namespace was expected to give {expected}, found {found!r:.100}. "
        "Check which server answers"
    )


def _request(kind: str, table_id: list[str]) -> Any:
    try:
        import lance_namespace
    except ImportError:
        # Other client libraries read only the id.
        return SimpleNamespace(id=table_id, version=None, location=None)
    return getattr(lance_namespace, kind)(id=table_id)


_ACCOUNTS: Final = ("azure_storage_account_name", "account_name")
_IN_FABRIC: Final = ("azure_use_fabric_endpoint", "use_fabric_endpoint")
_TREE: Final = "/tree/"
"""Path between the root of a dataset and the name of a branch."""

_EXTERNAL, _BASES = PERMISSIONS

AS_OPTION: Final = "Commands, pipelines and Spark take it as a storage option, in JSON."
"""End of messages that say what to allow, for users whose tool opens the dataset."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Locations that a caller allows in addition to the location it opens.

    Parameters
    ----------
    given
        Locations that the caller specified, each with the storage options for all locations below
        it.
    external
        Whether values of blob columns may be fetched from outside of the dataset, also from below
        its base paths. Or the only other locations that they may be fetched from. ``None`` is the
        default, which forbids it.
    """

    given: tuple[tuple[Location, Mapping[str, str]], ...] = field(default=(), repr=False)
    external: bool | tuple[Location, ...] | None = None

    @classmethod
    def of(
        cls,
        base_store_params: object = None,
        allow_external_blobs: object = None,
        *,
        before: AccessPolicy | None = None,
    ) -> Self | AccessPolicy | None:
        """Return the policy for the options of a user; ``before`` for options that are missing.

        Raises
        ------
        OptionError
            An option has an invalid value.
        """
        if base_store_params is None and allow_external_blobs is None:
            return before
        before = before or DEFAULT_ACCESS
        return cls(
            before.given if base_store_params is None else _given(base_store_params),
            before.external if allow_external_blobs is None else _external(allow_external_blobs),
        )

    @classmethod
    def of_options(
        cls, storage_options: Mapping[str, str], over: AccessPolicy | None = None
    ) -> AccessPolicy | None:
        """Return the policy in storage options. Settings in ``over`` override it.

        Use it wherever storage options are given to open a dataset.

        Parameters
        ----------
        storage_options
            Normalised options. ``allow_external_blobs`` is ``true``, ``false``, a location, or a
            JSON list of locations. ``base_store_params`` is JSON. Other options are ignored.

        Raises
        ------
        OptionError
            An option has an invalid value.
        """
        given = {key.lower(): storage_options[key] for key in storage_options}
        if _EXTERNAL not in given and _BASES not in given:
            return over
        bases = _json(_BASES, given[_BASES]) if _BASES in given else None
        policy = cls.of(bases, _external_in(given))
        if over is None or policy is None:
            return policy
        external = policy.external if over.external is None else over.external
        return AccessPolicy(over.given or policy.given, external)

    def as_options(self) -> dict[str, str]:
        """Return storage options that give this policy to any process; locations are absolute."""
        import json

        options = {}
        if isinstance(self.external, tuple):
            options[_EXTERNAL] = json.dumps([place.uri for place in self.external])
        elif self.external is not None:
            options[_EXTERNAL] = json.dumps(self.external)
        if self.given:
            options[_BASES] = json.dumps({place.uri: dict(own) for place, own in self.given})
        return options

    def naming(
        self, root: ObjectStore, uris: Iterable[str], options: Mapping[str, str] | None = None
    ) -> AccessPolicy:
        """Return the policy that also allows base paths that the caller adds to a dataset.

        Parameters
        ----------
        root
            The store of the dataset.
        uris
            The base paths.
        options
            Storage options for them. By default, base paths in the root's bucket get the options of
            the root.
        """
        locations = [Location.parse(uri) for uri in uris]
        if not locations:
            return self
        home, added = Location.parse(root.uri), []
        for location in locations:
            if self.options_for(location) is not None:
                continue
            given = _root_options(root, home, location) if options is None else options
            added.append((location, given))
        return AccessPolicy((*self.given, *added), self.external) if added else self

    def options_for(self, location: Location) -> Mapping[str, str] | None:
        """Return the options for a location or the nearest location above it, or ``None``."""
        nearest = self._nearest(location)
        return None if nearest is None else nearest[1]

    def place_of(self, location: Location) -> Location | None:
        """Return the nearest location of ``given`` that contains this location."""
        nearest = self._nearest(location)
        return None if nearest is None else nearest[0]

    def _nearest(self, location: Location) -> tuple[Location, Mapping[str, str]] | None:
        above = [entry for entry in self.given if entry[0].contains(location)]
        return max(above, key=lambda entry: len(entry[0].path)) if above else None

    def listed_place_of(self, location: Location) -> Location | None:
        """Return the first listed location for values of blob columns that contains this one."""
        listed = self.external if isinstance(self.external, tuple) else ()
        return next((allowed for allowed in listed if allowed.contains(location)), None)

    def allows_external(self, location: Location) -> bool:
        """Return whether the value of a blob column may be fetched from a location."""
        if isinstance(self.external, tuple):
            return self.listed_place_of(location) is not None
        named = not location.is_fsspec or self.options_for(location) is not None
        return bool(self.external) and named and not location.is_chained


DEFAULT_ACCESS: Final = AccessPolicy()
"""Only the location of the dataset is allowed."""


def _given(params: object) -> tuple[tuple[Location, Mapping[str, str]], ...]:
    if not isinstance(params, Mapping):
        raise OptionError(
            "base_store_params: expected storage options by base path, such as "
            f"{{'s3://bucket/path': {{'aws_region': 'eu-west-1'}}}}, found {type(params).__name__}"
        )
    given = []
    for uri, options in params.items():
        if not isinstance(uri, str) or not uri or not isinstance(options, Mapping):
            raise OptionError(
                "base_store_params: expected a path or URI and a mapping of storage options for "
                f"it, found {uri!r} and {type(options).__name__}"
            )
        given.append((_named(uri, "base_store_params"), normalise_options(options)))
    return tuple(given)


def _external(allowed: object) -> bool | tuple[Location, ...]:
    if isinstance(allowed, bool):
        return allowed
    locations = (
        None if isinstance(allowed, str) or not isinstance(allowed, Iterable) else [*allowed]
    )
    if locations is None or not all(
        isinstance(location, str) and location for location in locations
    ):
        raise OptionError(
            "allow_external_blobs: expected True, False, or a list of locations such as "
            f"['s3://bucket/media'], found {type(allowed).__name__}"
        )
    return tuple(_named(location, "allow_external_blobs") for location in locations)


def _external_in(options: Mapping[str, str]) -> object:
    """Return the value of the storage option: a switch, a JSON list or one location."""
    text = options.get(_EXTERNAL)
    if text is None:
        return None
    if text.lstrip().startswith("["):
        return _json(_EXTERNAL, text)
    text = text.strip()
    if "/" in text or "\\" in text:
        return [text]
    try:
        return read_switch({_EXTERNAL: text}, _EXTERNAL)
    except OptionError:
        raise OptionError(
            f"{_EXTERNAL}: expected true, false, a place such as ./media or s3://bucket/media, or "
            f"a JSON list of places, found {text!r}"
        ) from None


def _json(option: str, text: str) -> Any:
    """Parse JSON. Messages omit it, because it may contain credentials."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # includes huge numbers and deep nesting
        raise OptionError(f"{option}: not JSON ({error})") from None


def _named(uri: str, option: str) -> Location:
    location = Location.parse(os.path.expanduser(uri), f"{option}: ")
    if location.climbs:
        raise OptionError(f"{option}: {uri!r} contains '..'. Give the location itself.")
    return location


# ---------------------------------------------------------------------- opening


def open_named(
    root: ObjectStore, uri: str, policy: AccessPolicy = DEFAULT_ACCESS, *, subject: str
) -> ObjectStore:
    """Open a location that the dataset at ``root`` contains, such as a base path.

    Parameters
    ----------
    root
        The store of the dataset.
    uri
        The location.
    policy
        The locations that the caller allows.
    subject
        Name of what contains the location, for messages.

    Raises
    ------
    AccessError
        The policy forbids the location.
    OptionError
        The location is invalid, or its options have invalid values.
    """
    location = _trusted_spelling(uri, subject)
    given = policy.options_for(location)
    if given is not None:
        return _open(root, location, given)
    home = Location.parse(root.uri)
    reason = _refusal(home, location)
    if reason is not None:
        raise AccessError(
            f"{subject} is {uri!r}, {reason}. It was not opened. If the dataset may read it, name "
            f"the location when opening it: base_store_params={{{location.uri!r}: {{...}}}}, with "
            f"the storage options for it. {AS_OPTION}"
        )
    return _open(root, location, _root_options(root, home, location))


def open_external(
    root: ObjectStore, uri: str, policy: AccessPolicy, *, subject: str
) -> tuple[ObjectStore, str]:
    """Open the folder of an object outside of a dataset; also return the object's name in it.

    :func:`open_named` lists the errors.

    Parameters
    ----------
    root, policy, subject
        See :func:`open_named`.
    uri
        URI of the object.
    """
    location = _trusted_spelling(uri, subject)
    if not policy.allows_external(location):
        raise AccessError(f"{subject} is {uri!r}, {_not_allowed(location, policy)}")
    folder, _, name = location.uri.rpartition("/")
    if not name or folder.endswith(("/", ":")):
        raise OptionError(f"{subject} is {uri!r}, which names no object")
    parent = Location.parse(folder or "/")
    given = policy.options_for(location)
    if given is None:
        given = _root_options(root, Location.parse(root.uri), location)
    return _open(root, parent, given), name


def allow_copies(policy: AccessPolicy) -> AccessPolicy:
    """Return the policy for values that the caller's own rows ask to copy: from anywhere.

    The caller must still allow locations of fsspec, because rows may come from somebody else.
    """
    return AccessPolicy(policy.given, external=True)


def _not_allowed(location: Location, policy: AccessPolicy) -> str:
    if policy.external is True:
        return (
            "which fsspec would open. It was not fetched. If it is trusted, name the location: "
            f"base_store_params={{{location.uri!r}: {{...}}}}, with the storage options for it. "
            f"{AS_OPTION}"
        )
    listed = ", and below none of the allowed locations" if policy.external else ""
    return (
        f"outside of the dataset and its base paths{listed}. It was not fetched. If it is to be "
        f"trusted, open the dataset with allow_external_blobs=[{location.uri!r}], or a location "
        f"above it; allow_external_blobs=True allows all. {AS_OPTION}"
    )


def _trusted_spelling(uri: str, subject: str) -> Location:
    location = Location.parse(uri, f"{subject}: ")
    controls = CONTROLS.search(uri) is not None
    if location.user or location.is_chained or location.climbs or controls:
        has = "control characters" if controls else "'..'" if location.climbs else "'::'"
        has = "a user or password" if location.user else has
        raise AccessError(
            f"{subject} is {uri!r}, which contains {has}. It was not opened: give the location "
            "itself, and credentials in base_store_params."
        )
    return location


def _refusal(home: Location, location: Location) -> str | None:
    """Return why the caller must allow a location; ``None`` if it may be opened anyway."""
    if home.is_fsspec or location.is_fsspec:
        if home.contains(location) or _branches(home, location):
            return None
        return "which fsspec would open"
    if home.scheme != location.scheme:
        return f"while the dataset is in {home.uri}"
    if (home.is_http or home.is_local) and location.origin not in ("", home.origin):
        return f"on another server than the dataset in {home.uri}"
    if location.is_whole_disk:
        return "which is the whole disk"
    return None


def _branches(home: Location, location: Location) -> bool:
    """Return whether ``location`` is the root of the dataset that has a branch at ``home``."""
    return location.contains(home) and f"/{location.below(home)}".startswith(_TREE)


def _root_options(root: ObjectStore, home: Location, location: Location) -> Mapping[str, str]:
    """Return the options of the root if a location is in its bucket or account, else ``{}``."""
    options = root.options
    if home.scheme != location.scheme:
        return {}
    if home.scheme == "az":
        given = {key.lower(): value for key, value in options.items()}
        own = next((given[key] for key in _ACCOUNTS if key in given), "")
        if any(read_switch(given, name) for name in _IN_FABRIC):
            own = f"{own}{FABRIC}"
        # Options or the environment give the account of a container whose URI omits it.
        same = not location.origin or location.origin == (home.origin or own)
        return options if same else {}
    return options if home.origin == location.origin else {}


def _open(root: ObjectStore, location: Location, options: Mapping[str, str]) -> ObjectStore:
    if location.is_local:
        return LocalStore(location.path, options)
    if (sibling := root.sibling(location.uri)) is not None:
        return sibling
    if options is root.options:
        return open_sibling(root, location.uri)
    return open_renewed(location.uri, options)
