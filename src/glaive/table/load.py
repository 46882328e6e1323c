"""Load the manifest of a version, and its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.errors import (
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
from glaive.table.bases import locate_data_file
from glaive.table.manifest_cache import MANIFESTS, ManifestCache, SeenDirectory
from glaive.table.root import register_of
from glaive.table.version_hint import read_hint
from glaive.table.versions import (
    ManifestLocation,
    latest,
    list_versions,
    locate,
    newest_name,
)

if TYPE_CHECKING:
    from glaive.format.transaction import Transaction

__all__ = [
    "VersionInfo",
    "describe_versions",
    "each_manifest",
    "find_transaction",
    "load_again",
    "load_manifest",
    "load_numbered",
    "open_latest",
    "open_latest_since",
    "open_newest",
    "open_version",
    "read_transaction",
]

R = TypeVar("R")

_AHEAD: Final = 8
"""Manifests that are read ahead, at least: each can be of a million fragments."""

_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Bytes that may be read ahead of small manifests, as many requests as there may be at a time."""

_SCHEMES: Final[dict[NamingScheme | None, tuple[NamingScheme, ...]]] = {
    "V1": ("V1", "V2"),
    "V2": ("V2",),
    None: ("V2", "V1"),
}
"""Naming schemes to try, by the one that was seen: V1 may have become V2, never the other way."""

_ATTEMPTS: Final = 3
"""How often to look for the newest version if it is deleted before it is read."""


def open_latest(
    store: ObjectStore, *, to_follow: bool = False, cache: ManifestCache = MANIFESTS
) -> Manifest:
    """The newest version. Two requests: a listing and the manifest.

    The listing is omitted if this process has seen the newest version of a local directory, which
    has not changed since. With ``to_follow`` the caller commits the next version, which fails if
    there is one: then changes may be so recent that they do not show.
    """
    recent = _still_newest(store, cache, to_follow=to_follow)
    if recent is not None:
        with suppress(ObjectNotFoundError):
            return load_manifest(store, recent, cache=cache)
    for _ in range(_ATTEMPTS):
        # Between the requests it may be cleaned up after a newer commit; or it is being written,
        # on stores that create an empty file first.
        with suppress(ObjectNotFoundError):
            seen = cache.see(store.folder_state(VERSIONS))
            newest = newest_name(store)
            return load_manifest(store, newest, keep=True, seen=seen, cache=cache)
    return load_manifest(store, latest(store), cache=cache)


def open_newest(store: ObjectStore) -> Manifest:
    """The newest version, also where listings are not up to date.

    For what takes over all that was committed. Two requests more than :func:`open_latest`, the hint
    and the next version, and one for each version that the listing lacked.
    """
    newest = open_latest(store)
    hint = read_hint(store) or 0
    if hint > newest.version:
        with suppress(ObjectNotFoundError):  # those before it may have been cleaned up
            newest = load_numbered(store, hint, newest.scheme)
    return _follow(store, newest)


def open_latest_since(store: ObjectStore, known: int) -> Manifest:
    """The newest version, and none before ``known``, which was seen: listings may be stale.

    As :func:`open_latest`; more requests only where a listing ends before ``known``: one, and one
    for each later version. If there is no such version any more, because of a clean-up or because
    another dataset was made here, as :func:`open_newest`.
    """
    newest = open_latest(store)
    if newest.version >= known:
        return newest
    try:
        return _follow(store, load_numbered(store, known, newest.scheme))
    except ObjectNotFoundError:
        return open_newest(store)


def _follow(store: ObjectStore, newest: Manifest) -> Manifest:
    """The last of the versions that follow one another from this one on."""
    while True:
        try:
            newest = load_numbered(store, newest.version + 1, newest.scheme)
        except ObjectNotFoundError:
            return newest


def _still_newest(
    store: ObjectStore, cache: ManifestCache, *, to_follow: bool
) -> ManifestLocation | None:
    """The cached newest version of a directory, if it is still the newest.

    Listing a directory takes longer the more versions it has. The directory must be unchanged, and
    the next number free, because the times of some file systems have millisecond steps.
    """
    if register_of(store) is not None:
        return None  # the register decides, not the directory
    state = store.folder_state(VERSIONS)
    known = cache.newest(store.full(VERSIONS), state, to_follow=to_follow)
    if known is None or not store.is_free(manifest_path(known.version + 1, known.scheme)):
        return None
    path = manifest_path(known.version, known.scheme)
    return ManifestLocation(known.version, path, known.scheme)


