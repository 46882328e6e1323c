"""Construct, read and commit transactions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Unpack, overload

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.fragment_metadata import FragmentMetadata
from glaive.dataset.keywords import FileKeywords, FragmentKeywords, shows_file_options
from glaive.dataset.lance_operation import LanceOperation, public_operation, table_operation
from glaive.dataset.monitoring import showing
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.writing.fragments import write_fragments as write_files
from glaive.dataset.writing.plan import WriteOptions, WritePlan, plan_write
from glaive.dataset.writing.rows import open_to_write, write_options
from glaive.dataset.writing.source import read_source
from glaive.errors import (
    DatasetNotFoundError,
    OptionError,
    OptionRangeError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from glaive.format import transaction as stored
from glaive.format.manifest import Manifest, decode_manifest
from glaive.format.paths import DETACHED
from glaive.io.access import AccessPolicy
from glaive.io.checksums import compares_metadata
from glaive.io.store import ObjectStore
from glaive.options import integer
from glaive.process import new_uuid
from glaive.table.commit import commit_transaction, merge_transactions
from glaive.table.load import (
    each_manifest,
    load_manifest,
    open_latest,
    open_latest_since,
    open_version,
    read_transaction,
)
from glaive.table.manifest_registers import reach_table
from glaive.table.operations.create_index import CreateIndex, rebase_segments
from glaive.table.operations.overwrite import Append, Overwrite, Restore
from glaive.table.operations.update import Update
from glaive.table.protocol import CommitOptions, operations
from glaive.table.root import CommitLock, access_of, guarded, open_root
from glaive.table.versions import ManifestLocation, list_versions, locate


@dataclass
class Transaction:
    """One commit: its operation, the version it was made for, and its identity.

    Parameters
    ----------
    read_version
        The version the operation was made for; 0 creates a dataset.
    operation
        A class of ``LanceOperation``.
    uuid
        Identity of the commit: glaive never commits an identity twice. A string needs a letter:
        otherwise it counts as missing, and the commit gets a new identity.
    transaction_properties
        Free-form string entries.
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str = field(default_factory=lambda: str(new_uuid()))
    transaction_properties: dict[str, str] | None = field(default_factory=dict)

    def to_table(self) -> stored.Transaction:
        """Return the transaction to be committed.

        Raises
        ------
        OptionError
            A field has a wrong type, or the version is invalid.
        """
        if not isinstance(self.operation, LanceOperation.BaseOperation):
            raise OptionError(f"operation: expected a LanceOperation, found {self.operation!r:.60}")
        if not isinstance(self.uuid, str):
            raise OptionError(f"uuid: expected a string, found {self.uuid!r:.60}")
        operation = table_operation(self.operation)
        if isinstance(operation, Append):  # maybe it was a part of a batch before
            operation = replace(operation, once=True)
        return stored.Transaction(
            read_version=_checked_version(self.read_version, "read_version"),
            operation=operation,
            uuid=self.uuid or str(new_uuid()),
            properties=_checked_properties(self.transaction_properties),
        )


def _checked_version(given: object, name: str) -> int:
    """Return the argument ``name`` as the number of a version, or 0.

    Raises
    ------
    OptionError, OptionRangeError
        The value is not a number of a version.
    """
    if isinstance(given, bool | np.bool_) or not isinstance(given, int | np.integer):
        raise OptionError(
            f"{name}: expected the number of a version, found {given!r:.60}. Tags and branches "
            "have theirs as the version of the dataset opened there."
        )
    if not 0 <= given < 2**64:
        raise OptionRangeError(f"{name}: expected a number from 0 to 2^64 - 1, found {given}")
    return int(given)


def _checked_properties(given: object) -> dict[str, str]:
    """Return the properties of a transaction.

    Raises
    ------
    OptionError
        The value is not a mapping from strings to strings.
    """
    properties = {} if given is None else given
    if not isinstance(properties, Mapping) or not all(
        isinstance(word, str) for entry in properties.items() for word in entry
    ):
        raise OptionError(
            f"transaction_properties: expected strings by name, found {properties!r:.60}"
        )
    return dict(properties)


def _public(transaction: stored.Transaction) -> Transaction:
    """Return the public view of a transaction."""
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
    """Return the transaction of a version; ``None`` if it is unavailable."""
    scheme, version = dataset.manifest.scheme, _checked_version(version, "version")
    try:
        manifest = open_version(dataset.store, version, scheme=scheme)
    except UnsupportedFeatureError:
        manifest = _load_unsupported(dataset.store, locate(dataset.store, version, scheme))
    read = read_transaction(dataset.store, manifest)
    return None if read is None else _public(read)


def recent(dataset: OpenedVersion, count: int) -> list[Transaction | None]:
    """Return the transactions of this version and earlier versions, newest first.

    A missing transaction is ``None``. Makes one listing and at most two requests per
    version.
    """
    count = integer(None).check("recent_transactions", count)
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
    """Load a manifest for its transaction, even if the rows are unreadable."""
    path = location.path
    data = store.get(path)
    verify = partial(compares_metadata, store)
    return decode_manifest(
        data, where=store.full(path), scheme=location.scheme, to_read=False, verify=verify
    )


