"""The frame that options describe: version, columns, and their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.expr.coerce import is_binary
from glaive.format.field import BLOB
from glaive.spark.options import BLOBS, Options

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


def open_dataset(options: Options) -> LanceDataset:
    """Open the dataset and version of the options.

    Raises
    ------
    VersionNotFoundError
        There is no such version, or another dataset is in the place of the pinned one.
    """
    from glaive.dataset.open import dataset
    from glaive.dataset.version import version_as_of
    from glaive.table.load import check_same

    version: int | str | tuple[str | None, int | None] | None = options.tag or options.version
    if options.branch is not None:
        version = options.branch, options.version
    opened = dataset(options.uri, version=version, storage_options=options.storage or None)
    if options.identity is not None:
        check_same(opened.manifest, options.identity)
    if options.asof is None:
        return opened
    return opened.checkout_version(version_as_of(opened.store, options.asof))


def pinned(options: Options, dataset: LanceDataset) -> Options:
    """Options with the version of an opened dataset, and what it is recognised by."""
    from glaive.table.refs import branch_of

    there = dataset.manifest
    return replace(
        options,
        version=there.version,
        branch=branch_of(there),
        identity=there.identity,
        tag=None,
        asof=None,
    )


def frame_schema(dataset: LanceDataset, options: Options) -> pa.Schema:
    """The schema of the frame as scans return it.

    Blobs that are read as bytes are marked as blobs, so that they are written as such again.
    System columns such as row ids are signed, as Spark has no unsigned numbers. Also checks
    columns and filter.

    Raises
    ------
    ColumnNotFoundError, SchemaError
        A column does not exist, or is given twice.
    FilterError
        The filter or an expression is invalid.
    """
    stored = dataset.lance_schema.fields
    blobs = {field.name for field in stored if BLOB in field.metadata or field.is_blob_v2}
    fields: list[Any] = []
    for field in dataset.scanner(**scan_arguments(options)).projected_schema:
        if _is_system(field.name, dataset):
            fields.append(field.with_type(pa.int64()))
        elif field.name in blobs and is_binary(field.type):  # its values
            fields.append(field.with_metadata({BLOB: "true"}))
        else:
            fields.append(field)
    return pa.schema(fields)


def scan_arguments(options: Options) -> dict[str, Any]:
    """Arguments of the scan that reads the whole frame.

    Raises
    ------
    SchemaError
        A column is given twice.
    """
    wanted = options.columns
    columns: list[str] | dict[str, str] | None
    if wanted is None or isinstance(wanted, Mapping):
        columns = None if wanted is None else dict(wanted)
    else:
        columns = list(wanted)
        repeated = {name for name, times in Counter(columns).items() if times > 1}
        if repeated:
            raise SchemaError(f"option columns has {', '.join(sorted(repeated))} more than once")
    return {
        "columns": columns,
        "filter": options.filter,
        "limit": options.limit,
        "order_by": options.order_by or None,
        "nearest": None if options.nearest is None else dict(options.nearest),
        "full_text_query": options.full_text_query,
        "blob_handling": BLOBS[options.blobs],
        "with_row_id": options.with_row_id,
        "with_row_address": options.with_row_address,
    }


def stored_paths(dataset: LanceDataset, options: Options) -> dict[str, tuple[str, ...]]:
    """Paths in the dataset of the columns of the frame, without computed columns."""
    from glaive.expr.filters import bind_value
    from glaive.expr.tree import Column
    from glaive.scan.projection import SYSTEM_COLUMNS

    schema = dataset.lance_schema
    paths: dict[str, tuple[str, ...]] = {}
    for name in frame_schema(dataset, options).names:
        path = name
        if isinstance(options.columns, Mapping) and name in options.columns:
            text = options.columns[name]
            node = bind_value(text, schema, system=SYSTEM_COLUMNS).expression
            if not isinstance(node, Column):
                continue
            path = node.path
        if _is_system(path, dataset):
            paths[name] = (path,)
        else:
            paths[name] = tuple(field.name for field in schema.find(path))
    return paths


def _is_system(name: str, dataset: LanceDataset) -> bool:
    """Whether a name is that of a system column."""
    from glaive.scan.projection import SYSTEM_COLUMNS

    return name in SYSTEM_COLUMNS and name not in dataset.lance_schema.names
