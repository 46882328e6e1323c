"""Write fragments without a commit: for jobs whose parts are committed as one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from glaive.dataset.commits.lance_operation import LanceOperation
from glaive.dataset.commits.transactions import Transaction
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.opening import check_options
from glaive.dataset.version import OpenDataset
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.dataset.writing.bases import naming
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.source import read_source
from glaive.dataset.writing.write import Target, find_target
from glaive.dataset.writing.write import write_fragments as write_files
from glaive.errors import UnsupportedFeatureError
from glaive.file.blob_options import BlobOptions
from glaive.io.access import AccessPolicy
from glaive.scan.session import Session
from glaive.table.root import access_of, guarded, open_root

__all__ = ["write_fragments"]


def write_fragments(
    data: object,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    max_rows_per_file: int = 1024 * 1024,
    max_rows_per_group: int | None = 1024,
    max_bytes_per_file: int = 90 * 1024**3,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    progress: Any = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    storage_options: Mapping[str, str] | None = None,
    enable_stable_row_ids: bool = False,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    encoding_options: Mapping[str, Mapping[str, object]] | None = None,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,  # noqa: ARG001  # pylance has it
    **options: Any,
) -> list[FragmentMetadata] | Transaction:
    """Write rows into data files that no version refers to yet.

    The parameters are those of :func:`glaive.write_dataset`, but namespaces are not supported,
    and a ``session`` has no effect. With ``return_transaction`` the
    fragments come within the transaction that adds them, or, with ``mode`` "create" or
    "overwrite", makes a dataset of them. Commit them with ``LanceDataset.commit`` within a
    week: files that no version refers to are cleaned up then.

    Returns
    -------
    list of FragmentMetadata, or Transaction
        One fragment per file, without an id; they can be pickled and made JSON of.

    Raises
    ------
    SchemaError
        The rows do not fit the dataset.
    OptionError
        An option does not exist or has a value it cannot have.
    UnsupportedFeatureError
        An option is not supported.
    """
    if options:
        check_options("write_fragments", options, write_fragments)
    if namespace_client is not None or table_id is not None:
        raise UnsupportedFeatureError(
            "write_fragments: namespace_client and table_id are not supported: credentials are "
            "not renewed. Give the storage_options that the namespace tells."
        )
    if use_legacy_format is not None and data_storage_version is None:
        data_storage_version = "legacy" if use_legacy_format else "stable"
    blobs = BlobOptions(
        external=external_blob_mode,  # type: ignore[arg-type]  # checked there
        outside_bases=allow_external_blob_outside_bases,
    )
    wanted = WriteOptions(
        mode=mode,  # type: ignore[arg-type]  # checked there
        max_rows_per_file=max_rows_per_file,
        max_rows_per_group=1024 if max_rows_per_group is None else max_rows_per_group,
        max_bytes_per_file=max_bytes_per_file,
        max_page_bytes=max_page_bytes,
        data_cache_bytes=data_cache_bytes,
        data_storage_version=data_storage_version,
        enable_stable_row_ids=enable_stable_row_ids,
        progress=progress,
        encoding_options=encoding_options,
        initial_bases=tuple(initial_bases or ()),
        target_bases=tuple(target_bases or ()),
        target_all_bases=bool(target_all_bases),
    )
    opened = dataset_uri.opened if isinstance(dataset_uri, OpenDataset) else None
    if isinstance(dataset_uri, OpenDataset):
        store = dataset_uri.opened.store
    else:
        store = open_root(dataset_uri, storage_options)
    access = AccessPolicy.of(base_store_params, before=access_of(store))
    store = naming(guarded(store, access=access), wanted.initial_bases)
    source, rows = read_source(data, schema)
    target = find_target(store, source, wanted, None if opened is None else opened.manifest)
    wanted = replace(wanted, blobs=target.blobs(blobs))
    places = target.places(wanted)
    shared = target.dictionaries
    written = write_files(store, rows, target.schema, wanted, target.version, shared, places)
    fragments = [FragmentMetadata.of(one) for one in written]
    return _transaction(target, fragments, wanted) if return_transaction else fragments


def _transaction(
    target: Target, fragments: list[FragmentMetadata], options: WriteOptions
) -> Transaction:
    version = 0 if target.base is None else target.base.version
    operation: LanceOperation.BaseOperation
    if target.base is not None and options.mode == "append":
        operation = LanceOperation.Append(fragments)
    else:
        operation = LanceOperation.Overwrite(target.schema, fragments, options.initial_bases)
    return Transaction(version, operation)
