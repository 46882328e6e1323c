"""Write fragments without a commit, for distributed jobs with one commit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack, overload

import pyarrow as pa

from glaive.dataset.commits.lance_operation import LanceOperation
from glaive.dataset.commits.transactions import Transaction
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.namespaces import reach_table
from glaive.dataset.progress_line import showing
from glaive.dataset.version import OpenDataset
from glaive.dataset.writing.fragments import write_fragments as write_files
from glaive.dataset.writing.plan import Mode, WritePlan, plan_write
from glaive.dataset.writing.rows import FileKeywords, expose_keywords, open_to_write, write_options
from glaive.dataset.writing.source import read_source
from glaive.scan.snapshot import Session


@overload
def write_fragments(
    data: object,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[False] = False,
    mode: Mode = "append",
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
    **options: Unpack[FileKeywords],
) -> list[FragmentMetadata]: ...


@overload
def write_fragments(
    data: object,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[True],
    mode: Mode = "append",
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
    **options: Unpack[FileKeywords],
) -> Transaction: ...


@expose_keywords(FileKeywords)
def write_fragments(
    data: object,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: Mode = "append",
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,  # noqa: ARG001  # pylance has it
    **options: Unpack[FileKeywords],
) -> list[FragmentMetadata] | Transaction:
    """Write rows into data files without a commit.

    With ``return_transaction``, return the transaction that appends the fragments or, with
    ``mode`` "create" or "overwrite", makes a dataset of them. Commit them with
    ``LanceDataset.commit`` within a week; after that, a clean-up may delete the files.

    Parameters
    ----------
    data, dataset_uri, schema, mode, storage_options, base_store_params
        As for :func:`glaive.write_dataset`.
    namespace_client, table_id
        The table of a catalogue that lies at ``dataset_uri``: its credentials are used, and
        renewed before they expire. With ``mode`` "create" it is declared first.
    session
        Ignored.
    **options
        Those of :class:`glaive.dataset.writing.rows.FileKeywords`.

    Returns
    -------
    list of FragmentMetadata, or Transaction
        One fragment per file, without an id; they can be pickled and converted to JSON.

    Raises
    ------
    SchemaError
        The rows do not match the dataset.
    OptionError
        An option does not exist or has an invalid value.
    DatasetNotFoundError, StoreError
        The catalogue does not have the table, or failed.
    """
    wanted = write_options(write_fragments, FileKeywords, mode, options)
    place = (namespace_client, table_id, dataset_uri, storage_options)
    found = reach_table(*place, create=wanted.mode == "create")
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
    with showing(wanted.shows_progress, "write", getattr(data, "num_rows", None)):
        fragments = [FragmentMetadata.of(fragment) for fragment in write_files(plan, rows)]
    return _transaction(plan, fragments) if return_transaction else fragments


def _transaction(plan: WritePlan, fragments: list[FragmentMetadata]) -> Transaction:
    operation: LanceOperation.BaseOperation = LanceOperation.Append(fragments)
    if not plan.appends:
        bases = plan.options.initial_bases
        operation = LanceOperation.Overwrite(plan.schema, fragments, bases)
    return Transaction(plan.read_version, operation)
