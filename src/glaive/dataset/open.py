"""Open a dataset, or run a query over several."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.version import warn_deprecated
from glaive.errors import OptionError
from glaive.io.checksums import VERIFY
from glaive.scan.snapshot import Session
from glaive.table.manifest_store import ManifestStore
from glaive.table.root import CommitLock


def dataset(
    uri: str | os.PathLike[str] | None = None,
    version: int | str | tuple[str | None, int | None] | None = None,
    asof: object = None,
    block_size: int | None = None,  # noqa: ARG001  # pylance has it
    commit_lock: CommitLock | None = None,
    index_cache_size: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    metadata_cache_size_bytes: int | None = None,
    index_cache_size_bytes: int | None = None,
    read_params: Mapping[str, Any] | None = None,  # noqa: ARG001  # pylance has it
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    *,
    manifest_store: ManifestStore | str | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
    verify: bool | None = None,
) -> LanceDataset:
    """Open a dataset.

    Parameters
    ----------
    uri
        Directory or URI such as ``s3://bucket/table``.
    version
        The version to read, by default the newest: a number, a tag, or a branch and a number
        of it (``None`` for the newest).
    asof
        Read the newest version created before this point in time.
    commit_lock
        Called with the number of a new version; returns a context manager held during the
        commit. For stores without atomic put-if-absent.
    storage_options
        Credentials and settings of the object store.
    default_scan_options
        Default options of scans, such as ``{"with_row_id": True}``; the schema is then that of
        such scans. They do not apply to takes and counts. Scans that name columns return these.
    metadata_cache_size_bytes
        Capacity of the cache of opened files and their metadata; 256 MiB by default.
    index_cache_size_bytes
        Capacity of the cache of opened indices and what searches read of them; 1 GiB by default.
    session
        Session whose cache to use, with its capacity.
    namespace_client, table_id
        Instead of ``uri``: a catalog, which is queried once with ``describe_table``, and the
        path of names of the table in it.
    manifest_store
        Register of versions: ``"sqlite"``, ``"sqlite:///path/file"``, ``"dynamodb://table"`` or
        an object; see ``docs/guide/stores.md``.
    index_cache_size
        Deprecated; ignored with a warning. Use ``index_cache_size_bytes``.
    block_size, read_params
        Accepted for pylance compatibility; ignored.
    base_store_params
        Storage options for base paths of the dataset, by path or URI; each applies to everything
        below it. Also allows access to these base paths; see ``docs/guide/stores.md``.
    allow_external_blobs
        Whether blob values may be fetched from outside of the dataset, also from below its base
        paths: ``True``, or a list of allowed locations. Not by default.
    verify
        Whether all that is read is compared with its checksums, where it has any; by default
        manifests, deletion files, what a compaction writes again, and what is fetched over a
        network. Reads whole buffers of pages.

    Raises
    ------
    DatasetNotFoundError
        There is no dataset.
    VersionNotFoundError
        There is no such version.
    RefNotFoundError
        There is no such tag or branch.
    UnsupportedFeatureError
        The dataset uses a feature that this reader does not support.
    OptionError
        An option does not exist or has an invalid value.

    Notes
    -----
    Two requests: a listing and the manifest. No data file is read.
    """
    if index_cache_size is not None:
        warn_deprecated(
            "The 'index_cache_size' parameter is deprecated. Use 'index_cache_size_bytes' instead."
        )
    if verify is not None:
        storage_options = {**(storage_options or {}), VERIFY: "true" if verify else "false"}
    return LanceDataset(
        uri,
        version,
        commit_lock=commit_lock,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
        metadata_cache_size_bytes=metadata_cache_size_bytes,
        index_cache_size_bytes=index_cache_size_bytes,
        session=session,
        namespace_client=namespace_client,
        table_id=table_id,
        base_store_params=base_store_params,
        asof=asof,
        manifest_store=manifest_store,
        allow_external_blobs=allow_external_blobs,
    )


def sql(query: str, /, *, batch_size: int = 8192, **tables: object) -> pa.RecordBatchReader:
    """Run a query over several datasets, in DataFusion: of each, what the query needs is read.

    Parameters
    ----------
    query
        In DataFusion's dialect, as in pylance. It sees the tables and nothing else: no files, no
        network.
    batch_size
        Approximate rows per batch of the result.
    **tables
        By name in the query: datasets, places of datasets, pyarrow tables, datasets and readers,
        frames of pandas or polars.

    Returns
    -------
    pyarrow.RecordBatchReader
        The result, as it is made; ``read_all()`` makes a table.

    Raises
    ------
    MissingDependencyError
        DataFusion is not installed.
    OptionError
        The query is invalid, or a table is none.

    Examples
    --------
    >>> sql("SELECT n FROM a JOIN b USING (id)", a="a.lance", b=frame).read_all()
    """
    if not tables:
        raise OptionError('sql: name the tables of the query, as in sql("... FROM a", a=dataset)')
    from glaive.dataset.interop import SqlQuery

    found = {name: _queried(table) for name, table in tables.items()}
    return SqlQuery(query, found, batch_size).to_stream_reader()


def _queried(table: object) -> object:
    if isinstance(table, str | os.PathLike):
        table = dataset(table)
    import pyarrow.dataset as pads

    from glaive.dataset.writing.source import batches_of, read_source

    if isinstance(table, pads.Dataset):
        return table.to_pyarrow_dataset() if hasattr(table, "to_pyarrow_dataset") else table
    schema, rows = read_source(table)
    read = pa.Table.from_batches(list(batches_of(rows)), schema)
    read.validate(full=True)  # the engine trusts texts to be UTF-8
    return read
