"""Implement ``write_dataset`` and ``LanceDataset.insert``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from glaive.dataset.keywords import InsertKeywords, WriteKeywords
from glaive.dataset.monitoring import showing
from glaive.dataset.tasks import commit_operation
from glaive.dataset.version import (
    OpenDataset,
    OpenedVersion,
    check_options,
    refuse_unknown,
    warn_deprecated,
)
from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.fragments import discard_fragments, write_fragments
from glaive.dataset.writing.plan import DatasetBasePath, WriteOptions, WritePlan, plan_write
from glaive.dataset.writing.source import read_source
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    OptionError,
    SchemaError,
    VersionNotFoundError,
)
from glaive.file.blobs import BlobOptions
from glaive.format.fragment import Fragment, FragmentList
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path
from glaive.format.transaction import LANCE_COMMIT_MESSAGE_KEY, Transaction
from glaive.io.access import AccessPolicy
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectStore, find_object
from glaive.process import DATASETS, emit
from glaive.table.commit import commit_transaction
from glaive.table.configuration import AUTO_COMPACT, AUTO_INDEX
from glaive.table.load import find_transaction, open_latest, open_version, replaced
from glaive.table.operations.overwrite import Append, Overwrite
from glaive.table.operations.update_config import UpdateBases
from glaive.table.protocol import CommitOptions, TableOperation
from glaive.table.root import access_of, guarded, open_root


def write_options(
    function: Callable[..., Any], kind: type, mode: str, given: Mapping[str, Any], above: int = 2
) -> WriteOptions:
    """Convert keyword arguments of a function to options; ``None`` means the default.

    The user's call is ``above`` calls up.
    """
    unknown = {name: value for name, value in given.items() if name not in kind.__annotations__}
    check_options(function.__name__, unknown, function)
    values = {name: value for name, value in given.items() if value is not None}
    legacy = values.pop("use_legacy_format", None)
    if legacy is not None:
        warn_deprecated(
            "use_legacy_format is deprecated, use data_storage_version instead", above=above
        )
        values.setdefault("data_storage_version", "legacy" if legacy else "stable")
    for name in ("initial_bases", "target_bases"):
        if name in values:
            values[name] = tuple(values[name])
    if isinstance(values.get("progress"), bool):
        values["shows_progress"] = values.pop("progress")
    if "auto_cleanup_options" in values:
        values["auto_cleanup"] = values.pop("auto_cleanup_options")
    blobs = BlobOptions(
        pack_file_size=values.pop("blob_pack_file_size_threshold", None),
        external=values.pop("external_blob_mode", "reference"),
        outside_bases=values.pop("allow_external_blob_outside_bases", False),
    )
    return WriteOptions(mode=mode, blobs=blobs, **values)  # type: ignore[arg-type]  # checked there


# --- ``add_bases``, and dataset roots with access to base paths -------------------------


def add_bases(
    dataset: OpenedVersion, bases: Sequence[DatasetBasePath], properties: Mapping[str, str] | None
) -> OpenedVersion:
    """Commit new base paths, assign missing ids; return a version with access to them."""
    for base in bases:
        if not isinstance(base, DatasetBasePath):
            raise OptionError(f"new_bases: expected glaive.DatasetBasePath objects, found {base!r}")
    new = tuple(base.to_wire(base.id) for base in bases)
    store = allowing(dataset.store, bases)
    return dataset.at(commit_operation(dataset, UpdateBases(new), properties=properties), store)


def open_to_write(
    place: str | os.PathLike[str] | OpenDataset,
    storage_options: Mapping[str, str] | None,
    new_bases: Sequence[DatasetBasePath],
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
    **guards: Any,
) -> ObjectStore:
    """Open the root of a dataset to write to; an opened dataset keeps its permissions.

    ``guards`` replace its commit lock and manifest store.

    Raises
    ------
    OptionError
        The URI or an option is invalid.
    """
    if not isinstance(place, str) and isinstance(place, OpenDataset):  # protocols are slow to ask
        store = place.opened.store
    else:
        store = open_root(place, storage_options, **guards)
    policy = AccessPolicy.of(base_store_params, allow_external_blobs, before=access_of(store))
    return allowing(guarded(store, access=policy, **guards), new_bases)


def allowing(
    store: ObjectStore, bases: Sequence[DatasetBasePath], options: Mapping[str, str] | None = None
) -> ObjectStore:
    """Return the root of a dataset with permission to access these base paths.

    ``options`` are their storage options. Base paths in the bucket of the root use its options.
    """
    access = access_of(store).naming(store, [base.path for base in bases], options)
    return guarded(store, access=access)


# --- Commit the fragments of a write plan as one version --------------------------------

_CHECKING_THREADS: Final = 16
"""Threads that check whether files exist."""


def commit_plan(
    plan: WritePlan, fragments: Iterable[Fragment], *, once: str | None = None
) -> Manifest:
    """Commit fragments as one new version, with retries.

    Parameters
    ----------
    once
        Key of a transaction property that identifies this commit. If a version has the same
        value, return that version.

    Raises
    ------
    DatasetExistsError
        The mode is ``create``, but another writer created the dataset first.
    SchemaError
        The mode is ``append``, and another writer created the missing dataset with another schema
        than the rows have. Rows of the same schema are appended to it.
    CommitConflictError
        The rows match that dataset, but their files use other field ids. Or another writer
        committed a conflicting change. Or somebody removed the folder of a new dataset, with
        files of these rows.
    """
    fragments = FragmentList.of(fragments)
    # The plan of a new dataset lacks an identity, which would reveal a replaced folder.
    if plan.identity is None and (missing := missing_files(plan, fragments)):
        done = _made(plan, once)
        if done is not None:
            return done
        raise _without_files(plan, missing)
    try:
        return _commit(plan, fragments, once)
    except DatasetExistsError as error:
        # An earlier attempt may have committed into the other writer's dataset.
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
        if missing := missing_files(plan, fragments, asks=True):
            raise _without_files(plan, missing) from error
        return _commit(later, fragments, once)


def after_upkeep(plan: WritePlan, made: Manifest) -> Manifest:
    """Run the upkeep of an append if properties of the table ask for it; return the last version.

    It never fails: :mod:`glaive.dataset.upkeep` logs failures.
    """
    config = made.wire.config
    if not plan.appends or not (AUTO_COMPACT in config or AUTO_INDEX in config):
        return made
    from glaive.dataset.upkeep import keep_up

    return keep_up(OpenedVersion.of(plan.store, made))


def _made(plan: WritePlan, once: str | None) -> Manifest | None:
    """Return the version that an earlier attempt of a commit made, or ``None``."""
    if once is None:
        return None
    with suppress(DatasetNotFoundError):
        return find_transaction(plan.store, 0, once, plan.options.transaction_properties[once])
    return None


def missing_files(
    plan: WritePlan, fragments: Iterable[Fragment], *, asks: bool = False
) -> list[str]:
    """Return missing files of new rows, as far as local data shows.

    With ``asks``, make one request per file.
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

    if store.is_local:
        return [name for name in names if store.is_free(name)]
    wanted = list(names)
    found = ordered_map(partial(find_object, store), wanted, workers=_CHECKING_THREADS)
    return [name for name, there in zip(wanted, found, strict=True) if there is None]


