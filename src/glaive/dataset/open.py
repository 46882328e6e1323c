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
from glaive.options import SIZE
from glaive.scan.snapshot import Session
from glaive.table.manifest_store import ManifestStore
from glaive.table.root import CommitLock


def dataset(
    uri: str | os.PathLike[str] | None = None,
    version: int | str | tuple[str | None, int | None] | None = None,
    asof: object = None,
    block_size: int | None = None,
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
        The version to read; default: the newest. A number, a tag, or a pair of a branch and a
        number (``None`` for the newest).
    asof
        Read the newest version created before this point in time.
    commit_lock
        Called with the number of a new version. Returns a context manager, which is held during
        the commit. Only stores that lack atomic put-if-absent need it.
    storage_options
        Credentials and settings of the object store.
    default_scan_options
        Default options of scans, such as ``{"with_row_id": True}``. ``schema`` is then the schema
        of such scans. Takes and counts ignore them. A scan with ``columns`` returns these columns
        only.
    metadata_cache_size_bytes
        Capacity of the cache of opened files and their metadata; default: 256 MiB.
    index_cache_size_bytes
        Capacity of the cache of opened indices and of what searches read; default: 1 GiB.
    session
        Session whose cache to use, with its capacity.
    namespace_client, table_id
        Instead of ``uri``: a catalog, and the path of names of the table in it. glaive calls
        ``describe_table`` once.
    manifest_store
        Register of versions: ``"sqlite"``, ``"sqlite:///path/file"``, ``"dynamodb://table"`` or
        an object; see ``docs/guide/stores.md``.
    index_cache_size
        Deprecated; ignored with a warning. Use ``index_cache_size_bytes``.
    block_size, read_params
        Accepted for pylance compatibility; ignored, but ``block_size`` must be an integer.
    base_store_params
        Storage options for base paths of the dataset, by path or URI. Each applies to everything
        below its path and allows access to it; see ``docs/guide/stores.md``.
    allow_external_blobs
        Whether blob values may be fetched from outside the dataset, including its base paths:
        ``True``, or a list of allowed locations. Default: forbidden.
    verify
        ``True`` compares everything read with its checksum, if it has one, and reads whole
        buffers of pages. Default: manifests, deletion files, input of compactions, and data
        fetched over a network.

    Raises
    ------
    DatasetNotFoundError
        The dataset is missing.
    VersionNotFoundError
        The version is missing.
    RefNotFoundError
        The tag or branch is missing.
    UnsupportedFeatureError
        The dataset uses a feature that this reader lacks.
    OptionError
        An option is unknown or has an invalid value.

    Notes
    -----
    Makes two requests: a listing and the manifest. Opens data files later.
    """
    SIZE.check("block_size", block_size)
    SIZE.check("index_cache_size", index_cache_size)
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
    """Run a query over several datasets in DataFusion; read only the data it needs.

    Parameters
    ----------
    query
        SQL in DataFusion's dialect, as in pylance. It sees only ``tables``: it cannot read files
        or the network.
    batch_size
        Approximate rows per batch of the result.
    **tables
        By name in the query: datasets, URIs of datasets, pyarrow tables, datasets and readers,
        pandas or polars frames.

    Returns
    -------
    pyarrow.RecordBatchReader
        A stream of the result; ``read_all()`` makes a table.

    Raises
    ------
    MissingDependencyError
        DataFusion is missing.
    OptionError
        The query is invalid, or an argument is not a table.

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
    read.validate(full=True)  # DataFusion trusts strings to be UTF-8
    return read
