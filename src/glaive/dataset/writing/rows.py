"""The implementation of ``write_dataset`` and ``LanceDataset.insert``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from glaive.dataset.opening import refuse_unknown
from glaive.dataset.progress_line import showing
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.writing.bases import open_to_write
from glaive.dataset.writing.commit import commit_plan
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.keywords import WriteKeywords, write_options
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.dataset.writing.source import read_source
from glaive.errors import OptionError, SchemaError
from glaive.events import DATASETS, emit
from glaive.io.access import AccessPolicy
from glaive.scan.session import Session
from glaive.table.manifest_store.protocol import ManifestStore
from glaive.table.root import CommitLock, access_of, guarded

__all__ = ["insert_rows", "write_rows"]

_PLACE = (
    "storage_options",
    "commit_lock",
    "manifest_store",
    "session",
    "namespace_client",
    "table_id",
    "base_store_params",
    "allow_external_blobs",
)
"""Options of ``write_rows`` for the target; :class:`WriteKeywords` are those for the files."""


def insert_rows(
    dataset: OpenDataset, data: object, mode: str, given: Mapping[str, Any]
) -> OpenedVersion:
    """Write rows into an opened dataset; ``given`` are options of ``write_dataset``."""
    refuse_unknown("insert", given, ["schema", *_PLACE, *WriteKeywords.__annotations__])
    target = {name: value for name, value in given.items() if name in _PLACE}
    how = {name: value for name, value in given.items() if name in WriteKeywords.__annotations__}
    wanted = write_options(insert_rows, WriteKeywords, mode, how)
    return write_rows(data, dataset, given.get("schema"), wanted, **target)


def write_rows(
    data: object,
    uri: str | os.PathLike[str] | OpenDataset | None,
    schema: pa.Schema | None,
    wanted: WriteOptions,
    *,
    storage_options: Mapping[str, str] | None = None,
    commit_lock: CommitLock | None = None,
    manifest_store: ManifestStore | str | None = None,
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
) -> OpenedVersion:
    """Write rows as a new version; parameters and errors are those of ``write_dataset``.

    ``wanted`` has the mode and all options for the files.
    """
    if namespace_client is not None or table_id is not None:
        from glaive.dataset.namespaces import find_table

        create = wanted.mode == "create"
        place = (namespace_client, table_id, uri, storage_options, manifest_store)
        found = find_table(*place, create=create)
        uri, storage_options = found.uri, found.storage_options
        manifest_store = found.manifest_store or manifest_store
    if uri is None:
        raise OptionError(
            "Must specify either 'uri' or both 'namespace_client' and 'table_id': uri: expected a "
            "path or a URI or a dataset, or namespace_client and table_id, found None"
        )
    guards: dict[str, Any] = {"commit_lock": commit_lock, "manifest_store": manifest_store}
    policy = base_store_params, allow_external_blobs
    store = open_to_write(uri, storage_options, wanted.initial_bases, *policy, **guards)
    source, rows = read_source(data, schema)
    columns = source if schema is None else schema
    opened: OpenedVersion | None = None
    if not isinstance(uri, str) and isinstance(uri, OpenDataset):  # protocols are slow to ask
        opened = uri.opened
        where = opened.uri
    else:
        where = os.fspath(uri)
    emit(DATASETS, event="writing", uri=store.uri, mode=wanted.mode.capitalize())
    plan = plan_write(store, columns, wanted, None if opened is None else opened.manifest)
    with showing(wanted.shows_progress, "write", getattr(data, "num_rows", None)):
        written = write_fragments(plan, rows)
    if written and not plan.schema.fields:
        raise SchemaError("the rows have no columns. Give them at least one")
    manifest = commit_plan(plan, written)
    unsaid = access_of(store).external is None
    if unsaid and wanted.blobs.outside_bases and not plan.appends:
        # The caller has just allowed all of its references.
        access = AccessPolicy.of(allow_external_blobs=True, before=access_of(store))
        store = guarded(store, access=access)
    if opened is not None:
        session = opened.session if session is None else session
        storage_options = opened.storage_options
    return OpenedVersion.of(
        store, manifest, uri=where, storage_options=storage_options, session=session
    )
