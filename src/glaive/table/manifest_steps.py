"""Commit a version with a register of manifests in four steps, and finish interrupted commits.

Specification: "External manifest store" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import pyarrow as pa

from glaive.errors import (
    CommitError,
    CorruptFileError,
    GlaiveError,
    ObjectNotFoundError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.format.manifest import decode_manifest
from glaive.format.paths import VERSIONS, is_staged_manifest_name, parse_manifest_name
from glaive.io.store import BytesLike, ObjectStore, find_object
from glaive.process import new_uuid
from glaive.table.manifest_store import ManifestEntry, ManifestStore

# --- Commit a version with a register in four steps, and finish interrupted commits -----
# 1. write the manifest under a unique staged name;
# 2. register that name if the version has no entry: from here on the version is committed;
# 3. write the manifest under its final name;
# 4. register the final name, and delete the staged manifest.
#
# A reader that finds a version after step 2 does steps 3 and 4. They are idempotent, so several
# processes may do them.
#
# A register with an attribute ``owns_manifests = True``, such as a catalogue, does steps 3 and 4
# on
# its own as part of step 2, and is not reported of manifests that it does not know.

_SUFFIX = ".manifest"


def register(
    store: ObjectStore, register: ManifestStore, version: int, path: str, data: Sequence[bytes]
) -> bool:
    """Commit a version; ``False`` if another writer was first.

    Requests: one for an unregistered manifest, and the four steps. Errors as for
    :func:`glaive.table.put_manifest.put_manifest`.
    """
    if not _owns(register) and _adopt(store, register, version, path):
        return False
    staged = f"{path}-{new_uuid()}"
    size = sum(map(len, data))
    entry = ManifestEntry(version=version, path=staged, size=size)
    store.put(staged, data)
    if not _enter(store, register, entry):
        store.discard([staged])
        return False
    if _owns(register):
        return True
    try:
        _finish(store, register, entry, data)
    except StoreError as error:  # the version is committed: its next reader finishes it
        import logging

        logging.getLogger(__name__).warning(
            "version %d of %s is not finalised: %s", version, store.public_uri, error
        )
    return True


def find(store: ObjectStore, register: ManifestStore, version: int, path: str) -> str:
    """Path of the manifest of a version, finalising it if necessary.

    ``path`` is its final name, used if the version has no entry. One query of the register; an
    existing unregistered manifest is registered.
    """
    entry = register.get(store.uri, version)
    if entry is not None:
        return _finalised(store, register, entry)
    if not _owns(register):
        _adopt(store, register, version, path)
    return path


def newest(store: ObjectStore, register: ManifestStore) -> tuple[int, str] | None:
    """Number and path of the newest registered version; ``None`` if none is registered."""
    entry = register.latest(store.uri)
    return None if entry is None else (entry.version, _finalised(store, register, entry))


def finish_staged(
    store: ObjectStore, register: ManifestStore, staged: Sequence[str], listed: Container[int]
) -> dict[int, str]:
    """Finalise the registered ones of some staged manifests.

    Returns versions that a listing did not show, and their paths: staged ones if they cannot be
    finalised. One query of the register for each of the versions that have a staged manifest: one
    of them has several if writers competed for it.
    """
    found: dict[int, str] = {}
    asked: set[int] = set()
    for path in () if _owns(register) else staged:
        name = parse_manifest_name(_final(path).rpartition("/")[2])
        if name is None or name.version in asked:
            continue
        asked.add(name.version)
        entry = register.get(store.uri, name.version)
        if entry is None:
            continue  # its writer ended before the second step
        if entry.path in staged:
            found[entry.version] = _finalised(store, register, entry)
        elif entry.version not in listed:  # finalised since, or cleaned up
            there = find_object(store, entry.path)
            if there is not None and there.size:
                found[entry.version] = entry.path
    return {version: path for version, path in found.items() if version not in listed}


def finish_all(store: ObjectStore, register: ManifestStore) -> None:
    """Finalise all versions, before their manifests get other names.

    Raises
    ------
    UnsupportedFeatureError
        The register names the manifests itself.
    CommitError
        A version could not be finalised.
    """
    if _owns(register):
        raise UnsupportedFeatureError(
            f"the manifests of {store.uri} are not renamed: {register!r} names them itself"
        )
    last = newest(store, register)
    names = [meta.path for meta in store.list(VERSIONS)]
    staged = [path for path in names if is_staged_manifest_name(path.rpartition("/")[2])]
    found = {**dict([last] if last else []), **finish_staged(store, register, staged, ())}
    for version, path in found.items():
        if is_staged_manifest_name(path.rpartition("/")[2]):
            raise CommitError(
                f"version {version} of {store.uri} is registered, and its manifest {path} could "
                "not be written under its final name. Try again when both stores take writes"
            )


def enter_renamed(store: ObjectStore, register: ManifestStore, version: int, path: str) -> None:
    """Have the entry of a version, if there is one, name another manifest with its content."""
    entry = register.get(store.uri, version)
    if entry is not None and entry.path != path:
        register.put_if_exists(
            store.uri, ManifestEntry(version=version, path=path, size=entry.size)
        )


def _owns(register: ManifestStore) -> bool:
    """Whether the register does steps 3 and 4 itself, and is reported of nothing."""
    return bool(getattr(register, "owns_manifests", False))


def _adopt(store: ObjectStore, register: ManifestStore, version: int, path: str) -> bool:
    """Register an existing manifest without an entry; returns whether it exists.

    An empty one does not count: its writer was interrupted.
    """
    there = find_object(store, path)
    if there is None or not there.size:
        return False
    register.put_if_absent(store.uri, ManifestEntry(version=version, path=path, size=there.size))
    return True


def _enter(store: ObjectStore, register: ManifestStore, entry: ManifestEntry) -> bool:
    """Step 2; a lost response is no failure.

    Nor is a refusal if the version has an entry: the request may have been repeated, and the
    catalogue has moved the staged manifest by then.
    """
    failure: GlaiveError | None = None
    try:
        if register.put_if_absent(store.uri, entry):
            return True
    except GlaiveError as error:
        failure = error
    try:
        registered = register.get(store.uri, entry.version)
    except GlaiveError as again:
        why = f"{failure or again} The check for it failed as well."
        raise _unknown(store, entry, why) from (failure or again)
    if registered is not None:
        # A reader may have finalised it already. Then the commit is found by its transaction.
        return registered.path == entry.path
    if failure is not None:
        # Its request may still be under way, so the staged manifest stays: a clean-up deletes it.
        if isinstance(failure, StoreError) and failure.is_unanswered:
            raise _unknown(store, entry, failure) from failure
        raise failure
    return False


def _unknown(store: ObjectStore, entry: ManifestEntry, why: object) -> CommitError:
    return CommitError(
        f"version {entry.version} of {store.uri} may or may not have been committed: {why} When "
        "the manifest store is available again, repeat the commit with the same transaction; an "
        "earlier success is recognised."
    )


def _finalised(store: ObjectStore, register: ManifestStore, entry: ManifestEntry) -> str:
    """Path of the manifest of an entry, after steps 3 and 4 if they are missing."""
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
    if entry.is_final or _owns(register):
        return entry.path
    try:
        data = store.get(entry.path)
    except ObjectNotFoundError:
        current = register.get(store.uri, entry.version)
        if current is not None and current.is_final:  # finalised concurrently
            return current.path
        # The last step deletes the staged manifest after changing the entry. If it is missing
        # before that, it was deleted manually; only the final one may exist.
        return final
    refuse_others(data, entry.version, store.full(entry.path))
    try:
        _finish(store, register, entry, [data], own=False)
    except ObjectNotFoundError:
        raise
    except StoreError as error:  # a reader without write permission uses the staged manifest
        import logging

        logging.getLogger(__name__).info(
            "version %d of %s remains staged: %s", entry.version, store.public_uri, error
        )
        return entry.path
    return final


def refuse_others(data: pa.Buffer, version: int, where: str) -> None:
    """Check that what was staged is the manifest of a version, before it is written as that.

    In the place of a stranger's it may be a link to any file of this machine, which would be copied
    into the dataset.

    Raises
    ------
    FormatError
        It is not.
    """
    found = decode_manifest(data, where=where, to_read=False).version
    if found != version:
        raise CorruptFileError(
            "version of a staged manifest",
            expected=f"{version}, as in its name",
            found=f"{found}",
            where=where,
        )


def _finish(
    store: ObjectStore,
    register: ManifestStore,
    entry: ManifestEntry,
    data: Sequence[BytesLike],
    *,
    own: bool = True,
) -> None:
    """Steps 3 and 4; what another process has staged (``own``) may lie behind a link."""
    final = _final(entry.path)
    store.put(final, data)
    register.put_if_exists(
        store.uri, ManifestEntry(version=entry.version, path=final, size=entry.size)
    )
    store.discard([entry.path], own=own)


def _final(staged: str) -> str:
    """Final name of a manifest from its staged name."""
    end = staged.rfind(_SUFFIX)
    return staged if end < 0 else staged[: end + len(_SUFFIX)]
