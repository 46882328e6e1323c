"""One opened version of a dataset: the value that the functions of this package take.

``LanceDataset`` holds one and replaces it when it moves. Objects that follow a dataset, such as
its tags, hold an :class:`OpenDataset` instead.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from glaive.dataclass import dataclass
from glaive.errors import (
    CorruptFileError,
    DatasetNotFoundError,
    OptionError,
    StoreError,
    UnreachableError,
    VersionNotFoundError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED, NamingScheme
from glaive.io.access import AccessPolicy
from glaive.io.store import ObjectStore
from glaive.process import DATASETS, emit
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import Views
from glaive.table.load import (
    VersionInfo,
    describe_versions,
    open_latest,
    open_latest_since,
    open_same,
    open_version,
)
from glaive.table.manifest_store import ManifestStore
from glaive.table.root import CommitLock, open_root
from glaive.types import VersionIdentity, integer_of

if TYPE_CHECKING:
    from glaive.table.refs import Referenced


# --- Describe versions, and find them by number or time ---------------------------------

# --- Points in time and durations in user input -----------------------------------------


def sanitize_ts(ts: object) -> datetime:
    """Convert a point in time to a ``datetime``.

    Parameters
    ----------
    ts
        A ``datetime`` (including pandas' ``Timestamp``), or a string in ISO format.

    Raises
    ------
    OptionError
        The value is not a point in time.
    """
    if isinstance(ts, str):
        try:
            return datetime.fromisoformat(ts)
        except ValueError as error:
            raise OptionError(f"Failed to parse timestamp string {ts}: {error}") from error
    if hasattr(ts, "to_pydatetime"):
        ts = ts.to_pydatetime()
    if not isinstance(ts, datetime):
        raise OptionError(f"Unrecognized version timestamp {ts} of type {type(ts).__name__}")
    return ts


def td_to_micros(td: timedelta) -> int:
    """Return the microseconds of a duration."""
    return td // timedelta(microseconds=1)


def describe(manifest: Manifest) -> dict[str, Any]:
    """Describe a version: ``version``, ``timestamp`` (local, naive), ``metadata``."""
    return _described(VersionInfo.of(manifest))


def describe_all(store: ObjectStore) -> list[dict[str, Any]]:
    """Describe all versions, oldest first, each as from :func:`describe`."""
    return [_described(version) for version in describe_versions(store)]


def _described(version: VersionInfo) -> dict[str, Any]:
    return {
        "version": version.version,
        "timestamp": version.timestamp.astimezone().replace(tzinfo=None),
        "metadata": version.metadata,
    }


def find_version(
    store: ObjectStore, version: object, scheme: NamingScheme | None = None
) -> Manifest:
    """Return the manifest of a version by number.

    Raises
    ------
    VersionNotFoundError
        The version is missing.
    OptionError
        The value is not an integer.
    """
    number = integer_of(version)
    if number is None:
        raise OptionError(f"version must be an integer or a string, found {version!r:.80}")
    return open_version(store, number, scheme=scheme)


def version_as_of(store: ObjectStore, asof: object, option: str = "asof") -> int:
    """Return the number of the newest version created before a point in time.

    Parameters
    ----------
    asof
        ``datetime`` (local time unless it has a time zone) or a string in ISO format.
    option
        Name of the option that gives it, for messages.

    Raises
    ------
    VersionNotFoundError
        All versions are newer.
    OptionError
        The argument is not a point in time.
    """
    try:
        moment = sanitize_ts(asof).astimezone()
    except (OptionError, ValueError, OverflowError):  # times near the years 1 and 9999
        raise OptionError(
            f"{option}: expected a datetime or a string like 2026-05-01, found {asof!r}."
        ) from None
    versions = describe_versions(store)
    before = [version.version for version in versions if version.timestamp < moment]
    if not before:
        first = f", created at {versions[0].timestamp}" if versions else ""
        raise VersionNotFoundError(
            f"{option}: no version of {store.uri} is before {moment}, which is earlier than the "
            f"first version of this dataset{first}. Pass a later time."
        )
    return before[-1]


# --- Warnings for methods that pylance and glaive deprecate -----------------------------


def warn_deprecated(words: str, above: int = 1) -> None:
    """Warn the caller of the function ``above`` calls above this one, in pylance's words."""
    warnings.warn(words, DeprecationWarning, stacklevel=above + 2)


# --- Resolve a dataset's URI and version arguments to its store and manifest ------------

_FORMATS: Final = {".csv": "CSV", ".json": "JSON", ".jsonl": "JSON", ".parquet": "Parquet"}
"""Formats of files that ``glaive convert`` reads, by file extension."""

_MAX_FOLDERS: Final = 100
"""Maximum number of folders to search for files of other formats."""


def find(
    uri: str | os.PathLike[str] | None,
    version: int | str | tuple[str | None, int | None] | None,
    asof: object,
    storage_options: Mapping[str, str] | None,
    commit_lock: CommitLock | None,
    manifest_store: ManifestStore | str | None,
    access: AccessPolicy | None,
) -> tuple[ObjectStore, Manifest, str]:
    """Return store, manifest and URI; :func:`glaive.dataset.open.dataset` lists the errors."""
    about = {"event": "loading", "uri": uri, "target_ref": version}
    try:
        if uri is None:
            raise OptionError(
                "Must specify either 'uri' or both 'namespace_client' and 'table_id'. uri "
                "is None: pass a path or a URI."
            )
        store = open_root(
            uri,
            storage_options,
            commit_lock=commit_lock,
            manifest_store=manifest_store,
            access=access,
        )
        found = _version(store, os.fspath(uri), version, asof)
    except Exception as error:
        emit(DATASETS, status="error", **about)
        if type(error) in (DatasetNotFoundError, StoreError) and uri is not None:
            instead = _similar_paths(os.fspath(uri).removeprefix("file://"))
            if instead:
                raise DatasetNotFoundError(
                    f"Dataset at path {uri} was not found{instead}"
                ) from error
        if type(error) is StoreError:
            raise UnreachableError(str(error)) from error
        raise
    emit(DATASETS, status="success", version=found[1].version, **about)
    return found


def _similar_paths(uri: str) -> str:
    """Name the file found at a local path, or datasets with a similar name; may be empty."""
    from difflib import get_close_matches
    from pathlib import Path

    place = Path(uri)
    if place.name in ("", ".."):
        place = place.resolve()
    with suppress(OSError, ValueError):  # the root has no name
        target = place.with_suffix(".lance")
        if place.is_file():
            kind = _FORMATS.get(place.suffix.lower())
            if kind is not None:
                return f": it is a {kind} file. Convert it: glaive convert {place} {target}"
            return ": it is a file, and a dataset is a folder. glaive inspect shows files of Lance"
        for folder, _, files in islice(os.walk(place), _MAX_FOLDERS):
            if Path(folder).name.startswith((".", "_")):  # such as _versions of a damaged dataset
                continue
            for kind in filter(None, (_FORMATS.get(Path(name).suffix.lower()) for name in files)):
                command = f"glaive convert {place} {target} --from {kind.lower()}"
                return f": it is a folder of {kind} files. Convert them: {command}"
        stems = {other.stem.lower(): other for other in place.parent.iterdir() if other != place}
        close = [stems[stem] for stem in get_close_matches(place.stem.lower(), stems)]
        suggestions = [repr(str(other)) for other in close if (other / "_versions").is_dir()]
        if suggestions:
            return f"; did you mean {', '.join(suggestions)}?"
    return ""


def _version(
    store: ObjectStore,
    uri: str,
    version: int | str | tuple[str | None, int | None] | None,
    asof: object,
) -> tuple[ObjectStore, Manifest, str]:
    if version is None and asof is not None:
        version = version_as_of(store, asof)
    if isinstance(version, str | tuple):
        from glaive.table.refs import resolve

        target = resolve(store, open_latest(store), version)
        return target.store, target.manifest, target.store.uri
    manifest = open_latest(store) if version is None else find_version(store, version)
    return store, manifest, uri


def check_options(function: str, given: Mapping[str, Any], of: Any) -> None:
    """Refuse options that the function ``of`` lacks; see :func:`refuse_unknown`."""
    if given:
        import inspect

        parameters = inspect.signature(of).parameters
        known = [name for name in parameters if name not in ("options", "self")]
        refuse_unknown(function, given, known)


def refuse_unknown(function: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse options outside of ``known``, with suggestions.

    Raises
    ------
    OptionError
        An option is unknown.
    """
    for name in given:
        if name not in known:
            raise OptionError(
                f"{function}() got an unexpected keyword argument {name!r}"
                f"{OptionError.did_you_mean(name, known)}"
            )


def version_of_manifest(message: object) -> int:
    """Return the version number of a serialised manifest; the caller reads the manifest again.

    Raises
    ------
    OptionError
        The value is not a manifest.
    """
    from glaive.format.pb import table_pb2
    from glaive.format.wire import parse

    if not isinstance(message, bytes | bytearray | memoryview):
        raise OptionError(f"serialized_manifest: expected bytes, found {type(message).__name__}")
    try:
        wire = parse(table_pb2.ManifestOutline(), bytes(message), "manifest", "the option")
    except CorruptFileError as error:
        raise OptionError(f"serialized_manifest: {error}") from error
    if not 0 < wire.version < 1 << 63:
        raise OptionError(f"serialized_manifest: expected a manifest, found version {wire.version}")
    return int(wire.version)


@dataclass(frozen=True, slots=True, eq=False)
class OpenedVersion:
    """A version of a dataset, ready to read. It never changes; threads can share it.

    Parameters
    ----------
    views
        Manifest, store and session of the version, and cached file metadata.
    uri
        URI with which the dataset was opened.
    storage_options
        Options of the object store, as they were given.
    scan_defaults
        Default options of scans.
    """

    views: Views
    uri: str = field(repr=False)  # a URL may have a password
    storage_options: Mapping[str, str] | None = field(repr=False)
    scan_defaults: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        manifest: Manifest,
        *,
        uri: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        session: Session | None = None,
        scan_defaults: Mapping[str, Any] | None = None,
    ) -> OpenedVersion:
        """Return the version that a manifest describes, from memory."""
        views = Views(Snapshot(store, manifest, Session() if session is None else session))
        # ``memory://`` is a new location each time it is opened: keep this one's name.
        location = store.uri if uri is None or uri.rstrip("/") == "memory:" else uri
        return cls(views, location, storage_options, dict(scan_defaults or {}))

    def __reduce__(self) -> tuple[object, ...]:
        # The number alone could match another dataset that replaced this one.
        place = (self.store, self.manifest.identity)
        return (_reopened, (*place, self.uri, self.storage_options, self.scan_defaults))

    @property
    def snapshot(self) -> Snapshot:
        """The version with empty caches of file metadata."""
        return self.views.snapshot

    @property
    def store(self) -> ObjectStore:
        """The root of the dataset."""
        return self.views.snapshot.store

    @property
    def manifest(self) -> Manifest:
        """The manifest of the version."""
        return self.views.snapshot.manifest

    @property
    def session(self) -> Session:
        """The cache of opened files."""
        return self.views.snapshot.session

    def with_scan_defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return options of a scan, with defaults for missing options.

        A scan with named columns returns these only: engines ask by name and refuse other columns.
        """
        if not self.scan_defaults:
            return given
        defaults = self.scan_defaults.items()
        added = ("with_row_id", "with_row_address") if given.get("columns") is not None else ()
        return given | {
            name: value for name, value in defaults if name not in added and given.get(name) is None
        }

    def at(self, version: int | Manifest, store: ObjectStore | None = None) -> OpenedVersion:
        """Return another version of this branch, with the same opened files.

        Parameters
        ----------
        version
            Its number or its manifest.
        store
            Root to use instead of this one, for example with more base paths.
        """
        if isinstance(version, int):
            version = find_version(self.store, version, self.manifest.scheme)
        root = self.store if store is None else store
        return replace(self, views=Views(Snapshot(root, version, self.session), self.views))

    def is_after(self, manifest: Manifest) -> bool:
        """Return whether this version comes after another; False if either is detached."""
        here, other = self.manifest.version, manifest.version
        return here > other and not (here | other) & DETACHED

    def at_latest(self, known: int = 0) -> OpenedVersion:
        """Return the newest version of this branch, at least this version and ``known``."""
        here = self.manifest.version
        here = 0 if here & DETACHED else here
        return self.at(open_latest_since(self.store, max(known, here)))

    def at_reference(self, target: Referenced) -> OpenedVersion:
        """Return the version that a reference resolved to, possibly on another branch."""
        if target.store is self.store:
            return self.at(target.manifest)
        return replace(self.at(target.manifest, target.store), uri=target.store.uri)


def _reopened(
    store: ObjectStore,
    identity: VersionIdentity,
    uri: str,
    options: Mapping[str, str] | None,
    defaults: Mapping[str, Any],
) -> OpenedVersion:
    there = open_same(store, identity)
    return OpenedVersion.of(store, there, uri=uri, storage_options=options, scan_defaults=defaults)


@runtime_checkable
class OpenDataset(Protocol):
    """A dataset that is opened at a version and can move to another."""

    @property
    def opened(self) -> OpenedVersion:
        """The version it is at now."""

    def move_to(self, manifest: Manifest) -> None:
        """Move it to another version of the same branch."""