def _without_files(plan: WritePlan, missing: list[str]) -> CommitConflictError:
    return CommitConflictError(
        f"{len(missing)} files of these rows are not in {plan.store.uri} any more, such as "
        f"{missing[0]}: somebody removed the folder while the rows were written. Nothing was "
        "committed. Write them again.",
        retryable=False,
    )


def _created_meanwhile(plan: WritePlan) -> WritePlan:
    """Return a plan for the dataset that another writer created; written files must match it."""
    base = open_latest(plan.store)
    where = plan.store.uri
    schema = match_schema(plan.schema.to_arrow(), base.schema, where=where)
    written = {(field.id, field.name, field.logical_type) for field in plan.schema.walk()}
    needed = {(field.id, field.name, field.logical_type) for field in schema.walk()}
    numbers = plan.rules is not None and plan.rules.numbers
    if (
        written != needed
        or numbers
        or not all(
            base.schema.field_by_id(field.id).nullable
            for field in plan.schema.walk()
            if field.nullable
        )
    ):
        raise CommitConflictError(
            f"{where} was created by another writer while these rows were written, with another "
            "order or other physical types of columns. The rows are valid: append them again."
        )
    identity = base.identity
    return replace(plan, read_version=identity[0], identity=identity, base=base, schema=schema)


