"""Registers of manifests: a catalogue, an SQLite file, a DynamoDB table."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import field
from pathlib import Path
from threading import RLock
from typing import Any, Self
from urllib.parse import urlsplit

from glaive.dataclass import dataclass
from glaive.errors import (
    CorruptFileError,
    GlaiveError,
    MissingDependencyError,
    ObjectNotFoundError,
    OptionError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.format.paths import VERSIONS
from glaive.io.access import (
    ExpiringOptions,
    answer_field,
    ask_for_table,
    check_kind,
    client_message,
    open_store,
)
from glaive.io.failures import as_store_errors, first_line_of
from glaive.io.storage_options import check_address
from glaive.process import fork_safe
from glaive.table.manifest_store import ManifestEntry, ManifestStore

_MISSING = frozenset({"TableVersionNotFoundError", "TableNotFoundError"})
_TAKEN = "ConcurrentModificationError"
_REFUSAL = "LanceNamespaceError"
"""Base class of all errors of the interface: the catalogue has answered, with two exceptions."""
_NO_ANSWER = frozenset({"ServiceUnavailableError", "InternalError"})
_V2_DIGITS = 20
_TREE = "tree"
"""Folder of the branches of a table."""
_ALL = 1 << 62
"""A number above all versions, as the end of a range."""


class _Request(dict[str, Any]):
    """A request for clients of either kind: a mapping, and an object with attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)

    def model_dump(self) -> dict[str, Any]:
        """Return a plain mapping."""
        return dict(self)


