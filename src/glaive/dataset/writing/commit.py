"""Commit the fragments of a write plan as one version."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.plan import WritePlan
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path
from glaive.format.transaction import LANCE_COMMIT_MESSAGE_KEY, Transaction
from glaive.io.pool import ordered_map
from glaive.table.commit import commit_transaction
from glaive.table.load import find_transaction, open_latest, open_version
from glaive.table.operations.append import Append
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import CommitOptions, TableOperation
from glaive.table.replaced import replaced

__all__ = ["commit_plan", "version_read"]

_READERS: Final = 16
"""Threads that look for files."""


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
        made a conflicting change; or somebody removed the folder in which there was no dataset
        yet, with files of these rows.
    """
    fragments = FragmentList.of(fragments)
    # There is no version by which another dataset in this place is recognised.
    if plan.identity is None and (missing := _removed(plan, fragments)):
        done = _made(plan, once)
        if done is not None:
            return done
        raise _without_files(plan, missing)
    try:
        return _commit(plan, fragments, once)
    except DatasetExistsError as error:
        # An earlier attempt of this commit may have switched to the other writer's dataset.
        done = _made(plan, once)
        if done is not None:
            return done
        if plan.options.mode == "create":
            raise
        if plan.options.mode == "overwrite":
            raise CommitConflictError(
                f"{plan.store.uri} was created by another writer while the rows of this overwrite "
                "were written. Repeat the overwrite if it should replace that dataset."
            ) from error
        later = _created_meanwhile(plan)
        if missing := _removed(plan, fragments, asks=True):
            raise _without_files(plan, missing) from error
        return _commit(later, fragments, once)


def _made(plan: WritePlan, once: str | None) -> Manifest | None:
    """The version that an earlier attempt of a commit made; ``None`` if there is none."""
    if once is None:
        return None
    with suppress(DatasetNotFoundError):
        return find_transaction(plan.store, 0, once, plan.options.transaction_properties[once])
    return None


def _removed(plan: WritePlan, fragments: Iterable[Fragment], *, asks: bool = False) -> list[str]:
    """Files of new rows that are not there any more, as far as is seen without a request.

    With ``asks``, there is one for each file.
    """
    store = plan.store
    if not store.is_local and not asks:
        return []
    names = (
        data_file_path(file.path)
        for fragment in fragments
        for file in fragment.files
        if file.base_id is None
    )

    def is_missing(name: str) -> bool:
        try:
            store.head(name)
        except ObjectNotFoundError:
            return True
        return False

    if store.is_local:
        return [name for name in names if store.is_free(name)]
    wanted = list(names)
    found = ordered_map(is_missing, wanted, workers=_READERS)
    return [name for name, missing in zip(wanted, found, strict=True) if missing]


def _without_files(plan: WritePlan, missing: list[str]) -> CommitConflictError:
    return CommitConflictError(
        f"{len(missing)} files of these rows are not in {plan.store.uri} any more, such as "
        f"{missing[0]}: somebody removed the folder while the rows were written. Nothing was "
        "committed. Write them again.",
        retryable=False,
    )


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
