"""Load the manifest of a version, and its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from glaive.config import settings
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import (
    CommitConflictError,
    CorruptFileError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from glaive.file.open import open_reader
from glaive.format.fragment import DataFile, check_fragment
from glaive.format.manifest import Manifest, decode_manifest
from glaive.format.paths import VERSIONS, NamingScheme, manifest_path, transaction_path
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.io.checksums import compares_metadata, verification
from glaive.io.store import ObjectStore
from glaive.process import monotonic, now_ns
from glaive.table.root import locate_data_file, register_of
from glaive.table.versions import (
    ManifestLocation,
    latest,
    list_versions,
    locate,
    newest_name,
    read_hint,
)
from glaive.types import VersionIdentity

if TYPE_CHECKING:
    from glaive.format.transaction import Transaction


# --- A cache of recently read or written newest manifests -------------------------------
# Repeated appends read the version of the previous append. glaive always reads the file, but parses
# it only if it has new bytes. Manifests are immutable, so they can be shared.
#
# The cache has one manifest per dataset, for a few datasets. It omits large manifests. It belongs
# to the process rather than to a session, because every append by path opens a new session.

DirectoryState = tuple[int, int, int]
"""Inode of a directory, and the times (ns) of its last changes: files created or deleted."""


class SeenDirectory(NamedTuple):
    """The state of a directory before it was listed.

    ``shows_changes``: a later change gives another state. A change at about the same time may give
    the same, as times of file systems have steps of up to two seconds.
    """

    state: DirectoryState
    shows_changes: bool = False


class _Entry(NamedTuple):
    """A manifest, its bytes, the time of the entry, and the state of the directory at that time."""

    data: pa.Buffer
    manifest: Manifest
    made: float
    seen: SeenDirectory | None


class ManifestCache:
    """The newest manifest of each dataset, by its folder. Threads can share it.

    Parameters
    ----------
    max_datasets
        Number of datasets to keep: the most recently used.
    max_bytes
        Maximum bytes of a cached manifest file; the parsed manifest is several times larger.
    fresh_seconds
        Seconds that a writer may use an entry instead of listing the versions.
    step_seconds
        Minimum age of a directory's last change, so that later changes show in its times. More
        than a step of the file system's times.
    fine_step_seconds
        The same for file systems with finer times than milliseconds: their steps are the ticks of
        the system's clock, 10 ms at most.
    """

    __slots__ = (
        "_entries",
        "_fine_step_seconds",
        "_fresh_seconds",
        "_max_bytes",
        "_max_datasets",
        "_step_seconds",
    )

    def __init__(
        self,
        *,
        max_datasets: int = 4,
        max_bytes: int = 1024 * 1024,
        fresh_seconds: float = 1.0,
        step_seconds: float = 3.0,
        fine_step_seconds: float = 0.1,
    ) -> None:
        self._max_datasets, self._max_bytes = max_datasets, max_bytes
        self._fresh_seconds = fresh_seconds
        self._step_seconds, self._fine_step_seconds = step_seconds, fine_step_seconds
        self._entries: dict[str, _Entry] = {}

    def recall(self, data: pa.Buffer, where: str) -> Manifest | None:
        """Return the cached manifest of the same file, if it was parsed from the same bytes."""
        entry = self._entries.get(_folder(where))
        if entry is None or entry.manifest.where != where or not entry.data.equals(data):
            return None
        return entry.manifest

    def judge(self, state: DirectoryState | None) -> SeenDirectory | None:
        """Judge the state of a directory that was just read, before it is listed."""
        if state is None:
            return None
        changed = max(state[1:])
        step = self._fine_step_seconds if changed % 1_000_000 else self._step_seconds
        return SeenDirectory(state, (now_ns() - changed) / 1e9 > step)

    def newest(
        self, folder: str, state: DirectoryState | None, *, to_follow: bool = False
    ) -> Manifest | None:
        """Return the cached manifest, if the folder is unchanged, and a change would show.

        ``to_follow`` also accepts a fresh entry, as the caller notices a mistake.
        """
        entry = self._entries.get(folder)
        if entry is None or entry.seen is None or entry.seen.state != state:
            return None
        is_fresh = to_follow and monotonic() - entry.made <= self._fresh_seconds
        return entry.manifest if is_fresh or entry.seen.shows_changes else None

    def keep(
        self,
        parts: Sequence[bytes | pa.Buffer],
        manifest: Manifest,
        seen: SeenDirectory | None = None,
    ) -> None:
        """Cache the newest manifest of a folder, and the parts of its file.

        The manifest must have all row counts. ``seen`` is the state of the folder at that time.
        """
        if sum(map(len, parts)) > self._max_bytes:
            return
        data = pa.py_buffer(b"".join(parts))
        folder = _folder(manifest.where)
        # Each step is atomic. A lock could stay locked in a concurrently forked process.
        self._entries.pop(folder, None)
        self._entries[folder] = _Entry(data, manifest, monotonic(), seen)
        for oldest in list(self._entries)[: -self._max_datasets]:
            self._entries.pop(oldest, None)

    def clear(self) -> None:
        """Remove all manifests."""
        self._entries.clear()


MANIFESTS: Final = ManifestCache()
"""The cache of this process."""


def _folder(where: str) -> str:
    return where.rpartition("/")[0]


R = TypeVar("R")

_MIN_READ_AHEAD: Final = 8
"""Minimum manifests to read ahead: each may have a million fragments."""

_READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Bytes to read ahead of small manifests, with as many requests as allowed at a time."""

