"""Write rows into data files, and commit them.

Files come first and are referenced by nothing; one commit makes all of them part of a new
version, or none. Spark tasks use :func:`write_fragments` alone and leave the commit to the
driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from glaive.dataset.blobs.columns import with_blob_type
from glaive.dataset.writing.base_paths import blob_bases, numbered
from glaive.dataset.writing.conform import check_names, conform, match_schema
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.rolling import RollingWriter
from glaive.dataset.writing.source import Rows
from glaive.dataset.writing.target_bases import DataPlace, find_places
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    OptionError,
)
from glaive.file.blob_options import BlobOptions
from glaive.file.open import check_encoding_options
from glaive.file.versions import resolve_version
from glaive.format.fields import LanceSchema
from glaive.format.flags import check_writable
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import LANCE_COMMIT_MESSAGE_KEY, Transaction
from glaive.io.access import allow_copies, open_external
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.dictionaries import load_dictionaries
from glaive.table.load import open_latest
from glaive.table.operations.append import Append
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import CommitOptions, TableOperation
from glaive.table.root import access_of
from glaive.types import FormatVersion

__all__ = ["Target", "commit_fragments", "find_target", "write_fragments"]

_BLOBS_V2 = FormatVersion(2, 2)


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: the version they are written for, and the columns and format they get.

    ``base`` is ``None`` when the dataset is to be created, with ``new_bases``. ``dictionaries``
    are the items of dictionary columns by field id, where all files of the dataset must share
    them.
    """

    store: ObjectStore
    base: Manifest | None
    schema: LanceSchema
    version: str
    new_bases: tuple[table_pb2.BasePath, ...] = ()
    dictionaries: dict[int, pa.Array] = field(default_factory=dict, hash=False)

    def places(self, options: WriteOptions) -> tuple[DataPlace, ...]:
        """Where data files go in turn.

        Raises
        ------
        OptionError
            A base path is named that the dataset does not have.
        """
        return find_places(
            self.store,
            self._bases,
            options.target_bases,
            everywhere=options.target_all_bases,
        )

    @property
    def _bases(self) -> tuple[table_pb2.BasePath, ...]:
        return self.new_bases if self.base is None else tuple(self.base.wire.base_paths)

    def blobs(self, given: BlobOptions) -> BlobOptions:
        """How blobs are kept, with what only the dataset knows: its base paths and its place."""
        store, policy = self.store, allow_copies(access_of(self.store))

        def opener(uri: str) -> tuple[ObjectStore, str]:
            return open_external(store, uri, policy, what="the URI of a blob to be copied")

        return replace(given, bases=blob_bases(self._bases), opener=opener)


def find_target(
    store: ObjectStore, source: pa.Schema, options: WriteOptions, base: Manifest | None = None
) -> Target:
    """Look at the dataset, if there is one, before a row is written.

    Raises
    ------
    DatasetExistsError
        ``create`` was asked for and there is a dataset already.
    SchemaError
        Rows with this schema do not fit, or no dataset can have such columns.
    UnsupportedFeatureError
        The dataset uses something this writer does not know; the message names it.
    """
    if base is None:
        with suppress(DatasetNotFoundError):
            base = open_latest(store, to_follow=True)
    version = options.data_storage_version
    if base is None:
        check_names(source.names)
        version = resolve_version(version)
        schema = LanceSchema.from_arrow(_for_format(source, version))
        return Target(store, None, schema, version, numbered(options.initial_bases))
    if options.mode == "create":
        raise DatasetExistsError(
            f"{store.uri} is a dataset already (version {base.version}). Use mode='append' or "
            "mode='overwrite', or choose another place."
        )
    if options.initial_bases:
        raise OptionError(
            f"initial_bases: {store.uri} is a dataset already (version {base.version}); only one "
            "that is created gets them"
        )
    flags = base.wire.reader_feature_flags, base.wire.writer_feature_flags
    check_writable(*flags, where=base.where)
    version = resolve_version(str(base.data_format) if version is None else version)
    if options.mode == "overwrite":
        check_names(source.names)
        schema = LanceSchema.from_arrow(_for_format(source, version), base.first_field_id)
        return Target(store, base, schema, version)
    schema = match_schema(source, base.schema, where=store.uri)
    shared = load_dictionaries(store, base)
    return Target(store, base, schema, version, dictionaries=shared)


def _version(name: str) -> FormatVersion:
    return FormatVersion(*map(int, name.split(".")))