def _newest(store: ObjectStore) -> int:
    try:
        return open_latest(store).version
    except DatasetNotFoundError:
        return 0


# --- The target of a commit that a user constructs --------------------------------------


@dataclass(frozen=True, slots=True)
class CommitTarget:
    """The dataset of a commit: its store, and the opened version, if any."""

    store: ObjectStore
    uri: str = field(repr=False)  # a URL may have a password
    storage_options: Mapping[str, str] | None = field(repr=False)
    dataset: OpenedVersion | None

    @classmethod
    def of(
        cls,
        place: str | os.PathLike[str] | OpenDataset,
        storage_options: Mapping[str, str] | None,
        commit_lock: CommitLock | None,
        base_store_params: object = None,
        catalogue: tuple[Any, Sequence[str] | None] = (None, None),
    ) -> CommitTarget:
        """Open a path, a URI or a dataset; ``catalogue`` is a namespace and a table."""
        if isinstance(place, OpenDataset):
            dataset = place.opened
            access = AccessPolicy.of(base_store_params, before=access_of(dataset.store))
            store = guarded(dataset.store, commit_lock=commit_lock, access=access)
            return cls(store, dataset.uri, dataset.storage_options, dataset)
        access = AccessPolicy.of(base_store_params)
        found = reach_table(*catalogue, place, storage_options)
        options = found.storage_options
        guards: dict[str, Any] = {
            "commit_lock": commit_lock,
            "manifest_store": found.manifest_store,
        }
        store = open_root(place, options, access=access, **guards)
        return cls(store, os.fspath(place), options, None)

    @property
    def _base(self) -> Manifest | None:
        return None if self.dataset is None else self.dataset.manifest

    def commit(
        self, operation: Any, read_version: int | None, message: str | None, options: CommitOptions
    ) -> Manifest:
        """Commit what a user constructed; see ``LanceDataset.commit``."""
        if isinstance(operation, LanceOperation.BaseOperation):
            made = table_operation(operation)
            if read_version is None:
                if not isinstance(made, Overwrite | Restore):
                    raise OptionError(
                        "read_version is required for all operations except Overwrite and "
                        "Restore. Pass the version that the operation was made for: "
                        "dataset.version."
                    )
                read_version = _newest(self.store)
            transaction = stored.Transaction(
                read_version=_checked_version(read_version, "read_version"), operation=made
            )
        elif isinstance(operation, Transaction):
            transaction = operation.to_table()
        else:
            raise OptionError(
                "operation must be a LanceOperation.BaseOperation or Transaction, got "
                f"{type(operation)}"
            )
        if message is not None:
            if not isinstance(message, str):
                raise OptionError(f"commit_message: expected a string, found {message!r:.60}")
            properties = {**transaction.properties, stored.LANCE_COMMIT_MESSAGE_KEY: message}
            transaction = replace(transaction, properties=properties)
        transaction = self._with_segments_brought_up(transaction)
        return self._commit(self._with_fields_named(transaction), options)

    def commit_appends(
        self, transactions: Sequence[Transaction], options: CommitOptions
    ) -> tuple[Manifest, Transaction]:
        """Commit several appends as one version; return the version and its transaction."""
        anything: object = transactions
        given: list[Any] = list(anything) if isinstance(anything, Iterable) else [anything]
        for transaction in given:
            if not isinstance(transaction, Transaction):
                raise OptionError(
                    f"transactions: expected a list of Transaction, found {transaction!r:.60}"
                )
        merged = merge_transactions([transaction.to_table() for transaction in given])
        return self._commit(merged, options), _public(merged)

    def _with_fields_named(self, transaction: stored.Transaction) -> stored.Transaction:
        """Return a transaction that names the fields which an update replaces in place.

        By these names others, such as indices, notice the new values.
        """
        operation, read_version = transaction.operation, transaction.read_version
        if not isinstance(operation, Update) or operation.fields_modified or not operation.updated:
            return transaction
        base = self._base
        if base is None or base.version != read_version:
            try:
                base = open_version(self.store, read_version)
            except VersionNotFoundError:  # the fragments are unchanged, or the commit conflicts
                base = open_latest(self.store)
        return replace(transaction, operation=operation.naming_fields(base))

    def _with_segments_brought_up(self, transaction: stored.Transaction) -> stored.Transaction:
        """Return a transaction whose new segments fit the version that it was made for."""
        operation, read_version = transaction.operation, transaction.read_version
        if not isinstance(operation, CreateIndex):
            return transaction
        read = self._base
        if read is None or read.version != read_version:
            try:
                read = open_version(self.store, read_version)
            except VersionNotFoundError:  # a conflict if later versions exist
                return transaction
        new = operation.new
        if any(entry.dataset_version not in (0, read_version) for entry in new):
            new = tuple(rebase_segments(self.store, read, new))
        return replace(transaction, operation=CreateIndex.of(read.schema, new, operation.removed))

    def _commit(self, transaction: stored.Transaction, options: CommitOptions) -> Manifest:
        """Check that read version and dataset exist, unless the commit creates it; commit."""
        known = 0 if transaction.read_version & DETACHED else transaction.read_version
        try:
            newest = open_latest_since(self.store, known).version
            if newest < known:
                raise VersionNotFoundError(
                    f"read_version: version {transaction.read_version} of {self.store.uri} was not "
                    f"found; the newest is {newest}"
                )
        except DatasetNotFoundError:
            if not isinstance(transaction.operation, Overwrite):
                raise
        base = self._base
        if base is not None and base.version < transaction.read_version:
            base = None
        return commit_transaction(self.store, transaction, base=base, options=options)

    def at(self, manifest: Manifest) -> OpenedVersion:
        """Return the new version."""
        return OpenedVersion.of(
            self.store,
            manifest,
            uri=self.uri,
            storage_options=self.storage_options,
            session=None if self.dataset is None else self.dataset.session,
        )