_SCHEMES: Final[dict[NamingScheme | None, tuple[NamingScheme, ...]]] = {
    "V1": ("V1", "V2"),
    "V2": ("V2",),
    None: ("V2", "V1"),
}
"""Naming schemes to try, by the scheme seen before: V1 may have become V2, never vice versa."""

_ATTEMPTS: Final = 3
"""Number of attempts to find the newest version if it is deleted before it is read."""


def open_latest(
    store: ObjectStore, *, to_follow: bool = False, cache: ManifestCache = MANIFESTS
) -> Manifest:
    """Open the newest version. Two requests: a listing and the manifest.

    Omits the listing if this process has seen the newest version of a local directory in its
    present state. With ``to_follow`` the caller commits the next version, which fails if it exists.
    So glaive then accepts a directory that may hide its latest changes.
    """
    recent = _still_newest(store, cache, to_follow=to_follow)
    if recent is not None:
        with suppress(ObjectNotFoundError):
            return load_manifest(store, recent, cache=cache)
    for _ in range(_ATTEMPTS):
        # Meanwhile a clean-up may delete it after a newer commit. Or a writer is writing it, on a
        # store that creates an empty file first.
        with suppress(ObjectNotFoundError):
            seen = cache.judge(store.folder_state(VERSIONS))
            newest = newest_name(store)
            return load_manifest(store, newest, keep=True, seen=seen, cache=cache)
    return load_manifest(store, latest(store), cache=cache)


def open_newest(store: ObjectStore) -> Manifest:
    """Open the newest version, even if listings are stale.

    Use it to take over everything that was committed. Makes two requests more than
    :func:`open_latest`, for the hint and the next version, and one per version that the listing
    lacks.
    """
    newest = open_latest(store)
    hint = read_hint(store) or 0
    if hint > newest.version:
        with suppress(ObjectNotFoundError):  # earlier versions may have been cleaned up
            newest = load_numbered(store, hint, newest.scheme)
    return _follow(store, newest)


def open_latest_since(store: ObjectStore, known: int) -> Manifest:
    """Open the newest version, at least ``known``, which exists: listings may be stale.

    Works like :func:`open_latest`. If a listing ends before ``known``, it makes one more request
    and one per later version. If that version is gone, after a clean-up or because another dataset
    replaced this one, it works like :func:`open_newest`.
    """
    newest = open_latest(store)
    if newest.version >= known:
        return newest
    try:
        return _follow(store, load_numbered(store, known, newest.scheme))
    except ObjectNotFoundError:
        return open_newest(store)