def _for_format(source: pa.Schema, version: str) -> pa.Schema:
    """Columns as a new dataset of a format has them."""
    return with_blob_type(source) if _version(version) >= _BLOBS_V2 else source


def write_fragments(
    store: ObjectStore,
    rows: Iterable[Rows],
    schema: LanceSchema,
    options: WriteOptions,
    version: str | None = None,
    dictionaries: dict[int, pa.Array] | None = None,
    places: Sequence[DataPlace] = (),
    *,
    coded: bool = False,
) -> list[Fragment]:
    """Write rows into as many files as needed; one fragment each, without an id yet.

    Parameters
    ----------
    rows
        Pieces whose columns fit ``schema`` by name, in any order.
    schema
        Columns with the ids they have, or will have, in the dataset.
    version
        Format of the files; that of ``options`` when omitted.
    dictionaries
        Items of dictionary columns that the files must share; see :class:`Target`.
    places
        Where the files go in turn; to ``store`` when empty.
    coded
        Whether text may come with a dictionary, as :func:`glaive.scan.run.execute.pieces` gives it.

    Notes
    -----
    When anything fails, the files written so far are removed again as far as possible; no
    version refers to them in any case.
    """
    arrow = schema.to_arrow()
    version = version or options.data_storage_version
    check_encoding_options(schema, version, options.encoding_options)
    roll = RollingWriter(store, schema, options, version)
    roll.dictionaries.update(dictionaries or {})
    roll.places = tuple(places) or roll.places
    try:
        for piece in rows:
            roll.write(piece if coded and _fits(piece, arrow) else conform(piece, arrow))
        roll.close()
    except BaseException:
        roll.discard()
        raise
    return roll.fragments


def _fits(piece: Rows, schema: pa.Schema) -> bool:
    from glaive.file.v2.dictionary_passthrough import fits_with_dictionaries

    return fits_with_dictionaries(piece, schema)


def commit_fragments(
    target: Target, fragments: Iterable[Fragment], options: WriteOptions, *, once: str | None = None
) -> Manifest:
    """Make fragments part of the dataset: one new version, retried while others write.

    ``once`` names a transaction property that identifies this commit: a version that has it
    already is returned instead of making another one.

    Where rows are appended to a dataset that was not there, and another writer was first to
    create it, they are appended to what is there now.
    """
    fragments = tuple(fragments)
    try:
        return _commit(target, fragments, options, once)
    except DatasetExistsError:
        if options.mode != "append":
            raise
        return _commit(_created_meanwhile(target), fragments, options, once)


def _created_meanwhile(target: Target) -> Target:
    """The target as it is now; files written for the one before must go with it.

    Raises
    ------
    SchemaError
        The rows do not fit the dataset.
    CommitConflictError
        They would fit, but their files name the columns by other ids.
    """
    base = open_latest(target.store)
    where = target.store.uri
    schema = match_schema(target.schema.to_arrow(), base.schema, where=where)
    written = {(one.id, one.name, one.logical_type) for one in target.schema.walk()}
    needed = {(one.id, one.name, one.logical_type) for one in schema.walk()}
    if written != needed or not all(
        base.schema.field_by_id(one.id).nullable for one in target.schema.walk() if one.nullable
    ):
        raise CommitConflictError(
            f"{where} was created by another writer while these rows were written, with columns "
            "in another order or of other forms. Nothing is wrong with the rows: append them again."
        )
    return replace(target, base=base, schema=schema)


def _commit(
    target: Target, fragments: tuple[Fragment, ...], options: WriteOptions, once: str | None
) -> Manifest:
    properties = dict(options.transaction_properties)
    if options.commit_message is not None:
        properties[LANCE_COMMIT_MESSAGE_KEY] = options.commit_message
    operation: TableOperation
    if target.base is not None and options.mode == "append":
        operation = Append(fragments)
    else:
        operation = Overwrite(
            fragments=fragments,
            schema=target.schema,
            config=options.cleanup_config(),
            base_paths=target.new_bases,
        )
    base = target.base
    transaction = Transaction(
        read_version=0 if base is None else base.version,
        operation=operation,
        properties=properties,
    )
    commit = CommitOptions(
        storage_version=_version(target.version),
        enable_stable_row_ids=options.enable_stable_row_ids,
        enable_v2_manifest_paths=options.enable_v2_manifest_paths,
    )
    return commit_transaction(target.store, transaction, base=base, once=once, options=commit)
