"""The frame that options describe: which version, which columns, under which names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.spark.options import Options

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["frame_schema", "open_dataset", "pinned", "places"]


def open_dataset(options: Options) -> LanceDataset:
    """Open the dataset the options name, at their version."""
    from glaive.dataset.open import dataset
    from glaive.dataset.versions.history import version_as_of

    version: int | str | tuple[str | None, int | None] | None = options.tag or options.version
    if options.branch is not None:
        version = options.branch, options.version
    found = dataset(
        options.uri,
        version=version,
        storage_options=dict(options.storage) or None,
        base_store_params=options.base_store_params,
    )
    if options.asof is None:
        return found
    return found.checkout_version(version_as_of(found.store, options.asof))


def pinned(options: Options, dataset: LanceDataset) -> Options:
    """Options that name the version of an opened dataset, whatever is written meanwhile."""
    from glaive.dataset.versions.references import branch_of

    branch = branch_of(dataset.manifest)
    return replace(options, version=dataset.version, branch=branch, tag=None, asof=None)


def frame_schema(dataset: LanceDataset, options: Options) -> pa.Schema:
    """Return the columns of the frame as a scan gives them: blobs as where their values are.

    Row ids, addresses and the like are signed in Spark, which has no unsigned numbers. Columns
    and filter are checked on the way.

    Raises
    ------
    ColumnNotFoundError, SchemaError
        A column does not exist, or is named twice.
    FilterError
        The filter or an expression is wrong.
    """
    wanted = options.columns
    columns: list[str] | dict[str, str] | None
    if wanted is None or isinstance(wanted, Mapping):
        columns = None if wanted is None else dict(wanted)
    else:
        columns = list(wanted)
        repeated = {name for name in columns if columns.count(name) > 1}
        if repeated:
            raise SchemaError(f"option columns names {', '.join(sorted(repeated))} more than once")
    scanner = dataset.scanner(
        columns=columns,
        filter=options.filter,
        with_row_id=options.with_row_id,
        with_row_address=options.with_row_address,
    )
    return pa.schema(
        [
            field.with_type(pa.int64()) if _is_system(field.name, dataset) else field
            for field in scanner.projected_schema
        ]
    )


def places(dataset: LanceDataset, options: Options) -> dict[str, tuple[str, ...]]:
    """Return where columns of the frame are in the dataset: names from the top down.

    Computed columns are nowhere.
    """
    from glaive.expr.filters import bind_value
    from glaive.expr.tree import Column
    from glaive.scan.system_columns import SYSTEM_COLUMNS

    schema = dataset.lance_schema
    found: dict[str, tuple[str, ...]] = {}
    for name in frame_schema(dataset, options).names:
        path = name
        if isinstance(options.columns, Mapping) and name in options.columns:
            text = options.columns[name]
            node = bind_value(text, schema, system=SYSTEM_COLUMNS).expression
            if not isinstance(node, Column):
                continue
            path = node.path
        if _is_system(path, dataset):
            found[name] = (path,)
        else:
            found[name] = tuple(one.name for one in schema.find(path))
    return found


def _is_system(name: str, dataset: LanceDataset) -> bool:
    """Whether a name is that of a column that no file has."""
    from glaive.scan.system_columns import SYSTEM_COLUMNS

    return name in SYSTEM_COLUMNS and name not in dataset.lance_schema.names
