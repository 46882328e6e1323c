"""Write a dataset."""

from __future__ import annotations

import os
from typing import Unpack

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.keywords import (
    FileKeywords,
    InsertKeywords,
    TargetKeywords,
    WriteKeywords,
    shows_file_options,
)
from glaive.dataset.version import OpenDataset
from glaive.dataset.writing.plan import Mode, WriteOptions
from glaive.dataset.writing.rows import write_rows


@shows_file_options(TargetKeywords, WriteOptions, FileKeywords, WriteKeywords)
def write_dataset(
    data_obj: object,
    uri: str | os.PathLike[str] | OpenDataset | None = None,
    schema: pa.Schema | None = None,
    mode: Mode = "create",
    **options: Unpack[TargetKeywords],
) -> LanceDataset:
    """Write rows as a new version of a dataset; return the dataset at that version.

    Parameters
    ----------
    data_obj
        Rows: a table, record batches or a reader of them, or a pandas or polars frame. Also any
        object with an Arrow stream, a mapping of columns, or an iterable of rows.
    uri
        Directory or URI, or an opened dataset.
    schema
        Types to write, if they differ from the types of the data.
    mode
        ``"create"`` raises if a dataset exists. ``"append"`` adds rows. ``"overwrite"`` replaces
        schema and rows. The last two create the dataset if it is missing.
    storage_options
        Credentials and settings of the object store.
    commit_lock, manifest_store
        See :func:`glaive.dataset.open.dataset`. A dataset as ``uri`` keeps its own.
    session
        Session of the returned dataset; default: the session of ``uri`` if it is a dataset.
    namespace_client, table_id
        Instead of ``uri``: a catalog, and the path of names of the table in it. glaive calls
        ``describe_table`` once, or ``declare_table`` to create the dataset.
    base_store_params, allow_external_blobs
        See :func:`glaive.dataset.open.dataset`. A dataset as ``uri`` keeps its own. After you
        create or overwrite with ``allow_external_blob_outside_bases``, the returned dataset can
        fetch these values.
    **options
        See :class:`glaive.dataset.keywords.WriteKeywords`.

    Raises
    ------
    DatasetExistsError
        A dataset exists, and ``mode`` is ``"create"``.
    SchemaError
        The rows do not match the dataset, or the format lacks a type.
    OptionError
        An option is unknown or has an invalid value.
    CommitConflictError
        Another writer committed a conflicting change.
    StoreError
        The location is read-only or unreachable. The dataset is unchanged.
    """
    given: InsertKeywords = {**options, "schema": schema}
    return LanceDataset.holding(write_rows(data_obj, uri, mode, given, "write_dataset"))