def open_version(
    store: ObjectStore, version: int, *, scheme: NamingScheme | None = None
) -> Manifest:
    """A version by number. One request if ``scheme``, or V2, is the naming scheme.

    Where it was V1, manifests may have been renamed since.

    Raises
    ------
    VersionNotFoundError
        There is no such version.
    DatasetNotFoundError
        There is no version.
    """
    if 0 < version < 2**64:
        with suppress(ObjectNotFoundError):
            return load_again(store, version, scheme)
    newest = latest(store).version
    known = [str(location.version) for location in list_versions(store)]
    listed = ("…, " if len(known) > 20 else "") + ", ".join(known[-20:])
    raise VersionNotFoundError(
        f"Not found: no version {version} of {store.uri}: it does not exist (was not found); the "
        f"newest is {newest}. Existing versions: {listed}. Older versions may have been cleaned up."
    )


def load_numbered(
    store: ObjectStore, version: int, scheme: NamingScheme, *, verify: bool = False
) -> Manifest:
    """A version by number and naming scheme. One request.

    With ``verify`` it is compared with its checksums also where reads do not.

    Raises
    ------
    ObjectNotFoundError
        There is no such version.
    CorruptFileError
        The manifest is damaged, or its version does not match its name.
    """
    return load_manifest(store, locate(store, version, scheme), verify=verify)


def load_again(
    store: ObjectStore, version: int, seen: NamingScheme | None, *, verify: bool = False
) -> Manifest:
    """A version by number, also if manifests got other names since those of ``seen``.

    One request if these are V2; otherwise two at most. ``verify`` and errors as for
    :func:`load_numbered`.
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
    """The manifest at a location; ``verify`` and errors as for :func:`load_numbered`.

    One request; row counts that are missing in old manifests are read when needed. With ``keep``
    the manifest is cached, which saves parsing the same bytes again; ``seen`` is the directory when
    it was the newest version.
    """
    path = location.path
    data, where = store.get(path), store.full(path)
    if not data.size:
        raise ObjectNotFoundError(
            f"version {location.version} of {store.uri} is incomplete: its manifest {where} is "
            "empty. Its writer is active or was interrupted; the next commit replaces it."
        )
    wanted = "always" if verify else verification(store)
    # What is remembered may have been read without comparing it.
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
    _complete_rows(store, manifest)
    if keep:
        cache.keep([data], manifest, seen)
    return manifest


def read_transaction(store: ObjectStore, manifest: Manifest) -> Transaction | None:
    """The transaction of a version; ``None`` if it is missing.

    No request if it is in the manifest, else one.
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
    """The version after ``since_version`` whose transaction has this property, if any.

    One listing, then one request per version, the newest first, from ``until`` on if it is given;
    over a network several at a time. The listing may be stale: versions up to ``known``, which was
    seen, are read in any case.
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

    found = map_requests(store, matching, range(last, since_version, -1), ahead=_AHEAD)
    return next((manifest for manifest in found if manifest is not None), None)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version: its number, time, and totals as strings, from its manifest."""

    version: int
    timestamp: datetime
    metadata: dict[str, str]

    @classmethod
    def of(cls, manifest: Manifest) -> VersionInfo:
        """The information in a manifest."""
        return cls(manifest.version, manifest.timestamp, _totals(manifest))


def each_manifest(
    store: ObjectStore, work: Callable[[ManifestLocation], R], locations: Sequence[ManifestLocation]
) -> Iterator[R]:
    """Apply ``work``, which reads the manifest, to each location; results come in order.

    Over a network several are read at a time.
    """
    from glaive.io.pool import map_requests

    largest = max((location.size or 0 for location in locations), default=0)
    ahead = min(settings.io_concurrency, _AHEAD_BYTES // max(1, largest))
    return map_requests(store, work, locations, ahead=max(_AHEAD, ahead))


def describe_versions(store: ObjectStore) -> list[VersionInfo]:
    """All versions with time and totals, oldest first. One request per version."""

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


def _complete_rows(store: ObjectStore, manifest: Manifest) -> None:
    """Let the manifest read missing row counts from the data files when they are needed.

    Releases up to 0.7 stored them in the files only. Releases from 0.8.0 on, until manifests
    recorded their writer, stored the live instead of the physical rows of a fragment with a
    deletion file; see "Fragments and data files" in ``docs/format``.

    Then one request per fragment with an unknown row count; listing versions does not need them.
    """
    manifest.read_rows = partial(_complete, store)


def _complete(store: ObjectStore, manifest: Manifest) -> table_pb2.ManifestOutline:
    """The message with the row counts of all fragments that have a data file."""
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