@dataclass(frozen=True, slots=True)
class CatalogueManifestStore:
    """Versions of one table, managed by its catalogue. Picklable if the client is.

    Parameters
    ----------
    client
        A client with ``create_table_version``, ``describe_table_version`` and
        ``list_table_versions``.
    table_id
        Path of names of the table.
    root
        Root of the table, as its store names it.
    """

    client: Any
    table_id: tuple[str, ...]
    root: str = field(repr=False)  # a URL may have a key

    owns_manifests = True
    """Only the catalogue moves staged manifests to their location."""

    def option(self) -> str:
        """Return the storage option ``manifest_store`` that stands for this object: a JSON object.

        Raises
        ------
        UnsupportedFeatureError
            The client does not say which properties it was made with.
        """
        made_with = getattr(self.client, "properties", None)
        if not isinstance(made_with, Mapping):
            raise UnsupportedFeatureError(
                f"table {list(self.table_id)}: its catalogue manages the versions, and the client "
                f"{type(self.client).__name__} has no properties to connect again in other "
                "processes. Connect with glaive.namespace.connect"
            )
        kind = type(self.client)
        parts = {
            "impl": f"{kind.__module__}.{kind.__qualname__}",
            "properties": {str(name): str(text) for name, text in made_with.items()},
            "table": self.table_id,
            "root": self.root,
        }
        return json.dumps(parts)

    @classmethod
    def from_option(cls, option: str, root: str) -> Self | None:
        """Connect to the catalogue that :meth:`option` describes.

        Return ``None`` if ``root`` is another dataset, such as a list of loaded files in the table.

        Raises
        ------
        OptionError
            The option has another form, or the catalogue refuses its properties.
        """
        import lance_namespace

        try:
            parts = json.loads(option)
            table: str = parts["root"]
            if root != table and not root.startswith(f"{table}/{_TREE}/"):
                return None
            client = lance_namespace.connect(parts["impl"], parts["properties"])
            return cls(client, tuple(parts["table"]), table)
        except (ValueError, KeyError, TypeError) as error:  # its text may have credentials
            raise OptionError(
                "manifest_store: expected a JSON object with impl, properties and table of a "
                f"catalogue, found a value with {type(error).__name__}. Connect to the catalogue "
                "with glaive.namespace.connect, and pass the table to glaive.spark"
            ) from None

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Return the entry of a version; ``None`` if it is missing. One request."""
        answer = self._ask("describe_table_version", root, missing=True, version=version)
        reported = None if answer is None else answer_field(answer, "version")
        return None if reported is None else self._entry(reported, version)

    def latest(self, root: str) -> ManifestEntry | None:
        """Return the entry with the highest version, if any. One request."""
        answer = self._ask("list_table_versions", root, missing=True, limit=1, descending=True)
        reported = None if answer is None else answer_field(answer, "versions")
        if not reported:
            return None
        if isinstance(reported, str) or not isinstance(reported, Sequence):
            raise self._wrong("a list of versions", reported)
        return max(map(self._entry, reported), key=lambda entry: entry.version)

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Request a number; return ``False`` if another writer has it. One request.

        Raises
        ------
        StoreError
            The catalogue did not answer, so the number may belong to this writer.
        """
        name = entry.path.rpartition("/")[2]
        try:
            self._ask(
                "create_table_version",
                root,
                version=entry.version,
                manifest_path=manifest_key(root, entry.path),
                manifest_size=entry.size,
                naming_scheme="V2" if len(name.partition(".")[0]) == _V2_DIGITS else "V1",
            )
        except Exception as error:
            if _is(error, frozenset({_TAKEN})):
                return False
            met = error.__cause__ if type(error) is StoreError else error
            if _is(met, frozenset({_REFUSAL})) and not _is(met, _NO_ANSWER):
                raise
            unanswered = StoreError(str(error))
            unanswered.is_unanswered = True
            raise unanswered from error
        return True

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Do nothing: the catalogue knows the location of its manifests."""

    def drop(self, root: str) -> None:
        """Let the catalogue delete all versions."""
        ranges = [{"start_version": 0, "end_version": _ALL}]
        self._ask("batch_delete_table_versions", root, missing=True, ranges=ranges)

    def _ask(self, method: str, root: str, *, missing: bool = False, **fields: Any) -> Any:
        branch = None
        if root != self.root:
            start = f"{self.root}/{_TREE}/"
            if not root.startswith(start):
                raise UnsupportedFeatureError(
                    f"table {list(self.table_id)}: its catalogue manages the versions of the table "
                    f"and of its branches, but not the versions of {root}"
                )
            branch = root.removeprefix(start)
        asked = {"branch": branch, **fields}
        given = {key: field for key, field in asked.items() if field is not None}
        request = _Request(id=list(self.table_id), **given)
        try:
            return getattr(self.client, method)(request)
        except Exception as error:
            if missing and _is(error, _MISSING):
                return None
            if isinstance(error, GlaiveError) or _is(error, frozenset({_TAKEN})):
                raise
            raise StoreError(
                f"table {list(self.table_id)}: the catalogue failed in {method}: "
                f"{client_message(error)}. Try again when it is available"
            ) from error

    def _entry(self, reported: object, wanted: int | None = None) -> ManifestEntry:
        version, path = answer_field(reported, "version"), answer_field(reported, "manifest_path")
        if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 1 << 63:
            raise self._wrong("a version", reported)
        if wanted is not None and version != wanted:
            raise self._wrong(f"version {wanted}", reported)
        folder, _, name = str(path or "").rpartition("/")
        if not name or folder.rpartition("/")[2] != VERSIONS:
            raise self._wrong(f"a manifest below {VERSIONS}/", reported)
        size = answer_field(reported, "manifest_size")
        e_tag = answer_field(reported, "e_tag")
        return ManifestEntry(
            version=version,
            path=f"{VERSIONS}/{name}",
            size=size if isinstance(size, int) and size > 0 else None,
            e_tag=None if e_tag is None else str(e_tag),
        )

    def _wrong(self, expected: str, found: object) -> CorruptFileError:
        where = f"the catalogue's answer for the table {list(self.table_id)}"
        return CorruptFileError(
            "version of a table", expected=expected, found=f"{found!r:.200}", where=where
        )


def manifest_key(root: str, path: str) -> str:
    """Return the catalogue's name of an object: its path relative to the store."""
    scheme, mark, rest = root.partition("://")
    if mark and scheme not in ("file", "memory"):
        rest = rest.partition("/")[2]
    return f"{rest if mark else root}/{path}".lstrip("/")


