"""Plan the write of a frame on the driver, before any task runs.

Options that have no effect, rows that the dataset cannot take and versions that have moved on are
refused here. What tasks and the commit need is a :class:`WriteJob`, which Spark pickles.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.tasks import JOB
from glaive.dataset.writing.conform import check_same_columns, match_schema
from glaive.dataset.writing.options import Mode, WriteOptions
from glaive.dataset.writing.plan import WritePlan, plan_write
from glaive.errors import DatasetNotFoundError, OptionError
from glaive.expr.filters import bind_filter
from glaive.expr.names import check_column_texts
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.io.store import ObjectStore
from glaive.spark.assignable import (
    assigned,
    refuse_cut_names,
    refuse_missing,
    refuse_same_without_case,
    refuse_unassignable,
    spelled,
    stored_types,
)
from glaive.spark.options import Options
from glaive.spark.release import RELEASE
from glaive.spark.stored_types import frame_types, refuse_other_types
from glaive.spark.types import spark_arrow_schema
from glaive.spark.unscaled import restored_schema
from glaive.table.app_transactions import AppTransaction
from glaive.table.branches import read_branch
from glaive.table.load import open_latest
from glaive.table.named_jobs import CommitMarks, NamedJob
from glaive.table.refs import branch_store
from glaive.table.root import open_root

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "ENGINE",
    "WriteJob",
    "app_transaction",
    "open_target",
    "plan_frame",
    "plan_job",
]

ENGINE = "glaive.engine"
"""Transaction property that names what wrote the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """The settings of tasks and commit, as plain values that can be pickled.

    Parameters
    ----------
    plan
        The plan of the write.
    columns
        The types that batches from Spark are cast to, by name.
    allow_truncation
        Truncate times to the unit of their column.
    decimals
        Columns of batches from Spark that are decimals without their scale.
    replace_where
        The rows that the written ones replace, and all of these match; a filter.
    applied
        Whether the dataset has this transaction of an application, or this named job, already, so
        that nothing is to be written.
    release
        Version of glaive on the driver.
    """

    plan: WritePlan
    columns: pa.Schema
    allow_truncation: bool
    decimals: Mapping[str, str] = field(default_factory=dict)
    replace_where: str | None = None
    applied: bool = False
    release: str = RELEASE

    @property
    def id(self) -> str:
        """Identifier of the job, the same in every attempt of its tasks and its commit."""
        return self.plan.options.transaction_properties[JOB]


def open_target(options: Options) -> tuple[ObjectStore, Manifest | None]:
    """The root of the dataset or branch to write to, and its newest version, if there is one.

    Raises
    ------
    RefNotFoundError
        There is no such branch.
    """
    store = open_root(options.uri, options.storage)
    if options.branch is not None:
        read_branch(store, options.branch)
        store = branch_store(store, options.branch)
    base = None
    with suppress(DatasetNotFoundError):
        base = open_latest(store, to_follow=True)
    return store, base


def plan_job(schema: StructType, options: Options, *, overwrite: bool) -> WriteJob:
    """Plan the write on the driver, and reject invalid writes early.

    Raises
    ------
    GlaiveError
        As :func:`glaive.dataset.writing.plan.plan_write`; also for a frame that lacks columns of
        the dataset it is appended to, as in Spark's own sources.
    """
    schema = restored_schema(schema, options.decimals)
    store, base = open_target(options)
    appends = base is not None and _keeps_rows(options, overwrite=overwrite)
    replaced = None if base is None or appends else stored_types(base.schema)
    stored = frame_types(schema, options, replaced)
    sent = spark_arrow_schema(schema)
    if (
        base is not None
        and not options.case_sensitive
        and (appends or not options.overwrite_schema)
    ):
        sent, stored = (spelled(names, base.schema.to_arrow()) for names in (sent, stored))
    if base is not None and appends and options.merge_schema:
        base = _with_columns(stored, base, options)
    return _plan(sent, stored, options, store, base, overwrite=overwrite)


def plan_frame(
    sent: pa.Schema, stored: pa.Schema, options: Options, *, overwrite: bool
) -> WriteJob:
    """Plan a write with given schemas.

    Parameters
    ----------
    sent
        The schema of batches from Spark.
    stored
        The schema of a new dataset.
    """
    store, base = open_target(options)
    return _plan(sent, stored, options, store, base, overwrite=overwrite)


def app_transaction(options: Options) -> AppTransaction | None:
    """The transaction of an application that a write belongs to.

    Raises
    ------
    OptionError
        Only one of the two options is given.
    """
    if options.txn_app_id is None and options.txn_version is None:
        return None
    if options.txn_app_id is None or options.txn_version is None:
        raise OptionError("txn_app_id and txn_version: give both, or none")
    return AppTransaction(options.txn_app_id, options.txn_version)


