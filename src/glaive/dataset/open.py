"""Open a dataset, or write one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.opening import check_options
from glaive.dataset.version import OpenDataset
from glaive.dataset.writing.keywords import (
    FileKeywords,
    WriteKeywords,
    shows_keywords,
    write_options,
)
from glaive.scan.session import Session
from glaive.table.manifest_store.protocol import ManifestStore
from glaive.table.root import CommitLock

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


@shows_keywords(FileKeywords, WriteKeywords)
def write_dataset(
    data_obj: object,
    uri: str | os.PathLike[str] | OpenDataset | None = None,
    schema: pa.Schema | None = None,
    mode: str = "create",
    *,
    storage_options: Mapping[str, str] | None = None,
    commit_lock: CommitLock | None = None,
    manifest_store: ManifestStore | str | None = None,
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
    **options: Unpack[WriteKeywords],
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
    storage_options
        Credentials and settings of the object store.
    commit_lock, manifest_store
        As :func:`dataset` takes them; a dataset given as ``uri`` keeps its own.
    session
        The session of the dataset that is returned; that of ``uri`` if it is a dataset.
    namespace_client, table_id
        In place of ``uri``: a catalogue and the names that lead to the table in it. Asked once
        by ``describe_table``, or by ``declare_table`` where the dataset is created.
    base_store_params, allow_external_blobs
        As :func:`dataset` takes them; a dataset given as ``uri`` keeps its own. What is created
        or overwritten with ``allow_external_blob_outside_bases`` is returned so that its values
        can be fetched.
    **options
        Those of :class:`glaive.dataset.writing.keywords.WriteKeywords`.

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
    from glaive.dataset.writing.rows import write_rows

    written = write_rows(
        data_obj,
        uri,
        schema,
        write_options(write_dataset, WriteKeywords, mode, options),
        storage_options=storage_options,
        commit_lock=commit_lock,
        manifest_store=manifest_store,
        session=session,
        namespace_client=namespace_client,
        table_id=table_id,
        base_store_params=base_store_params,
        allow_external_blobs=allow_external_blobs,
    )
    return LanceDataset.holding(written)
