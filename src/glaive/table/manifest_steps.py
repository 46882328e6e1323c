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
# itself as part of step 2. glaive tells it only about manifests that it knows.

_SUFFIX = ".manifest"


def register(
    store: ObjectStore, register: ManifestStore, version: int, path: str, data: Sequence[bytes]
) -> bool:
    """Commit a version; return ``False`` if another writer was first.

    Requests: one for an unregistered manifest, and the four steps.
    :func:`glaive.table.put_manifest.put_manifest` lists the errors.
    """
    if not _owns(register) and _register_existing(store, register, version, path):
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
    """Return the path of the manifest of a version, and finalise it if necessary.

    ``path`` is its final name, used if the version has no entry. Makes one query of the register,
    and registers an existing unregistered manifest.
    """
    entry = register.get(store.uri, version)
    if entry is not None:
        return _finalised(store, register, entry)
    if not _owns(register):
        _register_existing(store, register, version, path)
    return path


def newest(store: ObjectStore, register: ManifestStore) -> tuple[int, str] | None:
    """Return number and path of the newest registered version, if any."""
    entry = register.latest(store.uri)
    return None if entry is None else (entry.version, _finalised(store, register, entry))


def finish_staged(
    store: ObjectStore, register: ManifestStore, staged: Sequence[str], listed: Container[int]
) -> dict[int, str]:
    """Finalise staged manifests that are registered.

    Returns versions that a listing lacked, with their paths; staged paths if finalising fails.
    Makes one query of the register per version with a staged manifest. A version has several if
    writers competed for it.
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
    """Finalise all versions, before their manifests are renamed.

    Raises
    ------
    UnsupportedFeatureError
        The register names the manifests itself.
    CommitError
        Finalising a version failed.
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
    """Let the entry of a version, if any, name another manifest with its content."""
    entry = register.get(store.uri, version)
    if entry is not None and entry.path != path:
        register.put_if_exists(
            store.uri, ManifestEntry(version=version, path=path, size=entry.size)
        )


def _owns(register: ManifestStore) -> bool:
    """Return whether the register does steps 3 and 4 itself, and needs no reports."""
    return bool(getattr(register, "owns_manifests", False))


def _register_existing(
    store: ObjectStore, register: ManifestStore, version: int, path: str
) -> bool:
    """Register an existing unregistered manifest; return whether it exists.

    An empty manifest does not count: its writer was interrupted.
    """
    there = find_object(store, path)
    if there is None or not there.size:
        return False
    register.put_if_absent(store.uri, ManifestEntry(version=version, path=path, size=there.size))
    return True


def _enter(store: ObjectStore, register: ManifestStore, entry: ManifestEntry) -> bool:
    """Do step 2; a lost response is not a failure.

    A refusal is not a failure either if the version has an entry. The request may have been
    repeated after the catalogue moved the staged manifest.
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
        reason = f"{failure or again} The check for it failed as well."
        raise _unknown(store, entry, reason) from (failure or again)
    if registered is not None:
        # A reader may have finalised it already. Then its transaction identifies the commit.
        return registered.path == entry.path
    if failure is not None:
        # The request may still be under way, so the staged manifest stays for a clean-up.
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
    """Return the path of the manifest of an entry, after steps 3 and 4 if they are missing."""
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
        # The last step deletes the staged manifest after it changed the entry. If it is missing
        # before that, somebody deleted it, and only the final manifest may exist.
        return final
    refuse_others(data, entry.version, store.full(entry.path))
    try:
        _finish(store, register, entry, [data], own=False)
    except ObjectNotFoundError:
        raise
    except StoreError as error:  # a read-only reader uses the staged manifest
        import logging

        logging.getLogger(__name__).info(
            "version %d of %s remains staged: %s", entry.version, store.public_uri, error
        )
        return entry.path
    return final


def refuse_others(data: pa.Buffer, version: int, where: str) -> None:
    """Check that a staged file is the manifest of a version, before writing it as such.

    In an untrusted location it may be a symlink to any file of this machine, which would be copied
    into the dataset.

    Raises
    ------
    FormatError
        The file is not the manifest of this version.
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
    """Do steps 3 and 4; files staged by another process (``own``) may be symlinked."""
    final = _final(entry.path)
    store.put(final, data)
    register.put_if_exists(
        store.uri, ManifestEntry(version=entry.version, path=final, size=entry.size)
    )
    store.discard([entry.path], own=own)


def _final(staged: str) -> str:
    """Return the final name of a manifest from its staged name."""
    end = staged.rfind(_SUFFIX)
    return staged if end < 0 else staged[: end + len(_SUFFIX)]