def commit_options(
    max_retries: int,
    commit_timeout: object,
    detached: bool | None,
    stable: bool | None,
    v2_paths: bool | None,
) -> CommitOptions:
    """Check the options of a commit and return them."""
    seconds = None
    if commit_timeout is not None:
        if not isinstance(commit_timeout, timedelta) or commit_timeout <= timedelta(0):
            raise OptionError(
                f"commit_timeout: expected a timedelta > 0, or None, found {commit_timeout!r}"
            )
        seconds = commit_timeout.total_seconds()
    return CommitOptions(
        max_retries=integer(0).check("max_retries", max_retries),
        detached=bool(detached),
        enable_stable_row_ids=bool(stable),
        enable_v2_manifest_paths=v2_paths is not False,
        timeout=seconds,
    )


# --- Write fragments for distributed jobs with one commit -------------------------------


@overload
def write_fragments(
    data: object,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[False] = False,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    **options: Unpack[FragmentKeywords],
) -> list[FragmentMetadata]: ...


@overload
def write_fragments(
    data: object,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[True],
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    **options: Unpack[FragmentKeywords],
) -> Transaction: ...


@shows_file_options(FragmentKeywords, WriteOptions, FileKeywords, mode="append")
def write_fragments(
    data: object,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    **options: Unpack[FragmentKeywords],
) -> list[FragmentMetadata] | Transaction:
    """Write rows into data files, to be committed later.

    With ``return_transaction``, return a transaction. It appends the fragments or, with ``mode``
    "create" or "overwrite", makes a dataset of them. Commit the fragments with
    ``LanceDataset.commit`` within a week. Later a clean-up may delete the files.

    Parameters
    ----------
    data, dataset_uri, schema, mode, storage_options, base_store_params
        See :func:`glaive.write_dataset`.
    namespace_client, table_id
        The table of a catalogue that lies at ``dataset_uri``. glaive uses its credentials and
        renews them before they expire. With ``mode`` "create" glaive declares the table first.
    session
        Ignored.
    **options
        See :class:`glaive.dataset.keywords.FileKeywords`.

    Returns
    -------
    list of FragmentMetadata, or Transaction
        One fragment per file; the commit assigns ids. Fragments can be pickled and converted to
        JSON.

    Raises
    ------
    SchemaError
        The rows do not match the dataset.
    OptionError
        An option is unknown or has an invalid value.
    DatasetNotFoundError, StoreError
        The catalogue lacks the table, or failed.
    """
    mode, storage_options = options.pop("mode", "append"), options.pop("storage_options", None)
    place = options.pop("namespace_client", None), options.pop("table_id", None), dataset_uri
    options.pop("session", None)
    wanted = write_options(write_fragments, FileKeywords, mode, options)
    found = reach_table(*place, storage_options, create=wanted.mode == "create")
    store = open_to_write(
        dataset_uri,
        found.storage_options,
        wanted.initial_bases,
        base_store_params,
        manifest_store=found.manifest_store,
    )
    source, rows = read_source(data, schema)
    columns = source if schema is None else schema
    base = dataset_uri.opened.manifest if isinstance(dataset_uri, OpenDataset) else None
    plan = plan_write(store, columns, wanted, base)
    plan = plan if return_transaction else plan.for_moved_rows()  # fragments carry no numbers
    with showing(wanted.shows_progress, "write", getattr(data, "num_rows", None)):
        fragments = [FragmentMetadata.of(fragment) for fragment in write_files(plan, rows)]
    return _transaction(plan, fragments) if return_transaction else fragments


def _transaction(plan: WritePlan, fragments: list[FragmentMetadata]) -> Transaction:
    operation: LanceOperation.BaseOperation = LanceOperation.Append(fragments)
    if not plan.appends:
        bases = plan.options.initial_bases
        operation = LanceOperation.Overwrite(plan.schema, fragments, bases)
    rows = sum(fragment.physical_rows for fragment in fragments)
    properties = dict(plan.recording([rows]).options.transaction_properties)
    return Transaction(plan.read_version, operation, transaction_properties=properties)
