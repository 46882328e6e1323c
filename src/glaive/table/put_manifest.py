"""Put a manifest if absent: the step that commits a version.

All other files of the version are written before. The manifest appears atomically under its final
name, unless a manifest has this name: then another writer was first, and glaive reports a conflict.
The order of writers is decided by

- the store itself, with atomic put-if-absent;
- the holder of the commit lock, if a lock was given. The holder first checks whether the manifest
  exists, because the store may overwrite objects, or lack conditions;
- the register of manifests, if one was given (``glaive.table.manifest_store``).

Specification: "Commit" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array
from glaive.errors import (
    CommitConflictError,
    CommitError,
    NotForcedError,
    ObjectExistsError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
)
from glaive.file.open import open_reader
from glaive.file.protocol import run_fetch
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, Fragment, FragmentColumns
from glaive.format.manifest import WRITER, Feature, Manifest, recompute
from glaive.format.paths import DETACHED, NamingScheme, manifest_path
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.process import DATASETS, FILES, emit, now_ns
from glaive.table.index_coverage import has_covering_fields
from glaive.table.load import load_numbered, read_transaction
from glaive.table.manifest_steps import register
from glaive.table.protocol import Draft
from glaive.table.root import locate_data_file, lock_of, register_of
from glaive.table.versions import is_filled

# --- Finalise a manifest: set version number, time, writer and feature flags ------------

_DELETED: Final = int(Feature.DELETION_FILES)
_SPILLED: Final = int(Feature.SPILLED_ROW_LINEAGE)
"""Flags that depend on the fragments."""


def finish(draft: Draft, version: int, *, carried: int = 0) -> bool:
    """Finalise a draft, except for the name of its transaction.

    ``carried`` has the feature flags, of both words, of the version whose leading fragments are
    kept. These fragments are skipped.

    Returns
    -------
    bool
        Whether the row counts of the other fragments are known.
    """
    made = draft.wire
    made.version = version
    seconds, nanos = divmod(now_ns(), 1_000_000_000)
    made.timestamp.seconds, made.timestamp.nanos = seconds, nanos
    made.ClearField("tag")
    made.ClearField("version_aux_data")
    made.writer_version.Clear()
    made.writer_version.library, made.writer_version.version = WRITER
    if draft.kept == len(made.fragments):
        deleted = bool(carried & _DELETED)
        spilled = bool(carried & _SPILLED)
        known = True
    else:
        columns = FragmentColumns(made, "the version being made")
        columns = columns.since(draft.kept) if not carried & (_DELETED | _SPILLED) else columns
        deleted, spilled = columns.any_deleted, columns.any_lineage_in_files
        known = columns.rows_known
    recompute(
        made,
        deletion_files=deleted,
        spilled_row_lineage=spilled,
        covering_indices=has_covering_fields(draft.index_section),
    )
    return known


def put_manifest(
    store: ObjectStore, version: int, scheme: NamingScheme, data: Sequence[bytes], uuid: str
) -> bool:
    """Commit a version; return ``False`` if another writer was first. One request; two with a lock.

    If the request fails but the version exists with transaction ``uuid``, it was committed, and
    only the response was lost. If it failed and the version is missing, its error is raised, even
    if the lock suppresses it.

    Raises
    ------
    StoreError
        The store failed, and the version was not committed.
    CommitConflictError
        The commit lock raised it because another writer was first.
    CommitError
        The commit lock raised another exception. Or the store failed, and it is unknown whether
        the version was or will be committed. Or, with ``fsync``, the version was committed, but
        may not be on disk.
    """
    lock = lock_of(store)
    failure: BaseException | None = None
    made = False
    try:
        with nullcontext() if lock is None else lock(version):
            try:
                made = _put(store, version, scheme, data, uuid, locked=lock is not None)
            except BaseException as error:
                failure = error
                raise
    except Exception as error:
        if failure is None:
            raise _lock_failed(store, version, error, made=made) from error
    if failure is not None:  # the lock may have suppressed it
        raise failure
    if made:
        emit(FILES, mode="create", type="manifest", path=manifest_path(version, scheme))
    return made


def _lock_failed(store: ObjectStore, version: int, error: Exception, *, made: bool) -> CommitError:
    """Return the error for an exception of the commit lock itself."""
    remedy = (
        "The version was made, and others see it: do not repeat the change."
        if made
        else "The version was not made: repeat the change when the lock is free."
    )
    conflict = isinstance(error, CommitConflictError) and not made
    return (CommitConflictError if conflict else CommitError)(
        f"the commit lock of {store.uri} raised {type(error).__name__} for version {version}: "
        f"{error}. {remedy}"
    )


def _put(
    store: ObjectStore,
    version: int,
    scheme: NamingScheme,
    data: Sequence[bytes],
    uuid: str,
    *,
    locked: bool,
) -> bool:
    path = manifest_path(version, scheme)
    registered = register_of(store)
    if registered is not None and not version & DETACHED:
        return register(store, registered, version, path, data)
    if locked and is_filled(store, path):
        return False
    try:
        _create(store, path, data, locked=locked)
    except ObjectExistsError:
        return False
    except NotForcedError as error:
        raise CommitError(
            f"version {version} of {store.uri} was made, and others see it; a power failure may "
            f"undo it: {error} Do not repeat the change."
        ) from error
    except StoreError as error:
        try:
            existing = load_numbered(store, version, scheme)
        except ObjectNotFoundError:
            if error.is_unanswered:  # it may be under way
                raise _unknown(store, version, error) from error
            raise error from None
        except StoreError as again:
            reason = f"{error} The check for it failed as well: {again}"
            raise _unknown(store, version, reason) from error
        return made_by(store, existing, uuid)
    return True


def _create(store: ObjectStore, path: str, data: Sequence[bytes], *, locked: bool) -> None:
    """Put a manifest if absent. With a lock, the holder has checked, so any put will do."""
    try:
        store.put(path, data, mode="create")
    except StoreError as error:
        if not (locked and error.is_unsupported):
            raise
        store.put(path, data)


def _unknown(store: ObjectStore, version: int, why: object) -> CommitError:
    return CommitError(
        f"version {version} of {store.uri} may or may not have been committed: {why} When the "
        "store is available again, repeat the commit with the same transaction; an earlier "
        "success is recognised."
    )


@contextmanager
def unknown_until_read(store: ObjectStore, version: int) -> Iterator[None]:
    """Convert errors of reading a version that existed before this commit could make it.

    The commit itself may have made it: a client or a proxy may have repeated the request, and
    received the response to the second request.

    Raises
    ------
    CommitError
        The store failed, or the version was cleaned up meanwhile. Keep the files of the commit.
    """
    try:
        yield
    except StoreError as error:
        raise _unknown(store, version, error) from error
    except CommitConflictError as error:
        if not isinstance(error.__cause__, ObjectNotFoundError):
            raise
        raise CommitError(
            f"version {version} of {store.uri} may or may not have been committed: it existed "
            "already, but was cleaned up before glaive could read who made it. Check whether the "
            "newest version has the change before you repeat it."
        ) from error


def emit_committed(store: ObjectStore, transaction: Transaction, manifest: Manifest) -> None:
    """Notify listeners of events that a transaction has made a version."""
    emit(
        DATASETS,
        event="committed",
        uri=store.uri,
        read_version=transaction.read_version,
        committed_version=manifest.version,
        detached="true" if manifest.version & DETACHED else "false",
        operation="".join(map(str.capitalize, (transaction.operation.wire_name or "").split("_"))),
    )


def made_by(store: ObjectStore, manifest: Manifest, uuid: str) -> bool:
    """Return whether a version has the transaction with this uuid."""
    transaction = read_transaction(store, manifest)
    return transaction is not None and transaction.uuid == uuid


def forget_dataset(store: ObjectStore) -> None:
    """Delete the registered versions of a dataset that is being dropped."""
    registered = register_of(store)
    if registered is not None:
        registered.drop(store.uri)


# --- Dictionaries of datasets in format 0.1: one per column, shared by all fragments ----
# glaive reads the dictionary values from the data files. Manifests start with these values, too,
# for readers that look only there.
#
# Specification: "Dictionaries" in ``docs/format/legacy.md``.


def load_dictionaries(store: ObjectStore, manifest: Manifest) -> dict[int, pa.Array]:
    """Return the dictionary values of a dataset in format 0.1, by field id; else empty."""
    if manifest.data_format != LEGACY:
        return {}
    return _items(store, manifest, manifest.schema, manifest.fragments())


def _items(
    store: ObjectStore, manifest: Manifest, schema: LanceSchema, fragments: Iterable[Fragment]
) -> dict[int, pa.Array]:
    """Return the dictionary values in the files, by field id.

    Raises
    ------
    SchemaError
        Two files have different dictionaries for a column.
    """
    fields = {field.id: field for field in schema.walk() if field.logical_type.startswith("dict:")}
    dictionaries: dict[int, pa.Array] = {}
    if not fields:
        return dictionaries
    from glaive.file.legacy import LegacyFile

    for fragment in fragments:
        for entry in fragment.files:
            columns = entry.columns()
            field_ids = fields.keys() & columns.keys()
            if not field_ids:
                continue
            file_store, path = locate_data_file(store, manifest, entry)
            file = open_reader(file_store, path, size=entry.size)
            if not isinstance(file, LegacyFile):
                continue
            for field_id in sorted(field_ids):
                items = run_fetch(
                    file.reader, file.dictionary_items(columns[field_id], fields[field_id])
                )
                if not dictionaries.setdefault(field_id, items).equals(items):
                    raise SchemaError(
                        f"column {fields[field_id].name!r} ({fields[field_id].arrow_type}): format "
                        f"0.1 has one dictionary per dataset, and {path} has another. Write rows "
                        "that share one dictionary, cast the column to the type of its values, or "
                        "use data_storage_version 2.0 or newer."
                    )
            file.close()
    return dictionaries


def embed_dictionaries(
    store: ObjectStore, wire: table_pb2.ManifestOutline, kept: int, base: Manifest | None
) -> list[bytes]:
    """Return the leading bytes of a manifest, and set the offsets of dictionaries in its fields.

    Parameters
    ----------
    kept
        Number of leading fragments that ``base`` has, too. Only the first of them is read.

    Raises
    ------
    SchemaError
        New files have other dictionaries than the dataset.
    """
    dictionary_fields = [field for field in wire.fields if field.logical_type.startswith("dict:")]
    if not dictionary_fields:
        return []
    draft = Manifest(wire, where=base.where if base is not None else store.uri)
    for field in dictionary_fields:
        field.dictionary.offset = field.dictionary.length = 0
    if draft.data_format != LEGACY:
        return []
    from glaive.encodings.legacy import encode_var_binary

    fragments = [draft.fragment(at) for at in range(draft.num_fragments)]
    items = _items(store, draft, draft.schema, fragments[:1] + fragments[max(1, kept) :])
    buffers: list[bytes] = []
    position = 0
    for field in dictionary_fields:
        if field.id not in items:
            continue
        block: Any = block_from_array(items[field.id])
        if isinstance(block, Variable):
            text, offsets = encode_var_binary(block, position)
            added, at = [text, offsets], position + text.size
        elif isinstance(block, FixedWidth):
            added, at = [block.values], position
        else:
            raise SchemaError(f"column {field.name!r}: a dictionary of nested values")
        field.dictionary.offset, field.dictionary.length = at, block.count
        buffers += [buffer.to_pybytes() for buffer in added]
        position += sum(buffer.size for buffer in added)
    return buffers