def _is(error: BaseException | None, names: frozenset[str]) -> bool:
    """Return whether it is such an error of the interface, whose package is optional."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


# --- A register of manifests in an SQLite file, for one machine or machines with a shared disk

_FIND = "SELECT name FROM sqlite_master WHERE name = 'manifests'"
_CREATE = """
CREATE TABLE IF NOT EXISTS manifests (
    base_uri TEXT NOT NULL,
    version INTEGER NOT NULL,
    path TEXT NOT NULL,
    size INTEGER,
    e_tag TEXT,
    PRIMARY KEY (base_uri, version)
) WITHOUT ROWID
"""
_WAIT_SECONDS = 30.0
"""Maximum time to wait for another process that is writing."""


class SqliteManifestStore:
    """Entries in one file, created on the first write. Can be shared by many datasets.

    The path relative to the file identifies a local dataset, whichever symlinks lead to it. So both
    can be moved together. The URI identifies other datasets.

    Parameters
    ----------
    path
        The file. On a network mount, file locks must work.

    Notes
    -----
    Uses a rollback journal next to the file, as a write-ahead log needs shared memory. A commit
    takes two transactions with fsync: some milliseconds, tens on a busy disk. Each call opens the
    file, which takes about 0.1 ms, so that forks and threads have connections of their own.
    """

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()

    def __repr__(self) -> str:
        return f"SqliteManifestStore({str(self.path)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (SqliteManifestStore, (str(self.path),))

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Return the entry of a version; ``None`` if it is missing."""
        return self._one(root, "version = ?", version)

    def latest(self, root: str) -> ManifestEntry | None:
        """Return the entry with the highest version, if any."""
        return self._one(root, "version >= ? ORDER BY version DESC LIMIT 1", 0)

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; return ``False`` if the version has one."""
        with self._connected(write=True) as connection:
            added = connection.execute(
                "INSERT INTO manifests VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (self._key(root), entry.version, entry.path, entry.size, entry.e_tag),
            )
            return added.rowcount == 1

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version that has one."""
        with self._connected(write=True) as connection:
            changed = connection.execute(
                "UPDATE manifests SET path = ?, size = ?, e_tag = ? "
                "WHERE base_uri = ? AND version = ?",
                (entry.path, entry.size, entry.e_tag, self._key(root), entry.version),
            )
            if changed.rowcount != 1:
                raise ObjectNotFoundError(
                    f"{self.path} has no version {entry.version} of {root}: the entry was deleted "
                    "during the commit."
                )

    def drop(self, root: str) -> None:
        """Delete all entries of a dataset, if any."""
        key = self._key(root)
        if self._is_there():
            with self._connected(write=True) as connection:
                connection.execute("DELETE FROM manifests WHERE base_uri = ?", (key,))

    def _key(self, root: str) -> str:
        key = root
        if "://" not in root:
            folder = Path(os.path.realpath(self.path)).parent
            key = os.path.relpath(os.path.realpath(root), folder).replace(os.sep, "/")
        try:
            key.encode()
        except UnicodeEncodeError:
            raise StoreError(
                f"the manifest store {self.path} cannot have entries of {root!r}: SQLite keeps no "
                "names that are not UTF-8. Rename the folder, or use manifest_store='sqlite'."
            ) from None
        return key

    def _is_there(self) -> bool:
        with as_store_errors(str(self.path), "look up"):
            return self.path.exists()

    def _one(self, root: str, where: str, number: int) -> ManifestEntry | None:
        key = self._key(root)
        if not self._is_there():
            return None
        with self._connected(write=False) as connection:
            # Another process may have created the file, and be about to create the table.
            if not connection.execute(_FIND).fetchone():
                return None
            row = connection.execute(
                "SELECT version, path, size, e_tag FROM manifests "  # noqa: S608  # both parts are constants
                f"WHERE base_uri = ? AND {where}",
                (key, number),
            ).fetchone()
            if row is None:
                return None
            version, path, size, e_tag = row
            if not (isinstance(version, int) and isinstance(path, str)):  # columns take any type
                raise sqlite3.DatabaseError(f"expected a version and a path, found {row!r:.200}")
        return ManifestEntry(version=version, path=path, size=size, e_tag=e_tag)

    @contextmanager
    def _connected(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, and commit it at the end."""
        try:
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(
                sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA journal_mode = PERSIST")
                connection.execute("PRAGMA synchronous = NORMAL")
                if write:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute(_CREATE)
                yield connection
                if write:
                    connection.execute("COMMIT")
        # SQLite's messages cite a damaged file, which may have any bytes.
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if isinstance(error, GlaiveError):
                raise
            raise StoreError(
                f"the manifest store {self.path} failed: {error}. Check the file, its permissions "
                "and the free space, then try again."
            ) from None


# --- A register of manifests in a DynamoDB table, compatible with other Lance implementations
# The table has the hash key ``base_uri`` (string) and the range key ``version`` (number). Both
# ``base_uri`` and ``path`` are keys within the bucket.

_COMMITTER = "lancedb"
"""Value of the attribute ``committer``, required by the format."""

_CREDENTIALS = {
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "aws_token", "session_token", "token"),
    "region_name": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint_url": ("dynamodb_endpoint",),
}


class DynamoManifestStore:
    """Entries in one DynamoDB table, which can be shared by the datasets of a bucket.

    Parameters
    ----------
    table
        Name of the table, which must exist.
    options
        Storage options: ``aws_*`` credentials and region, ``dynamodb_endpoint``; default: boto3's
        defaults.
    """

    __slots__ = ("options", "table")

    def __init__(self, table: str, options: Mapping[str, str] | None = None) -> None:
        self.table = table
        self.options = dict(options or {})

    def __repr__(self) -> str:
        return f"DynamoManifestStore({self.table!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (DynamoManifestStore, (self.table, self.options))

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Return the entry of a version; ``None`` if it is missing."""
        base = _key(root)
        key = {"base_uri": {"S": base}, "version": {"N": str(version)}}
        answer = self._request("get_item", Key=key, ConsistentRead=True)
        item = answer.get("Item")
        return None if item is None else self._entry(base, item, version)

    def latest(self, root: str) -> ManifestEntry | None:
        """Return the entry with the highest version, if any."""
        base = _key(root)
        answer = self._request(
            "query",
            KeyConditionExpression="base_uri = :base",
            ExpressionAttributeValues={":base": {"S": base}},
            ScanIndexForward=False,
            Limit=1,
            ConsistentRead=True,
        )
        items = answer.get("Items") or []
        return self._entry(base, items[0]) if items else None

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; return ``False`` if the version has one."""
        return self._put(
            root, entry, "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
        )

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version that has one."""
        if not self._put(root, entry, "attribute_exists(base_uri) AND attribute_exists(version)"):
            raise StoreError(
                f"the DynamoDB table {self.table} has no version {entry.version} of {root}: the "
                "entry was deleted during the commit."
            )

    def drop(self, root: str) -> None:
        """Delete all entries of a dataset, if any. One request per version."""
        base, last = _key(root), None
        while (entry := self.latest(root)) is not None:
            if last is not None and entry.version >= last:
                raise StoreError(
                    f"the DynamoDB table {self.table} has version {entry.version} of {root} after "
                    "it was deleted. Check whether somebody writes to the dataset, then try again."
                )
            last = entry.version
            key = {"base_uri": {"S": base}, "version": {"N": str(entry.version)}}
            self._request("delete_item", Key=key)

    def _put(self, root: str, entry: ManifestEntry, condition: str) -> bool:
        base = _key(root)
        item = {
            "base_uri": {"S": base},
            "version": {"N": str(entry.version)},
            "path": {"S": f"{base}/{entry.path}" if base else entry.path},
            "committer": {"S": _COMMITTER},
        }
        if entry.size is not None:
            item["size"] = {"N": str(entry.size)}
        if entry.e_tag is not None:
            item["e_tag"] = {"S": entry.e_tag}
        answer = self._request("put_item", Item=item, ConditionExpression=condition)
        return answer.get("refused") is None

    def _entry(self, base: str, item: Any, wanted: int | None = None) -> ManifestEntry:
        """Parse an entry of the server, with numbers as strings; check its version if
        ``wanted``.
        """
        try:
            path = str(item["path"]["S"])
            version = int(item["version"]["N"])
            size = int(item["size"]["N"]) if "size" in item else None
            e_tag = str(item["e_tag"]["S"]) if "e_tag" in item else None
            if wanted not in (None, version):
                raise ValueError(version)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            raise StoreError(
                f"the DynamoDB table {self.table} has an invalid entry of {base}: {item!r:.200}"
            ) from None
        prefix = f"{base}/" if base else ""
        if not path.startswith(prefix):
            raise StoreError(
                f"the DynamoDB table {self.table} has a damaged entry: version {version} of {base} "
                f"at {path}, which is not below it."
            )
        return ManifestEntry(version=version, path=path[len(prefix) :], size=size, e_tag=e_tag)

    def _request(self, method: str, **request: Any) -> Mapping[str, Any]:
        client = self._connected()
        try:
            answer: Mapping[str, Any] = getattr(client, method)(TableName=self.table, **request)
        except client.exceptions.ConditionalCheckFailedException:
            return {"refused": True}
        except Exception as error:
            failed = StoreError(
                f"the DynamoDB table {self.table} failed: {first_line_of(error, self.options)}. "
                "Check its name, the credentials and the network, then try again."
            )
            failed.is_unanswered = _was_repeated(error)
            raise failed from None
        return answer

    def _connected(self) -> Any:
        """Return the cached client for these options: creating one takes longer than a commit."""
        lower = {key.lower(): value for key, value in self.options.items()}
        given: dict[str, str] = {}
        for name, keys in _CREDENTIALS.items():
            value = next((lower[key] for key in keys if lower.get(key)), None)
            if value is not None:
                given[name] = value
        if "endpoint_url" not in given and os.environ.get("DYNAMODB_ENDPOINT"):
            given["endpoint_url"] = os.environ["DYNAMODB_ENDPOINT"]
        if "endpoint_url" in given:
            check_address(given["endpoint_url"], "the endpoint of DynamoDB")
        key = (os.getpid(), *sorted(given.items()))
        with _clients_lock:
            if key not in _clients:
                _clients[key] = _connect(given, self.table)
            return _clients[key]


_clients: dict[tuple[Any, ...], Any] = {}
"""Clients by process and options: usable by all threads, but not after a fork."""
_clients_lock = fork_safe(RLock())


def _connect(given: Mapping[str, str], table: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise MissingDependencyError(
            "manifests registered in DynamoDB need boto3: pip install 'glaive[aws-dynamodb]'"
        ) from None
    retries: Any = {"max_attempts": 4, "mode": "standard"}
    try:
        session = boto3.session.Session()
        return session.client("dynamodb", config=Config(retries=retries), **given)
    except Exception as error:
        raise OptionError(
            f"the DynamoDB table {table} cannot be reached: {error} Give aws_region and "
            "credentials in storage_options or the environment."
        ) from None


def _was_repeated(error: Any) -> bool:
    """Return whether the request got no answer or was repeated: an earlier one may be under way."""
    answer = getattr(error, "response", None)
    return not answer or answer.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0


def _key(root: str) -> str:
    """Return the key of a dataset within its bucket."""
    return urlsplit(root).path.strip("/") if "://" in root else root.strip("/")


# --- Tables of a namespace: a catalogue with the location and storage options of tables -


@dataclass(frozen=True, slots=True)
class FoundTable:
    """The location of a table.

    Parameters
    ----------
    uri
        URI of the table.
    storage_options
        Options of its store; an :class:`ExpiringOptions` if they expire.
    manifest_store
        The register of its versions, if the catalogue manages them.
    """

    uri: str = field(repr=False)  # a URL may have a password
    storage_options: Mapping[str, str] | None = field(repr=False)
    manifest_store: ManifestStore | None

    @property
    def portable_options(self) -> Mapping[str, str] | None:
        """The options of the store with the register, as strings for other processes.

        Raises
        ------
        UnsupportedFeatureError
            See :meth:`CatalogueManifestStore.option`.
        """
        options, register = self.storage_options, self.manifest_store
        if not isinstance(register, CatalogueManifestStore):
            return options
        whole = {**(options or {}), "manifest_store": register.option()}
        if isinstance(options, ExpiringOptions):
            return ExpiringOptions(whole, options.renew)
        return whole


def find_table(
    client: Any,
    table_id: Sequence[str] | None,
    uri: object,
    storage_options: Mapping[str, str] | None,
    manifest_store: object = None,
    *,
    create: bool = False,
) -> FoundTable:
    """Return location, storage options and versions of a table, as its namespace reports them.

    Parameters
    ----------
    client, table_id, storage_options, create
        See :func:`glaive.io.access.ask_for_table`.
    uri, manifest_store
        Must be ``None``: the namespace provides them.

    Raises
    ------
    OptionError
        ``client`` or ``table_id`` is missing, or ``uri`` is given.
    DatasetNotFoundError, StoreError
        See :func:`glaive.io.access.ask_for_table`.
    """
    if uri is not None:
        raise OptionError("uri: give either uri, or namespace_client and table_id")
    answer = ask_for_table(client, table_id, storage_options, create=create)
    register = None
    if answer.managed:
        if manifest_store is not None:
            raise OptionError(
                f"manifest_store: the namespace manages the versions of {list(answer.path)}; leave "
                "it out"
            )
        root = open_store(answer.location, answer.storage_options).uri
        register = CatalogueManifestStore(client, answer.path, root)
    return FoundTable(answer.location, answer.storage_options, register)


def reach_table(
    client: Any,
    table_id: Sequence[str] | None,
    place: Any,
    storage_options: Mapping[str, str] | None,
    *,
    create: bool = False,
) -> FoundTable:
    """Return how to write to a location that may be a table of a namespace.

    The location stays as given, so that a worker writes where its plan says. The namespace provides
    credentials and the register of versions. An opened dataset has both already.

    Raises
    ------
    OptionError, DatasetNotFoundError, StoreError
        See :func:`find_table` and :func:`glaive.io.access.check_kind`.
    """
    if (client is None and table_id is None) or not isinstance(place, str | os.PathLike):
        return FoundTable(place, storage_options, None)
    found = find_table(client, table_id, None, storage_options, create=create)
    if found.storage_options is not storage_options:
        check_kind(found.uri, place)
    return FoundTable(os.fspath(place), found.storage_options, found.manifest_store)