def _follow(store: ObjectStore, newest: Manifest) -> Manifest:
    """Return the last of the consecutive versions from this one on."""
    while True:
        try:
            newest = load_numbered(store, newest.version + 1, newest.scheme)
        except ObjectNotFoundError:
            return newest


def _still_newest(
    store: ObjectStore, cache: ManifestCache, *, to_follow: bool
) -> ManifestLocation | None:
    """Return the cached newest version of a directory, if it is still the newest.

    Listing a directory takes longer the more versions it has. The directory must be unchanged, and
    the next number free, because the times of some file systems have millisecond steps.
    """
    if register_of(store) is not None:
        return None  # the register decides here
    state = store.folder_state(VERSIONS)
    known = cache.newest(store.full(VERSIONS), state, to_follow=to_follow)
    if known is None or not store.is_free(manifest_path(known.version + 1, known.scheme)):
        return None
    path = manifest_path(known.version, known.scheme)
    return ManifestLocation(known.version, path, known.scheme)


def open_version(
    store: ObjectStore, version: int, *, scheme: NamingScheme | None = None
) -> Manifest:
    """Open a version by number. One request if ``scheme``, or V2, is the naming scheme.

    If ``scheme`` is V1, manifests may have been renamed meanwhile.

    Raises
    ------
    VersionNotFoundError
        The version does not exist.
    DatasetNotFoundError
        All versions are missing.
    """
    if 0 < version < 2**64:
        with suppress(ObjectNotFoundError):
            return load_again(store, version, scheme)
    newest = latest(store).version
    known = [str(location.version) for location in list_versions(store)]
    listed = ("…, " if len(known) > 20 else "") + ", ".join(known[-20:])
    raise VersionNotFoundError(
        f"Not found: version {version} of {store.uri} does not exist (was not found); the "
        f"newest is {newest}. Existing versions: {listed}. Older versions may have been cleaned up."
    )


def load_numbered(
    store: ObjectStore, version: int, scheme: NamingScheme, *, verify: bool = False
) -> Manifest:
    """Load a version by number and naming scheme. One request.

    With ``verify``, always compare it with its checksums.

    Raises
    ------
    ObjectNotFoundError
        The version does not exist.
    CorruptFileError
        The manifest is damaged, or its version contradicts its name.
    """
    return load_manifest(store, locate(store, version, scheme), verify=verify)


def load_again(
    store: ObjectStore, version: int, seen: NamingScheme | None, *, verify: bool = False
) -> Manifest:
    """Load a version by number, even if manifests were renamed since ``seen``.

    Makes one request if ``seen`` is V2, otherwise at most two. :func:`load_numbered` explains
    ``verify`` and the errors.
    """
    *before, last = _SCHEMES[seen]
    for naming in before:
        with suppress(ObjectNotFoundError):
            return load_numbered(store, version, naming, verify=verify)
    return load_numbered(store, version, last, verify=verify)


def load_manifest(
    store: ObjectStore,
    location: ManifestLocation,
    *,
    keep: bool = False,
    seen: SeenDirectory | None = None,
    cache: ManifestCache = MANIFESTS,
    verify: bool = False,
) -> Manifest:
    """Load the manifest at a location; :func:`load_numbered` explains ``verify`` and the errors.

    Makes one request. Row counts that old manifests lack are read when needed. With ``keep`` the
    manifest is cached, which saves parsing the same bytes again. ``seen`` is the state of the
    directory when it was the newest version.
    """
    path = location.path
    data, where = store.get(path), store.full(path)
    if not data.size:
        raise ObjectNotFoundError(
            f"version {location.version} of {store.uri} is incomplete: its manifest {where} is "
            "empty. Its writer is active or was interrupted; the next commit replaces it."
        )
    wanted = "always" if verify else verification(store)
    # A cached manifest may still be unverified.
    known = None if wanted == "always" else cache.recall(data, where)
    if known is not None:
        if keep:
            cache.keep([data], known, seen)
        return known
    compared = partial(compares_metadata, store) if wanted == "never" else True
    manifest = decode_manifest(data, where=where, scheme=location.scheme, verify=compared)
    if manifest.version != location.version or not manifest.version:
        raise CorruptFileError(
            "version of the manifest",
            expected=f"{location.version or 'a number from 1 on'}, as in its name",
            found=f"{manifest.version}",
            where=manifest.where,
        )
    manifest.read_rows = partial(_complete, store)
    if keep:
        cache.keep([data], manifest, seen)
    return manifest


