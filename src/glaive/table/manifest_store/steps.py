"""Make a version in four steps, and finish what another writer left unfinished.

1. write the manifest under a name of its own beside the final one;
2. register that name, only if the version has no entry: from here on the version is made;
3. write the manifest under its final name;
4. register the final name, and delete the first one.

Whoever looks for a version and finds it after step 2 does steps 3 and 4. They write the same
bytes under the same name, so it does no harm if several do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

from glaive.errors import CommitError, CorruptFileError, ObjectNotFoundError, StoreError
from glaive.format.names import is_staged_manifest_name
from glaive.format.paths import VERSIONS, parse_manifest_name
from glaive.io.store import ObjectStore
from glaive.table.manifest_store.protocol import ManifestEntry, ManifestStore

__all__ = ["find", "newest", "register"]

_logger = logging.getLogger(__name__)

_SUFFIX = ".manifest"


def register(
    store: ObjectStore, register: ManifestStore, version: int, path: str, data: Sequence[bytes]
) -> bool:
    """Make a version; ``False`` if another writer was first.

    Requests: one look for a manifest that nobody registered, and the four steps.

    Raises
    ------
    StoreError
        A store failed, and the version was not made.
    CommitError
        The register failed and does not tell whether the version was made.
    """
    if _adopt(store, register, version, path):
        return False
    staged = f"{path}-{uuid4()}"
    size = sum(len(piece) for piece in data)
    entry = ManifestEntry(version=version, path=staged, size=size)
    store.put(staged, data)
    if not _enter(store, register, entry):
        store.discard([staged])
        return False
    try:
        _finish(store, register, entry, data)
    except StoreError as error:  # the version is made: whoever reads it next finishes it
        _logger.warning("version %d of %s is made, not finished: %s", version, store.uri, error)
    return True


def find(store: ObjectStore, register: ManifestStore, version: int, path: str) -> str:
    """Path under which the manifest of a version can be read, finishing it if need be.

    ``path`` is its final name, which counts when the version has no entry. One look at the
    register; a version that nobody registered is registered, if it is there.
    """
    entry = register.get(store.uri, version)
    if entry is not None:
        return _settled(store, register, entry)
    _adopt(store, register, version, path)
    return path


def newest(store: ObjectStore, register: ManifestStore) -> tuple[int, str] | None:
    """Number and path of the newest registered version; ``None`` if none is registered."""
    entry = register.latest(store.uri)
    return None if entry is None else (entry.version, _settled(store, register, entry))


def _adopt(store: ObjectStore, register: ManifestStore, version: int, path: str) -> bool:
    """Register a manifest that is there without an entry; whether there is one.

    An empty one is not there yet: its writer did not register it, and was stopped.
    """
    try:
        size = store.head(path).size
    except ObjectNotFoundError:
        return False
    if not size:
        return False
    register.put_if_absent(store.uri, ManifestEntry(version=version, path=path, size=size))
    return True


def _enter(store: ObjectStore, register: ManifestStore, entry: ManifestEntry) -> bool:
    """Step 2; an answer that got lost is no failure."""
    failure: StoreError | None = None
    try:
        if register.put_if_absent(store.uri, entry):
            return True
    except StoreError as error:
        failure = error
    try:
        there = register.get(store.uri, entry.version)
    except StoreError as again:
        raise CommitError(
            f"version {entry.version} of {store.uri} may or may not have been made: "
            f"{failure or again} Looking for it failed as well. When the manifest store answers "
            "again, repeat the commit with the same transaction; if it was made, that is "
            "recognised."
        ) from (failure or again)
    if there is not None:
        # A reader may have finished it already. Then the commit is found by its transaction.
        return there.path == entry.path
    if failure is not None:
        with suppress(StoreError):
            store.discard([entry.path])
        raise failure
    return False


def _settled(store: ObjectStore, register: ManifestStore, entry: ManifestEntry) -> str:
    """Where the manifest of an entry can be read; steps 3 and 4 if they were not done."""
    final = _final(entry.path)
    folder, _, last = entry.path.rpartition("/")
    name = parse_manifest_name(final.rpartition("/")[2])
    known = entry.is_final or is_staged_manifest_name(last)
    if folder != VERSIONS or name is None or name.version != entry.version or not known:
        raise CorruptFileError(
            f"manifest store, entry of version {entry.version}",
            expected=f"a manifest of that version below {VERSIONS}/",
            found=entry.path,
            where=store.uri,
        )
    if entry.is_final:
        return entry.path
    try:
        data = store.get(entry.path).to_pybytes()
    except ObjectNotFoundError:
        there = register.get(store.uri, entry.version)
        if there is not None and there.is_final:  # somebody else has finished it since
            return there.path
        # The last step deletes the staged manifest after the entry was changed. If it vanished
        # earlier, it was removed by hand; the final one is then all there is.
        return final
    try:
        _finish(store, register, entry, [data])
    except ObjectNotFoundError:
        raise
    except StoreError as error:  # a reader that may not write reads what is staged
        _logger.info("version %d of %s stays unfinished: %s", entry.version, store.uri, error)
        return entry.path
    return final


def _finish(
    store: ObjectStore, register: ManifestStore, entry: ManifestEntry, data: Sequence[bytes]
) -> None:
    """Steps 3 and 4."""
    final = _final(entry.path)
    store.put(final, data)
    register.put_if_exists(
        store.uri, ManifestEntry(version=entry.version, path=final, size=entry.size)
    )
    store.discard([entry.path])


def _final(staged: str) -> str:
    """Final name of a manifest from the name it is staged under."""
    end = staged.rfind(_SUFFIX)
    return staged if end < 0 else staged[: end + len(_SUFFIX)]
