"""Commit what a plan wrote: one version with all of it, or none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.plan import WritePlan
from glaive.errors import CommitConflictError, DatasetExistsError
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.format.transaction import LANCE_COMMIT_MESSAGE_KEY, Transaction
from glaive.table.commit import commit_transaction
from glaive.table.load import find_transaction, open_latest
from glaive.table.operations.append import Append
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import CommitOptions, TableOperation

__all__ = ["commit_plan"]


def commit_plan(
    plan: WritePlan, fragments: Iterable[Fragment], *, once: str | None = None
) -> Manifest:
    """Make fragments part of the dataset: one new version, retried while others write.

    Parameters
    ----------
    once
        A transaction property that identifies this commit: a version that has the same value
        is returned instead of making another one.

    Raises
    ------
    DatasetExistsError
        It was to be created, but another writer was first.
    SchemaError
        Rows were to be appended where nothing was, and do not fit what another writer created
        meanwhile. Where they fit, they are appended to it.
    CommitConflictError
        They would fit, but their files name the columns by other ids; or another writer
        changed what this was planned for.
    """
    fragments = tuple(fragments)
    try:
        return _commit(plan, fragments, once)
    except DatasetExistsError as error:
        # A commit that is repeated may have followed the dataset of another writer before.
        if once is not None:
            value = plan.options.transaction_properties[once]
            done = find_transaction(plan.store, 0, once, value)
            if done is not None:
                return done
        if plan.options.mode == "create":
            raise
        if plan.options.mode == "overwrite":
            raise CommitConflictError(
                f"{plan.store.uri} was created by another writer while the rows that were to "
                "replace it were written. Write them again, if they are still to replace it."
            ) from error
        return _commit(_created_meanwhile(plan), fragments, once)


def _created_meanwhile(plan: WritePlan) -> WritePlan:
    """The plan for the dataset as it is now; files written for the one before must go with it."""
    base = open_latest(plan.store)
    where = plan.store.uri
    schema = match_schema(plan.schema.to_arrow(), base.schema, where=where)
    written = {(field.id, field.name, field.logical_type) for field in plan.schema.walk()}
    needed = {(field.id, field.name, field.logical_type) for field in schema.walk()}
    if written != needed or not all(
        base.schema.field_by_id(field.id).nullable for field in plan.schema.walk() if field.nullable
    ):
        raise CommitConflictError(
            f"{where} was created by another writer while these rows were written, with columns "
            "in another order or of other forms. Nothing is wrong with the rows: append them again."
        )
    return replace(plan, read_version=base.version, base=base, schema=schema)


def _commit(plan: WritePlan, fragments: tuple[Fragment, ...], once: str | None) -> Manifest:
    options = plan.options
    properties = dict(options.transaction_properties)
    if options.commit_message is not None:
        properties[LANCE_COMMIT_MESSAGE_KEY] = options.commit_message
    operation: TableOperation = Append(fragments)
    if not plan.appends:
        operation = Overwrite(
            fragments=fragments,
            schema=plan.schema,
            config=options.cleanup_config(),
            base_paths=plan.new_bases,
        )
    transaction = Transaction(
        read_version=plan.read_version, operation=operation, properties=properties
    )
    commit = CommitOptions(
        storage_version=plan.profile.version,
        enable_stable_row_ids=options.enable_stable_row_ids,
        enable_v2_manifest_paths=options.enable_v2_manifest_paths,
    )
    return commit_transaction(plan.store, transaction, base=plan.base, once=once, options=commit)
