"""Commit the fragments of a write plan as one version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.plan import WritePlan
from glaive.errors import CommitConflictError, DatasetExistsError, VersionNotFoundError
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.manifest import Manifest
from glaive.format.transaction import LANCE_COMMIT_MESSAGE_KEY, Transaction
from glaive.table.commit import commit_transaction
from glaive.table.load import find_transaction, open_latest, open_version
from glaive.table.operations.append import Append
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import CommitOptions, TableOperation
from glaive.table.replaced import replaced

__all__ = ["commit_plan", "version_read"]


def commit_plan(
    plan: WritePlan, fragments: Iterable[Fragment], *, once: str | None = None
) -> Manifest:
    """Commit fragments as one new version, with retries.

    Parameters
    ----------
    once
        A transaction property that identifies this commit: if a version has the same value, it
        is returned, and no new version is made.

    Raises
    ------
    DatasetExistsError
        ``create``, but another writer created the dataset first.
    SchemaError
        ``append`` to a missing dataset that another writer created concurrently, whose schema
        the rows do not match. If they match, they are appended to it.
    CommitConflictError
        The same, and the rows match, but their files use other field ids; or another writer
        made a conflicting change.
    """
    fragments = FragmentList.of(fragments)
    try:
        return _commit(plan, fragments, once)
    except DatasetExistsError as error:
        # An earlier attempt of this commit may have switched to the other writer's dataset.
        if once is not None:
            value = plan.options.transaction_properties[once]
            done = find_transaction(plan.store, 0, once, value)
            if done is not None:
                return done
        if plan.options.mode == "create":
            raise
        if plan.options.mode == "overwrite":
            raise CommitConflictError(
                f"{plan.store.uri} was created by another writer while the rows of this overwrite "
                "were written. Repeat the overwrite if it should replace that dataset."
            ) from error
        return _commit(_created_meanwhile(plan), fragments, once)


def _created_meanwhile(plan: WritePlan) -> WritePlan:
    """The plan for the dataset that another writer created; the written files must match it."""
    base = open_latest(plan.store)
    where = plan.store.uri
    schema = match_schema(plan.schema.to_arrow(), base.schema, where=where)
    written = {(field.id, field.name, field.logical_type) for field in plan.schema.walk()}
    needed = {(field.id, field.name, field.logical_type) for field in schema.walk()}
    if written != needed or not all(
        base.schema.field_by_id(field.id).nullable for field in plan.schema.walk() if field.nullable
    ):
        raise CommitConflictError(
            f"{where} was created by another writer while these rows were written, with another "
            "order or other physical types of columns. The rows are valid: append them again."
        )
    identity = base.identity
    return replace(plan, read_version=identity[0], identity=identity, base=base, schema=schema)


def _commit(plan: WritePlan, fragments: FragmentList, once: str | None) -> Manifest:
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
    if options.expected_version is not None:
        commit = replace(commit, max_retries=0)
    base = version_read(plan)
    return commit_transaction(plan.store, transaction, base=base, once=once, options=commit)


def version_read(plan: WritePlan) -> Manifest | None:
    """The version that a plan was made for, also where the plan came from another process.

    ``None`` if there was none, or if it was cleaned up since. One request, or none where the plan
    was made.

    Raises
    ------
    CommitConflictError
        Another dataset is there: its columns may have the same field ids.
    """
    if plan.base is not None or plan.identity is None:
        return plan.base
    try:
        there = open_version(plan.store, plan.read_version)
    except VersionNotFoundError:
        return None
    if there.identity != plan.identity:
        raise replaced(plan.store, plan.read_version)
    return there