def _commit(plan: WritePlan, fragments: FragmentList, once: str | None) -> Manifest:
    options = plan.recording([fragments.row_count]).options
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
    """Return the version that a plan was made for, even if another process made the plan.

    Returns ``None`` if the plan creates a dataset, or if the version was cleaned up. Makes one
    request, except in the process that made the plan.

    Raises
    ------
    CommitConflictError
        Another dataset has replaced this one: its columns may have the same field ids.
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


_MAX_NUMBERINGS: Final = 20
"""Number of times that rows are written again, if other writers number theirs first."""


def write_rows(
    data: object,
    uri: str | os.PathLike[str] | OpenDataset | None,
    mode: str,
    given: InsertKeywords,
    function: str = "insert",
) -> OpenedVersion:
    """Write rows as a new version; ``write_dataset`` explains parameters and errors."""
    refuse_unknown(function, given, list(InsertKeywords.__annotations__))
    how: Any = {name: one for name, one in given.items() if name in WriteKeywords.__annotations__}
    wanted = write_options(write_rows, WriteKeywords, mode, how, above=3)
    schema, storage_options = given.get("schema"), given.get("storage_options")
    manifest_store, session = given.get("manifest_store"), given.get("session")
    namespace_client, table_id = given.get("namespace_client"), given.get("table_id")
    if namespace_client is not None or table_id is not None:
        from glaive.table.manifest_registers import find_table

        create = wanted.mode == "create"
        place = (namespace_client, table_id, uri, storage_options, manifest_store)
        found = find_table(*place, create=create)
        uri, storage_options = found.uri, found.storage_options
        manifest_store = found.manifest_store or manifest_store
    if uri is None:
        raise OptionError(
            "Must specify either 'uri' or both 'namespace_client' and 'table_id'. uri is "
            "None: pass a path or a URI or a dataset."
        )
    guards: dict[str, Any] = {"commit_lock": given.get("commit_lock")}
    guards["manifest_store"] = manifest_store
    policy = given.get("base_store_params"), given.get("allow_external_blobs")
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
    for attempt in range(_MAX_NUMBERINGS + 1):
        with showing(wanted.shows_progress, "write", getattr(data, "num_rows", None)):
            written = write_fragments(plan, rows)
        if written and not plan.schema.fields:
            raise SchemaError("the rows have no columns. Give them at least one")
        try:
            made = commit_plan(plan, written)
            break
        except CommitConflictError as error:
            renumbers = error.retryable and plan.appends and plan.rules and plan.rules.numbers
            is_kept = isinstance(data, Sized)  # streams have no length, tables of any library do
            if not (renumbers and is_kept) or attempt == _MAX_NUMBERINGS:
                raise
            discard_fragments(plan, written)
            plan, rows = plan_write(store, columns, wanted), read_source(data, schema)[1]
    manifest = after_upkeep(plan, made)
    unsaid = access_of(store).external is None
    if unsaid and wanted.blobs.outside_bases and not plan.appends:
        # The caller has allowed all external blobs of the rows.
        access = AccessPolicy.of(allow_external_blobs=True, before=access_of(store))
        store = guarded(store, access=access)
    if opened is not None:
        session = opened.session if session is None else session
        storage_options = opened.storage_options
    return OpenedVersion.of(
        store, manifest, uri=where, storage_options=storage_options, session=session
    )