def read_transaction(store: ObjectStore, manifest: Manifest) -> Transaction | None:
    """Read the transaction of a version; ``None`` if it is missing.

    Makes no request if it is in the manifest, else one.
    """
    from glaive.format.transaction import decode_transaction

    if manifest.transaction is not None:
        return decode_transaction(manifest.transaction, where=manifest.where)
    name = manifest.wire.transaction_file
    if not name:
        return None
    path = transaction_path(name)
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return None
    return decode_transaction(data.to_pybytes(), where=store.full(path))


def find_transaction(
    store: ObjectStore,
    since_version: int,
    key: str,
    value: str,
    *,
    until: int | None = None,
    known: int = 0,
) -> Manifest | None:
    """Find the version after ``since_version`` whose transaction has this property, if any.

    Makes one listing, then one request per version, newest first, from ``until`` on if given; over
    a network several at a time. The listing may be stale: versions up to ``known``, which exists,
    are always read.
    """
    from glaive.io.pool import map_requests

    newest = latest(store)
    last = max(newest.version, known)
    if until is not None:
        last = min(until, last)

    def matching(version: int) -> Manifest | None:
        try:
            manifest = load_numbered(store, version, newest.scheme)
        except ObjectNotFoundError:
            return None
        theirs = read_transaction(store, manifest)
        return manifest if theirs is not None and theirs.properties.get(key) == value else None

    found = map_requests(store, matching, range(last, since_version, -1), ahead=_MIN_READ_AHEAD)
    return next((manifest for manifest in found if manifest is not None), None)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version: its number, time, and totals as strings, from its manifest."""

    version: int
    timestamp: datetime
    metadata: dict[str, str]

    @classmethod
    def of(cls, manifest: Manifest) -> VersionInfo:
        """Return the information of a manifest."""
        return cls(manifest.version, manifest.timestamp, _totals(manifest))


def each_manifest(
    store: ObjectStore, work: Callable[[ManifestLocation], R], locations: Sequence[ManifestLocation]
) -> Iterator[R]:
    """Apply ``work``, which reads the manifest, to each location; results come in order.

    Over a network it reads several at a time.
    """
    from glaive.io.pool import map_requests

    largest = max((location.size or 0 for location in locations), default=0)
    ahead = min(settings.io_concurrency, _READ_AHEAD_BYTES // max(1, largest))
    return map_requests(store, work, locations, ahead=max(_MIN_READ_AHEAD, ahead))


def describe_versions(store: ObjectStore) -> list[VersionInfo]:
    """Describe all versions with time and totals, oldest first. One request per version."""

    def described(location: ManifestLocation) -> VersionInfo | None:
        try:
            return VersionInfo.of(load_manifest(store, location))
        except ObjectNotFoundError:  # cleaned up after the listing
            return None

    infos = each_manifest(store, described, list_versions(store))
    return [info for info in infos if info is not None]


def _totals(manifest: Manifest) -> dict[str, str]:
    columns = manifest.stated
    deleted = columns.deleted_rows
    physical = int(columns.physical_rows.sum())
    deletions = int(deleted[deleted > 0].sum())
    totals = {
        "total_data_file_rows": physical,
        "total_data_files": columns.file_count,
        "total_deletion_file_rows": deletions,
        "total_deletion_files": int((deleted != 0).sum()),
        "total_files_size": columns.file_bytes,
        "total_fragments": len(columns),
        "total_rows": physical - deletions,
    }
    return {name: str(value) for name, value in totals.items()}


def _complete(store: ObjectStore, manifest: Manifest) -> table_pb2.ManifestOutline:
    """Return the message with the row counts of all fragments that have a data file.

    Releases up to 0.7 stored them in the files only. Later releases, until manifests recorded their
    writer, stored live rows instead of physical rows for a fragment with a deletion file. See
    "Fragments and data files" in ``docs/format``.

    Makes one request per fragment with an unknown row count.
    """
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    for position in manifest.stated.unknown_rows.tolist():
        raw = wire.fragments[position]
        fragment = parse(table_pb2.DataFragment(), raw, "fragment", manifest.where)
        if fragment.files:
            fragment.physical_rows = 0
            check_fragment(fragment, manifest.where)
            file = DataFile.from_wire(fragment.files[0], manifest.where)
            file_store, path = locate_data_file(store, manifest, file)
            reader = open_reader(file_store, path, size=file.size)
            fragment.physical_rows = reader.num_rows
            reader.reader.close()
            wire.fragments[position] = fragment.SerializeToString()
    return wire


# --- Notice that another dataset has replaced the dataset of a version that was read -----
# A commit that builds on that version would refer to deleted files, and might leave a gap before
# its own version.
#
# The usual commit learns this from the hint: the versions that it names tell whether to check
# further. On a local disk the version's transaction file does, as its name is unique.


def check_not_replaced(store: ObjectStore, base: Manifest, reach: int = 0) -> None:
    """Check that a version read earlier belongs to the dataset that exists now.

    Makes one request without ``reach``, and up to four if the version is missing. Makes none if
    ``reach`` is the version itself, the newest known version, and its transaction file may exist.
    On a local disk it makes none for earlier versions either, if that file exists.

    A missing version with later versions was cleaned up, which is allowed here.

    Raises
    ------
    CommitConflictError
        Another dataset has replaced this one.
    """
    name = base.wire.transaction_file
    removed = bool(name) and store.is_free(transaction_path(name))
    is_there = bool(name) and not removed and store.is_local
    if not removed and (reach == base.version or (reach > base.version and is_there)):
        return
    try:
        there = load_numbered(store, base.version, base.scheme)
    except ObjectNotFoundError:
        if reach > base.version or _is_of_history(store, base):
            return
    else:
        if is_same(there, base):
            return
    raise replaced(store, base.version)


def is_same(there: Manifest, known: Manifest) -> bool:
    """Return whether a version that is read again is the version that was read before."""
    return there.identity == known.identity


def open_same(store: ObjectStore, identity: VersionIdentity) -> Manifest:
    """Open a version again, maybe from another process; as many requests as by number.

    Raises
    ------
    VersionNotFoundError
        The version was cleaned up, or another dataset has replaced its dataset.
    """
    there = open_version(store, identity[0])
    check_same(there, identity)
    return there


def check_same(there: Manifest, identity: VersionIdentity) -> None:
    """Check that a version is the version that was opened before.

    Raises
    ------
    VersionNotFoundError
        Another dataset has replaced its dataset.
    """
    if there.identity != identity:
        raise VersionNotFoundError(
            f"version {identity[0]} of {there.where} is not the version that was opened before: "
            "the dataset was deleted, and another dataset made in its place. Open it again."
        )


def _is_of_history(store: ObjectStore, base: Manifest) -> bool:
    """Return whether a version whose manifest is missing was cleaned up, or renamed.

    Makes up to three requests, as a listing may be stale.
    """
    newest = latest(store)
    if newest.version > base.version:
        return True
    with suppress(ObjectNotFoundError):
        if newest.version == base.version and newest.scheme != base.scheme:  # it was renamed
            return is_same(load_manifest(store, newest), base)
        load_numbered(store, base.version + 1, newest.scheme)
        return True
    return False


def replaced(store: ObjectStore, version: int) -> CommitConflictError:
    """Return the error for a version of a dataset that was replaced."""
    return CommitConflictError(
        f"version {version} of {store.uri}, which this change was made for, is not a version of "
        "the current dataset: its dataset was deleted, and another dataset made in its place. "
        "Nothing was committed. Open the dataset again, and repeat the change.",
        retryable=False,
        version=version,
    )
