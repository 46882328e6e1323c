"""Open a dataset, or write one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.opening import check_options
from glaive.dataset.version import OpenDataset
from glaive.errors import OptionError
from glaive.io.access import AccessPolicy
from glaive.scan.session import Session
from glaive.table.manifest_store.protocol import ManifestStore
from glaive.table.root import CommitLock, access_of, guarded, open_root

if TYPE_CHECKING:
    from glaive.dataset.writing.base_paths import DatasetBasePath

__all__ = ["dataset", "write_dataset"]


def dataset(
    uri: str | os.PathLike[str] | None = None,
    version: int | str | tuple[str | None, int | None] | None = None,
    asof: object = None,
    block_size: int | None = None,  # noqa: ARG001  # pylance has it
    commit_lock: CommitLock | None = None,
    index_cache_size: int | None = None,  # noqa: ARG001  # pylance has it
    storage_options: Mapping[str, str] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    metadata_cache_size_bytes: int | None = None,
    index_cache_size_bytes: int | None = None,  # noqa: ARG001  # pylance has it
    read_params: Mapping[str, Any] | None = None,  # noqa: ARG001  # pylance has it
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    *,
    manifest_store: ManifestStore | str | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
    **options: Any,
) -> LanceDataset:
    """Open a dataset.

    Parameters
    ----------
    uri
        Directory or URI such as ``s3://bucket/table``.
    version
        The version to read, the newest by default: a number, a tag, or a branch and a number
        of it (``None`` for the newest).
    asof
        Read the newest version made before this point in time.
    commit_lock
        Called with the number of a version about to be made; what it returns is entered
        while the version is made. For places that cannot put a file only where none is.
    storage_options
        Credentials and settings of the object store.
    default_scan_options
        Options that scans have unless they say otherwise, such as ``{"with_row_id": True}``;
        the schema is then that of such scans. Takes and counts do not have them.
    metadata_cache_size_bytes
        Budget of the cache of opened files and their metadata; 256 MiB by default.
    session
        The session whose cache to use; then the budget is that of the session.
    namespace_client, table_id
        In place of ``uri``: a catalogue, asked once by ``describe_table``, and the names that
        lead to the table in it.
    manifest_store
        Where versions are registered: ``"sqlite"``, ``"sqlite:///path/file"``,
        ``"dynamodb://table"`` or an object; see ``docs/guide/stores.md``.
    block_size, index_cache_size, index_cache_size_bytes, read_params
        Accepted, and without effect: they tune what is not tuned here, and change no result.
    base_store_params
        Storage options for base paths of the dataset, by path or URI; each is for all that
        lies below it. Base paths that the dataset may not lead to by itself are allowed by
        being named here; see ``docs/guide/stores.md``.
    allow_external_blobs
        Whether values of blob columns may be fetched from outside of the dataset and its base
        paths: ``True``, or a list of the places they may be fetched from. Not by default.

    Raises
    ------
    DatasetNotFoundError
        There is no dataset.
    VersionNotFoundError
        There is no such version.
    RefNotFoundError
        There is no such tag or branch.
    UnsupportedFeatureError
        The dataset uses something this reader does not know; the message names it.
    OptionError
        An option does not exist, or has a value it cannot have.

    Notes
    -----
    Two requests: a listing and the manifest. No data file is looked at.
    """
    if options:
        check_options("dataset", options, dataset)
    return LanceDataset(
        uri,
        version,
        commit_lock=commit_lock,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
        metadata_cache_size_bytes=metadata_cache_size_bytes,
        session=session,
        namespace_client=namespace_client,
        table_id=table_id,
        base_store_params=base_store_params,
        asof=asof,
        manifest_store=manifest_store,
        allow_external_blobs=allow_external_blobs,
    )


def write_dataset(
    data_obj: object,
    uri: str | os.PathLike[str] | OpenDataset | None = None,
    schema: pa.Schema | None = None,
    mode: str = "create",
    *,
    max_rows_per_file: int = 1024 * 1024,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = 90 * 1024**3,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    progress: Any = None,
    storage_options: Mapping[str, str] | None = None,
    commit_lock: CommitLock | None = None,
    manifest_store: ManifestStore | str | None = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    enable_v2_manifest_paths: bool = True,
    enable_stable_row_ids: bool = False,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    encoding_options: Mapping[str, Mapping[str, object]] | None = None,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    auto_cleanup_options: Mapping[str, int] | None = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
    **options: Any,
) -> LanceDataset:
    """Write rows as a new version of a dataset; returns it opened at that version.

    Parameters
    ----------
    data_obj
        A table, record batches or a reader of them, a pandas or polars frame, anything that
        offers an Arrow stream, a mapping of columns, or an iterable of rows.
    uri
        Directory or URI, or an opened dataset.
    schema
        Types to write, if they are not those of the data.
    mode
        ``"create"`` refuses a dataset that is there, ``"append"`` adds rows, ``"overwrite"``
        replaces schema and rows. The last two create a dataset that is not there.
    max_rows_per_file, max_bytes_per_file
        When to begin a new file; each file is a fragment.
    max_rows_per_group
        Rows of a page at most in files of format 0.1; without effect in others.
    max_page_bytes
        Bytes of values in a page at most, about; 8 MiB by default. Not in format 0.1.
    data_cache_bytes
        Bytes of values that wait to become pages, shared evenly by the columns: so their pages
        have at most that share. Not in format 0.1.
    progress
        Told of files: ``begin(fragment)`` and ``complete(fragment)``.
    storage_options
        Credentials and settings of the object store.
    commit_lock, manifest_store
        As :func:`dataset` takes them; a dataset given as ``uri`` keeps its own.
    data_storage_version
        ``"2.1"``, ``"2.2"`` or ``"stable"``; by default that of the dataset, else 2.2.
    use_legacy_format
        Old spelling of ``data_storage_version``.
    enable_v2_manifest_paths, enable_stable_row_ids
        How a new dataset is made.
    commit_message, transaction_properties
        Kept with the version.
    encoding_options
        How columns at or below a path are encoded in the files written now, such as
        ``{"text": {"compression": "zstd", "compression_level": 9}}``. They win over
        ``lance-encoding:`` keys in the metadata of a field, which have the same names.
    initial_bases
        Further places of a dataset that is created: blobs below them may be given by URI.
    target_bases
        Names or paths of base paths that the new data files go to in turn.
    target_all_bases
        The files go to the dataset's own place and to all base paths in turn.
    auto_cleanup_options
        ``{"interval": 20, "older_than_seconds": 1209600}``: every so many commits to a dataset
        that is made now, older versions are cleaned up.
    external_blob_mode
        What becomes of blobs that are given by URI: ``"reference"`` keeps the URI,
        ``"ingest"`` copies the bytes.
    allow_external_blob_outside_bases
        Keep URIs below none of the dataset's base paths, too.
    blob_pack_file_size_threshold
        Bytes of a file that holds several blobs, at most; 1 GiB by default.
    session
        The session of the dataset that is returned; that of ``uri`` if it is a dataset.
    namespace_client, table_id
        In place of ``uri``: a catalogue and the names that lead to the table in it. Asked once
        by ``describe_table``, or by ``declare_table`` where the dataset is created.
    base_store_params, allow_external_blobs
        As :func:`dataset` takes them; a dataset given as ``uri`` keeps its own. What is created
        or overwritten with ``allow_external_blob_outside_bases`` is returned so that its values
        can be fetched.

    Raises
    ------
    DatasetExistsError
        ``create`` where there is a dataset.
    SchemaError
        The rows do not fit the dataset, or the format cannot hold a type.
    OptionError
        An option does not exist or has a value it cannot have.
    CommitConflictError
        Another writer changed what this was written for.
    StoreError
        The place is not writable or failed. No version was made.
    """
    # Here and not above: opening and reading load nothing of what writing needs.
    from glaive.dataset.writing.bases import naming
    from glaive.dataset.writing.conform import conform
    from glaive.dataset.writing.options import WriteOptions
    from glaive.dataset.writing.source import read_source
    from glaive.dataset.writing.write import commit_fragments, find_target, write_fragments
    from glaive.file.blob_options import BlobOptions

    if options:
        check_options("write_dataset", options, write_dataset)
    if use_legacy_format is not None and data_storage_version is None:
        data_storage_version = "legacy" if use_legacy_format else "stable"
    blobs = BlobOptions(
        pack_file_size=blob_pack_file_size_threshold,
        external=external_blob_mode,  # type: ignore[arg-type]  # checked there
        outside_bases=allow_external_blob_outside_bases,
    )
    wanted = WriteOptions(
        mode=mode,  # type: ignore[arg-type]  # checked there
        max_rows_per_file=max_rows_per_file,
        max_rows_per_group=max_rows_per_group,
        max_bytes_per_file=max_bytes_per_file,
        max_page_bytes=max_page_bytes,
        data_cache_bytes=data_cache_bytes,
        data_storage_version=data_storage_version,
        enable_stable_row_ids=enable_stable_row_ids,
        enable_v2_manifest_paths=enable_v2_manifest_paths,
        transaction_properties=transaction_properties or {},
        commit_message=commit_message,
        progress=progress,
        encoding_options=encoding_options,
        initial_bases=tuple(initial_bases or ()),
        target_bases=tuple(target_bases or ()),
        target_all_bases=bool(target_all_bases),
        auto_cleanup=auto_cleanup_options,
        blobs=blobs,
    )
    if namespace_client is not None or table_id is not None:
        from glaive.dataset.namespaces import located

        create = mode == "create"
        uri, storage_options = located(
            namespace_client, table_id, uri, storage_options, create=create
        )
    if uri is None:
        raise OptionError(
            "uri: expected a path or a URI or a dataset, or namespace_client and table_id, found "
            "None"
        )
    guards: dict[str, Any] = {"commit_lock": commit_lock, "manifest_store": manifest_store}
    opened = uri.opened if isinstance(uri, OpenDataset) else None
    if isinstance(uri, OpenDataset):
        store = uri.opened.store
        place, storage_options = uri.opened.uri, uri.opened.storage_options
    else:
        store = open_root(uri, storage_options, **guards)
        place = os.fspath(uri)
    access = AccessPolicy.of(base_store_params, allow_external_blobs, before=access_of(store))
    store = naming(guarded(store, access=access, **guards), wanted.initial_bases)
    source, rows = read_source(data_obj, schema)
    if schema is not None and not source.equals(schema):
        rows = (conform(piece, schema) for piece in rows)
        source = schema
    target = find_target(store, source, wanted, None if opened is None else opened.manifest)
    wanted = replace(wanted, blobs=target.blobs(blobs))
    places, shared = target.places(wanted), target.dictionaries
    fragments = write_fragments(store, rows, target.schema, wanted, target.version, shared, places)
    manifest = commit_fragments(target, fragments, wanted)
    if allow_external_blobs is None and blobs.outside_bases and wanted.mode != "append":
        # All of its references are those that the caller has just allowed.
        access = AccessPolicy.of(allow_external_blobs=True, before=access_of(store))
        store = guarded(store, access=access)
    if session is None and opened is not None:
        session = opened.session
    return LanceDataset.of(
        store, manifest, uri=place, storage_options=storage_options, session=session
    )
