"""Transactions as users construct and read them, and committing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from glaive.dataclass import dataclass
from glaive.dataset.commits.lance_operation import LanceOperation
from glaive.dataset.commits.public_operation import public_operation
from glaive.entropy import new_uuid
from glaive.errors import (
    DatasetNotFoundError,
    OptionError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from glaive.format import transaction as stored
from glaive.format.manifest import Manifest, decode_manifest
from glaive.format.paths import DETACHED
from glaive.io.checksums import verification
from glaive.io.store import ObjectStore
from glaive.table.batch import merge_transactions
from glaive.table.commit import commit_transaction
from glaive.table.load import (
    each_manifest,
    load_manifest,
    open_latest,
    open_version,
    read_transaction,
)
from glaive.table.operations.overwrite import Overwrite
from glaive.table.operations.restore import Restore
from glaive.table.protocol import CommitOptions
from glaive.table.registry import operations
from glaive.table.versions import ManifestLocation, list_versions, locate

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["Transaction", "commit_appends", "commit_by_hand", "recent", "transaction_of"]


@dataclass
class Transaction:
    """One commit: its operation, the version it was made for, and its identity.

    Parameters
    ----------
    read_version
        The version the operation was made for; 0 to create a dataset.
    operation
        A class of ``LanceOperation``.
    uuid
        Identity of the commit; the same one is never committed twice.
    transaction_properties
        Free-form string entries.
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str = field(default_factory=lambda: str(new_uuid()))
    transaction_properties: dict[str, str] | None = field(default_factory=dict)

    def to_table(self) -> stored.Transaction:
        """The transaction to be committed."""
        if not isinstance(self.operation, LanceOperation.BaseOperation):
            raise OptionError(f"operation: expected a LanceOperation, found {self.operation!r:.60}")
        return stored.Transaction(
            read_version=self.read_version,
            operation=self.operation.to_table(),
            uuid=self.uuid,
            properties=dict(self.transaction_properties or {}),
        )


def _public(transaction: stored.Transaction) -> Transaction:
    """The public view of a transaction."""
    read = transaction.operation
    known = operations().get(read.wire_name or "")
    operation: Any = read if known is None or isinstance(read, known) else None
    if operation is None and known is not None:
        operation = known.from_wire(read.to_wire())
    return Transaction(
        transaction.read_version,
        public_operation(operation),
        transaction.uuid,
        dict(transaction.properties),
    )


def transaction_of(dataset: OpenedVersion, version: int) -> Transaction | None:
    """The transaction of a version; ``None`` if it is not available."""
    scheme = dataset.manifest.scheme
    try:
        manifest = open_version(dataset.store, version, scheme=scheme)
    except UnsupportedFeatureError:
        manifest = _load_unsupported(dataset.store, locate(dataset.store, version, scheme))
    read = read_transaction(dataset.store, manifest)
    return None if read is None else _public(read)


def recent(dataset: OpenedVersion, count: int) -> list[Transaction | None]:
    """The transactions of this version and those before it, the newest first.

    ``None`` where it is not recorded. One listing and at most two requests per version.
    """
    store, newest = dataset.store, dataset.manifest.version
    versions = [location for location in list_versions(store) if location.version <= newest]

    def transaction(location: ManifestLocation) -> Transaction | None:
        try:
            manifest = load_manifest(store, location)
        except UnsupportedFeatureError:
            manifest = _load_unsupported(store, location)
        read = read_transaction(store, manifest)
        return None if read is None else _public(read)

    wanted = versions[-count:] if count > 0 else []
    return list(each_manifest(store, transaction, wanted[::-1]))


def _load_unsupported(store: ObjectStore, location: ManifestLocation) -> Manifest:
    """Load a version whose rows glaive may not be able to read, for its transaction."""
    path = location.path
    data = store.get(path)
    verify = verification(store) != "never"
    return decode_manifest(
        data, where=store.full(path), scheme=location.scheme, to_read=False, verify=verify
    )


def commit_by_hand(
    store: ObjectStore,
    operation: LanceOperation.BaseOperation | Transaction,
    read_version: int | None,
    base: Manifest | None,
    *,
    message: str | None,
    options: CommitOptions,
) -> Manifest:
    """Commit an operation or a transaction that a user constructed."""
    if isinstance(operation, LanceOperation.BaseOperation):
        made = operation.to_table()
        if read_version is None:
            if not isinstance(made, Overwrite | Restore):
                raise OptionError(
                    "read_version is required for all operations except Overwrite and Restore: the "
                    "version that it was made for"
                )
            read_version = _newest(store)
        transaction = stored.Transaction(read_version=read_version, operation=made)
    elif isinstance(operation, Transaction):
        transaction = operation.to_table()
    else:
        raise OptionError(
            "operation must be a LanceOperation.BaseOperation or Transaction, got "
            f"{type(operation)}"
        )
    if message is not None:
        properties = {**transaction.properties, stored.LANCE_COMMIT_MESSAGE_KEY: message}
        transaction = replace(transaction, properties=properties)
    return _commit(store, transaction, base, options)


def commit_appends(
    store: ObjectStore,
    transactions: Sequence[Transaction],
    base: Manifest | None,
    options: CommitOptions,
) -> tuple[Manifest, Transaction]:
    """Commit several appends as one version; returns it and its transaction."""
    merged = merge_transactions([transaction.to_table() for transaction in transactions])
    return _commit(store, merged, base, options), _public(merged)


def _commit(
    store: ObjectStore,
    transaction: stored.Transaction,
    base: Manifest | None,
    options: CommitOptions,
) -> Manifest:
    _check_version(store, transaction)
    if base is not None and base.version < transaction.read_version:
        base = None
    return commit_transaction(store, transaction, base=base, options=options)


def _check_version(store: ObjectStore, transaction: stored.Transaction) -> None:
    """Check that the dataset exists, unless it is created, and so does the read version."""
    try:
        newest = open_latest(store).version
    except DatasetNotFoundError:
        if isinstance(transaction.operation, Overwrite):
            return
        raise
    if newest < transaction.read_version < DETACHED:
        raise VersionNotFoundError(
            f"read_version: version {transaction.read_version} of {store.uri} was not found; the "
            f"newest is {newest}"
        )


def _newest(store: ObjectStore) -> int:
    try:
        return open_latest(store).version
    except DatasetNotFoundError:
        return 0