def _plan(
    sent: pa.Schema,
    stored: pa.Schema,
    options: Options,
    store: ObjectStore,
    base: Manifest | None,
    *,
    overwrite: bool,
) -> WriteJob:
    _check_together(options, overwrite=overwrite)
    refuse_cut_names(sent)
    keeps_rows = _keeps_rows(options, overwrite=overwrite)
    write_options = _write_options(options, "append" if keeps_rows else "overwrite")
    columns = stored
    if base is not None and (keeps_rows or not options.overwrite_schema):
        columns = assigned(sent, stored_types(base.schema))
    if base is None or keeps_rows or options.overwrite_schema:
        plan = plan_write(store, columns, write_options, base)
    else:
        same = match_schema(columns, base.schema, where=options.uri)
        plan = plan_write(store, same, write_options, base)
    if base is not None and (plan.appends or not options.overwrite_schema):
        if not options.merge_schema:
            refuse_missing(plan.schema, base.schema, where=options.uri)
    else:
        check_same_columns(sent.names, stored.names)
        refuse_unassignable(sent, stored, where=options.uri)
    if base is not None and plan.appends:
        refuse_other_types(stored, stored_types(base.schema), options)
        _refuse_row_ids(base, options)
    if options.replace_where is not None and base is not None:
        check_column_texts(base.schema, options.replace_where)
        bind_filter(options.replace_where, base.schema)
    marks = CommitMarks.of(write_options.transaction_properties)
    return WriteJob(
        plan=plan,
        columns=columns,
        allow_truncation=options.allow_truncation,
        decimals=options.decimals,
        replace_where=None if base is None else options.replace_where,
        applied=base is not None and marks.are_applied(base),
    )


def _keeps_rows(options: Options, *, overwrite: bool) -> bool:
    return not overwrite or options.replace_where is not None


_SELECTING = ("columns", "filter", "limit", "nearest", "full_text_query")
"""Options by which a view has a part of a dataset."""


def _check_together(options: Options, *, overwrite: bool) -> None:
    """Refuse options that would have no effect."""
    for name in _SELECTING if overwrite else ():
        if getattr(options, name) is not None:
            raise OptionError(
                f"option {name}: an overwrite replaces all rows and columns of a dataset, not the "
                "part that a view has. Overwrite a view without it; replace_where replaces the "
                "rows that match a filter"
            )
    only_overwriting = {
        "replace_where": options.replace_where is not None,
        "overwrite_schema": not options.overwrite_schema,
        "expected_version": options.expected_version is not None,
    }
    for name, given in only_overwriting.items():
        if given and not overwrite:
            raise OptionError(f"{name}: only for mode overwrite, found append or create")
    if overwrite and options.merge_schema:
        raise OptionError(
            "merge_schema: only for mode append; an overwrite has the columns of the frame"
        )


def _with_columns(stored: pa.Schema, base: Manifest, options: Options) -> Manifest:
    """The version with the columns that the dataset lacks, null in its rows.

    They are a version of their own, before that of the rows, so that tasks know their ids.

    Raises
    ------
    SchemaError
        A column differs from one of the dataset in nothing but case: for Spark it is the same.
    """
    from glaive.dataset.open import dataset

    new = [field for field in stored if field.name not in base.schema.by_name]
    if not new:
        return base
    if not options.case_sensitive:
        refuse_same_without_case(stored.names, base.schema.names, "merge_schema")
    version = base.version if options.branch is None else (options.branch, base.version)
    opened = dataset(options.uri, version=version, storage_options=options.storage or None)
    opened.add_columns(pa.schema([field.with_nullable(True) for field in new]))
    return opened.manifest


def _refuse_row_ids(base: Manifest, options: Options) -> None:
    """Refuse to change what rows of an existing dataset have as ids."""
    wanted, found = options.enable_stable_row_ids, base.uses(Feature.STABLE_ROW_IDS)
    if wanted is not None and wanted != found:
        raise OptionError(
            f"enable_stable_row_ids: {options.uri} was created "
            f"{'with' if found else 'without'} stable row ids, which an append cannot change. "
            "Leave the option out"
        )


def _write_options(options: Options, mode: Mode) -> WriteOptions:
    names = (
        "max_rows_per_file",
        "max_bytes_per_file",
        "data_storage_version",
        "enable_stable_row_ids",
        "encoding_options",
        "expected_version",
    )
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if mode == "overwrite" and options.expected_version is None and options.version is not None:
        given["expected_version"] = options.version  # of the view that is overwritten
    properties = {JOB: options.job or options.job_id or str(uuid4()), ENGINE: "spark"}
    if options.job_id is not None:
        properties |= NamedJob(options.job_id).properties
    app = app_transaction(options)
    if app is not None:
        properties |= app.properties
    given["compression"] = "balanced"
    made = WriteOptions(mode=mode, transaction_properties=properties, **given)
    return replace(made, mode="create") if options.must_not_exist else made
