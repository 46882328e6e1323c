"""Put a manifest where no other is: the step that makes a version.

Everything a version consists of is written before; the manifest appears under its final name
at once or not at all, and only if there is none yet. Whoever comes second learns of it. What
decides who is first:

- the store itself, which links a file or accepts a request only if the name is free;
- where a commit lock is given, whoever holds it;
- where manifests are registered elsewhere, the register (``glaive.table.manifest_store``).

Specification: "Commit" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.errors import (
    CommitConflictError,
    CommitError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED, NamingScheme, manifest_path
from glaive.io.store import ObjectStore
from glaive.table.load import load_numbered, read_transaction
from glaive.table.manifest_store.steps import register
from glaive.table.root import lock_of, register_of

__all__ = ["forget_dataset", "made_by", "put_manifest"]


def put_manifest(
    store: ObjectStore, version: int, scheme: NamingScheme, data: Sequence[bytes], uuid: str
) -> bool:
    """Make a version; ``False`` if another writer was first. One request if all goes well.

    An answer that got lost is no failure: if the request fails but the version is there, and
    is the one with transaction ``uuid``, it was made. A commit lock that raises
    ``CommitConflictError`` says that another writer was first; what else it raises ends the
    commit.

    Raises
    ------
    StoreError
        The store refused, and the version was not made.
    CommitError
        The store failed and does not tell whether the version was made.
    """
    lock = lock_of(store)
    if lock is None:
        return _put(store, version, scheme, data, uuid)
    try:
        with lock(version):
            return _put(store, version, scheme, data, uuid)
    except CommitConflictError:
        return False


def _put(
    store: ObjectStore, version: int, scheme: NamingScheme, data: Sequence[bytes], uuid: str
) -> bool:
    path = manifest_path(version, scheme)
    registered = register_of(store)
    if registered is not None and not version & DETACHED:
        return register(store, registered, version, path, data)
    try:
        store.put(path, data, mode="create")
    except ObjectExistsError:
        return False
    except StoreError as error:
        try:
            made = load_numbered(store, version, scheme)
        except ObjectNotFoundError:
            raise error from None
        except StoreError as again:
            raise CommitError(
                f"version {version} of {store.uri} may or may not have been made: {error} "
                f"Looking for it failed as well: {again} When the store answers again, repeat "
                "the commit with the same transaction; if it was made, that is recognised."
            ) from error
        return made_by(store, made, uuid)
    return True


def made_by(store: ObjectStore, manifest: Manifest, uuid: str) -> bool:
    """Whether a version was made by the transaction with this uuid."""
    transaction = read_transaction(store, manifest)
    return transaction is not None and transaction.uuid == uuid


def forget_dataset(store: ObjectStore) -> None:
    """Remove what is registered elsewhere of a dataset whose files are being deleted."""
    registered = register_of(store)
    if registered is not None:
        registered.drop(store.uri)
