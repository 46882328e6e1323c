"""Put a manifest where no other is: the step that makes a version.

Everything a version consists of is written before; the manifest appears under its final name
at once or not at all, and only if there is none yet. Whoever comes second learns of it.

Specification: "Commit" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.errors import CommitError, ObjectExistsError, ObjectNotFoundError, StoreError
from glaive.format.manifest import Manifest
from glaive.format.paths import NamingScheme, manifest_path
from glaive.io.store import ObjectStore
from glaive.table.load import load_numbered, read_transaction

__all__ = ["made_by", "put_manifest"]


def put_manifest(
    store: ObjectStore, version: int, scheme: NamingScheme, data: Sequence[bytes], uuid: str
) -> bool:
    """Make a version; ``False`` if another writer was first. One request if all goes well.

    An answer that got lost is no failure: if the request fails but the version is there, and
    is the one with transaction ``uuid``, it was made.

    Raises
    ------
    StoreError
        The store refused, and the version was not made.
    CommitError
        The store failed and does not tell whether the version was made.
    """
    try:
        store.put(manifest_path(version, scheme), data, mode="create")
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
