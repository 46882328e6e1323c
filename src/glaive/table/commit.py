"""Commit a transaction as the next version of a dataset, concurrently with other writers.

The loop, as in the specification's "Commit":

1. read the transactions of all versions since the read version and check for conflicts;
2. write the transaction file and build the manifest on top of the newest version;
3. put the manifest if absent; if another writer was first, wait a little and go to 1.

Commits are idempotent. A version counts as this commit and is returned if it has:

- the same transaction uuid,
- the same value of the property named by ``once``,
- this named job, or
- this transaction of an application, or a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid5

from glaive.arrow.validation import refuse_half_characters
from glaive.dataclass import dataclass
from glaive.errors import (
    CommitConflictError,
    CommitContentionError,
    DatasetExistsError,
    DatasetNotFoundError,
    NotFoundError,
    ObjectNotFoundError,
    OptionError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from glaive.format.fields import refuse_reserved
from glaive.format.fragment import LEGACY, Fragment
from glaive.format.manifest import Feature, Manifest, check_writable, encode_manifest
from glaive.format.paths import DETACHED, VERSIONS, data_file_path, manifest_path, transaction_path
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation, Transaction, WireOperation
from glaive.io.store import ObjectStore
from glaive.process import fraction, monotonic, random_bytes, sleep
from glaive.table.configuration import INTERVAL, checksum_of_metadata
from glaive.table.deletions import load_deletions, put_deletions
from glaive.table.fragment_ids import mark_file_versions, moved_fields
from glaive.table.load import (
    MANIFESTS,
    SeenDirectory,
    check_not_replaced,
    is_same,
    load_manifest,
    load_numbered,
    open_version,
    read_transaction,
    replaced,
)
from glaive.table.named_jobs import CommitMarks, Numbered, is_mark
from glaive.table.operations.create_index import after_merge
from glaive.table.operations.overwrite import Append, appended_files
from glaive.table.operations.update_config import UpdateConfig
from glaive.table.protocol import (
    BuildContext,
    CommitOptions,
    Conflict,
    Draft,
    HiddenLineage,
    TableOperation,
    read_operation,
)
from glaive.table.put_manifest import (
    embed_dictionaries,
    emit_committed,
    finish,
    put_manifest,
    unknown_until_read,
)
from glaive.table.root import lock_of
from glaive.table.rowids import load_lineage
from glaive.table.versions import (
    has_its_name,
    latest,
    list_versions,
    may_have_later,
    newest_known,
    was_made,
    write_hint,
)

# --- Detached versions: whether one can still become a version of the history -----------
# A detached version continues the ids of the version that it was made from. The history gives the
# same ids to other rows and columns. If both do, restoring the detached version would give ids
# another meaning than before.
#
# Specification: "Restore" in ``docs/format``.


def check_ids_unused(store: ObjectStore, newest: Manifest, restored: Manifest) -> None:
    """Check that the history reused no id of the rows and columns of a restored version.

    Raises
    ------
    UnsupportedFeatureError
        The version is detached and may share ids with the history, or its base version is missing.

    Notes
    -----
    Only a detached version with permanent ids costs requests: one for its base version in the
    history, and one for each detached version in between.
    """
    mine, theirs = _next_ids(restored), _next_ids(newest)
    if not restored.version & DETACHED or not any(mine):
        return
    for start, here, there in zip(_next_ids_at_base(store, restored), mine, theirs, strict=True):
        if start < min(here, there):
            raise UnsupportedFeatureError(
                f"version {restored.version} of {store.uri} is detached, and cannot be restored: "
                "the history may have given the ids of its rows or columns to others meanwhile. "
                "Read it, and overwrite the dataset with its rows instead."
            )


def _next_ids(version: Manifest) -> tuple[int, int]:
    """Return how many permanent row ids and field ids were given, up to a version."""
    rows = version.wire.next_row_id if version.uses(Feature.STABLE_ROW_IDS) else 0
    return rows, version.first_field_id


def _next_ids_at_base(store: ObjectStore, version: Manifest) -> tuple[int, int]:
    """Return the ids given up to the base version, in the history, of a detached version.

    Return zeros if the base version is missing: then all ids may belong to the detached version.
    """
    seen: set[int] = set()
    while version.version & DETACHED:
        made_by = read_transaction(store, version)
        if made_by is None or version.version in seen:
            return 0, 0
        seen.add(version.version)
        try:
            version = open_version(store, made_by.read_version)
        except VersionNotFoundError:
            return 0, 0
    return _next_ids(version)


# --- The next version of a dataset, made by an operation on top of the newest one -------


def draft_of(
    store: ObjectStore, base: Manifest | None, change: Operation, options: CommitOptions
) -> tuple[Draft, bool]:
    """Return the version that an operation makes of another version, without its transaction.

    Parameters
    ----------
    base
        The version to build on; ``None`` for a new dataset.
    change
        The operation, in wire format.

    Returns
    -------
    tuple
        The draft, and whether the row counts of all its fragments are known.

    Raises
    ------
    UnsupportedFeatureError
        The version to build on or to restore has an unsupported feature. Or the version to restore
        is detached, and other versions have used its ids since.
    VersionNotFoundError
        Clean-up removed the version to restore.
    SchemaError
        A column has a name that is reserved for row ids.
    """
    if base is not None:
        _check_writable(base)
    version = 1 if base is None else base.version + 1
    if base is not None and version == DETACHED and not options.detached:
        raise UnsupportedFeatureError(
            f"version {base.version} of {store.uri} has the highest number that there is: there "
            "can be none after it. Write its rows to another place"
        )
    operation = read_operation(change)
    restored = operation.restored
    older = None if restored is None else open_version(store, restored)
    if older is not None:
        _check_writable(older)
        if base is not None:
            check_ids_unused(store, base, older)
    if base is not None:
        hidden = operation.hidden(base)
        if hidden:
            lineage = {number: _hidden_lineage(store, base, number) for number in hidden}
            operation = operation.with_hidden(lineage)
    draft = operation.apply(base, BuildContext(version, options, older))
    refuse_reserved(draft.wire.fields, store.uri)
    if draft.wire.data_format.version == str(LEGACY):
        _correct_format(Manifest(draft.wire, where=store.uri))
    if options.detached:
        version = int.from_bytes(random_bytes(8), "little") | DETACHED
    known = None if base is None or not draft.kept else base.wire
    carried = 0 if known is None else known.reader_feature_flags | known.writer_feature_flags
    return draft, finish(draft, version, carried=carried)


def _check_writable(version: Manifest) -> None:
    flags = version.wire
    check_writable(flags.reader_feature_flags, flags.writer_feature_flags, where=version.where)


def _correct_format(made: Manifest) -> None:
    """Correct the format of a manifest: Lance 0.16 wrote 0.1 for files of newer formats."""
    versions = {file.version for fragment in made.fragments() for file in fragment.files}
    if versions and versions != {LEGACY}:
        if LEGACY in versions:
            raise UnsupportedFeatureError(
                f"{made.where} has files of the formats {', '.join(sorted(map(str, versions)))}, "
                "as Lance 0.16 could mix them: no version with both is made. Restore an earlier "
                "version, or overwrite the dataset with its own rows."
            )
        made.wire.data_format.version = str(made.data_format)
        mark_file_versions(made.wire, versions, made.data_format)


def _hidden_lineage(store: ObjectStore, base: Manifest, fragment_id: int) -> HiddenLineage:
    fragment = base.fragment(base.position_of(fragment_id))
    ids = load_lineage(store, base, fragment, "row_ids")
    created = load_lineage(store, base, fragment, "created_at")
    return ids.all(base.where), created.all(base.where)


# --- Changes between two versions, if the transactions between them were cleaned up ------

_WIRE = table_pb2.Transaction
_LOG = "__lance_mem_wal"
"""Entry of the index section that declares a log of rows outside the table."""


def net_changes(before: Manifest, after: Manifest, mine: Operation) -> list[Operation] | None:
    """Return the operations between two versions; ``None`` if the manifests do not tell them.

    If a difference can have several causes, there is an operation for each cause. So a change
    conflicts with these operations if it can conflict with the committed operations. Exceptions
    are appends and changes of the schema after an overwrite, because a compaction looks alike.

    Parameters
    ----------
    mine
        The operation to be committed. Only an overwrite loses another overwrite.
    """
    stable = int(Feature.STABLE_ROW_IDS)
    if (before.wire.writer_feature_flags ^ after.wire.writer_feature_flags) & stable:
        return None
    schema, fragments = _schema_change(before, after), _fragment_changes(before, after, mine)
    entries = _entry_change(before, after)
    if schema is None or fragments is None or entries is None:
        return None
    bases = [base for number, base in after.base_paths.items() if number not in before.base_paths]
    return [
        WireOperation("reserve_fragments", _WIRE.ReserveFragments()),  # even if it is empty
        *schema,
        *fragments,
        *entries,
        *([WireOperation("update_bases", _WIRE.UpdateBases(new_bases=bases))] if bases else ()),
    ]


def _fragment_changes(before: Manifest, after: Manifest, mine: Operation) -> list[Operation] | None:
    """Return changes of rows and values; ``None`` if there are fragments of another history."""
    old = dict(zip(before.fragment_ids.tolist(), before.wire.fragments, strict=True))
    new = dict(zip(after.fragment_ids.tolist(), after.wire.fragments, strict=True))
    positions = {number: at for at, number in enumerate(new)}
    if len(old) < before.num_fragments or len(new) < after.num_fragments:
        return None  # two fragments have one id
    removed = old.keys() - new.keys()
    added = [after.fragment_wire(at) for number, at in positions.items() if number not in old]
    reused = any(fragment.id <= before.max_fragment_id for fragment in added)
    if reused or (old and len(removed) == len(old) and mine.wire_name == "overwrite"):
        return None
    known = frozenset(before.schema.field_ids()) & frozenset(after.schema.field_ids())
    deleted, columns, fields = [], [], set[int]()
    for at, (number, packed) in enumerate(old.items()):
        if number in removed or packed == new[number]:
            continue
        was, now = before.fragment_wire(at), after.fragment_wire(positions[number])
        if was.physical_rows != now.physical_rows:
            return None
        moved = known & moved_fields(was, now)
        if list(was.overlays) != list(now.overlays):
            moved |= known
        if moved:
            columns.append(now)
            fields |= moved
        if was.deletion_file != now.deletion_file:
            deleted.append(now)
    renamed = {
        number
        for number in known
        if before.schema.field_by_id(number).name != after.schema.field_by_id(number).name
    }
    if renamed & fields or (renamed and removed):
        return None  # maybe a new column has the id of a dropped one
    found: list[Operation] = []
    if columns:
        message = _WIRE.Update(updated_fragments=columns, fields_modified=sorted(fields))
        message.update_mode = _WIRE.Update.REWRITE_COLUMNS
        found.append(WireOperation("update", message))
    if removed and added:
        group = _WIRE.Rewrite.RewriteGroup(new_fragments=added)
        group.old_fragments.extend(
            before.fragment_wire(at) for at, n in enumerate(old) if n in removed
        )
        found.append(WireOperation("rewrite", _WIRE.Rewrite(groups=[group])))
    if removed or deleted:
        rows = _WIRE.Update(removed_fragment_ids=sorted(removed), updated_fragments=deleted)
        rows.new_fragments.extend(added)
        found.append(WireOperation("update", rows))
    if added:
        found.append(WireOperation("append", _WIRE.Append(fragments=added)))
    return found


def _schema_change(before: Manifest, after: Manifest) -> list[Operation] | None:
    """Return changes of columns and settings; ``None`` if a column has the id of another column."""
    old, new = ({field.id: field for field in one.schema.walk()} for one in (before, after))
    both = old.keys() & new.keys()
    if any(old[number].logical_type != new[number].logical_type for number in both):
        return None
    wires = [[_bare(field) for field in one.schema.to_wire()] for one in (before, after)]
    found: list[Operation] = []
    if wires[0] != wires[1]:
        stays = all(
            field.nullable or (n in old and not old[n].nullable) for n, field in new.items()
        )
        message: Any = _WIRE.Project(schema=after.schema.to_wire(), preserves_nullability=stays)
        if new.keys() - old.keys():
            message = _WIRE.Merge(schema=after.schema.to_wire(), preserves_nullability=stays)
            message.fragments.extend(map(after.fragment_wire, range(after.num_fragments)))
        found.append(WireOperation(str(message.DESCRIPTOR.name).lower(), message))
    settings: dict[str, Any] = {
        "config": _map_change(before.config, after.config),
        "table_metadata": _map_change(before.table_metadata, after.table_metadata),
        "schema_metadata": _map_change(before.schema.metadata, after.schema.metadata),
        "field_metadata": {
            number: changed
            for number in both
            if (changed := _map_change(old[number].metadata, new[number].metadata))
        },
    }
    given = {name: changed for name, changed in settings.items() if changed}
    return [*found, UpdateConfig.of(**given)] if given else found


def _map_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str | None]:
    """Return new values by key, ``None`` for removed keys, except entries of commits."""
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return {key: str(new[key]) if key in new else None for key in changed if not is_mark(key)}


def _bare(field: Any) -> bytes:
    field.metadata.clear()
    return bytes(field.SerializeToString(deterministic=True))


def _entry_change(before: Manifest, after: Manifest) -> list[Operation] | None:
    """Return changes of indices; ``None`` if rows were logged outside the table."""
    old, new = ({entry.uuid.uuid: entry for entry in one.indices} for one in (before, after))
    added, removed = _missing(new, old), _missing(old, new)
    if any(entry.name == _LOG for entry in (*added, *removed)):
        return None
    message = _WIRE.CreateIndex(new_indices=added, removed_indices=removed)
    return [WireOperation("create_index", message)] if added or removed else []


def _missing(some: Mapping[bytes, Any], others: Iterable[bytes]) -> list[Any]:
    return [entry for key, entry in some.items() if key not in others]


# --- Merge several transactions into one commit -----------------------------------------
# Specification: "Further rules" in ``docs/format/conflicts.md``.

_BATCH: Final = UUID("5c1a6e5e-8d3f-4c63-9a83-6a3c8f0a7a51")
"""Namespace of the uuids of batches."""


def merge_transactions(transactions: Sequence[Transaction]) -> Transaction:
    """Merge transactions into one, made for the oldest of their read versions.

    It has all properties; the last transaction wins. Its uuid is derived from their uuids, so a
    second commit recognises it.

    Raises
    ------
    OptionError
        ``transactions`` is empty, or a uuid has half of a surrogate pair.
    UnsupportedFeatureError
        A transaction is not an append.
    """
    if not transactions:
        raise OptionError("No transactions to commit: give at least one")
    fragments: list[Fragment] = []
    properties: dict[str, str] = {}
    for number, transaction in enumerate(transactions):
        operation = read_operation(transaction.operation)
        if not isinstance(operation, Append):
            raise UnsupportedFeatureError(
                f"Only append transactions are supported in batch commits: transaction {number} of "
                f"the batch is a {operation.wire_name}: only appends can be committed in a batch. "
                "Commit it separately."
            )
        fragments += operation.fragments
        if Numbered.of(properties) and Numbered.of(transaction.properties):
            raise UnsupportedFeatureError(
                f"transaction {number} of the batch has values of an identity column, and so has "
                "an earlier one. Commit them separately."
            )
        properties.update(transaction.properties)
    with refuse_half_characters("uuid of a transaction"):
        uuid = uuid5(_BATCH, " ".join(transaction.uuid for transaction in transactions))
    return Transaction(
        read_version=min(transaction.read_version for transaction in transactions),
        operation=Append(tuple(fragments), once=True),
        uuid=str(uuid),
        properties=properties,
    )


_MAX_DOUBLINGS: Final = 6
"""The waiting time grows up to 64 times the duration of the first attempt."""


def commit_transaction(
    store: ObjectStore,
    transaction: Transaction,
    *,
    base: Manifest | None = None,
    once: str | None = None,
    options: CommitOptions | None = None,
) -> Manifest:
    """Commit a transaction, retrying when other writers commit first.

    Parameters
    ----------
    store
        Root of the dataset.
    transaction
        The transaction; its ``read_version`` is 0 if it creates the dataset.
    base
        Manifest of ``read_version`` or a later version, if the caller has it.
    once
        Name of a transaction property that identifies the commit in addition to its uuid. If a
        version since ``read_version`` has the same value, the function returns this version.
    options
        Retries, and options of a new dataset.

    Returns
    -------
    Manifest
        The version with the transaction.

    Raises
    ------
    CommitConflictError
        Another writer made a conflicting change, or replaced the dataset by another dataset.
    CommitContentionError
        Every attempt lost the race against other writers.
    DatasetExistsError
        The transaction creates a dataset that exists already.
    UnsupportedFeatureError
        The dataset uses an unsupported feature; nothing was written.
    StoreError, CommitError
        The store failed before it had the version (``StoreError``), or at an unknown point
        (``CommitError``).

    Notes
    -----
    A commit reads the hint, then writes transaction, manifest and hint. It lists manifests only if
    the read version is older than a minute. Contention adds requests.
    """
    manifest = _Commit(store, transaction, base, once, options or CommitOptions()).run()
    emit_committed(store, transaction, manifest)
    return manifest


@dataclass(slots=True)
class _Commit:
    """State of one commit: ``base`` is the newest version checked for conflicts."""

    store: ObjectStore
    transaction: Transaction
    base: Manifest | None
    once: str | None
    options: CommitOptions

    def run(self) -> Manifest:
        options = self.options
        read_operation(self.transaction.operation)  # fail before anything is written
        started = monotonic()
        done = self._catch_up_from_read_version()
        if done is not None:
            return done
        took = 0.0
        written: str | None = None
        marks = CommitMarks.of(self.transaction.properties)
        for attempt in range(options.max_retries + 1):
            if self.base is not None and marks.are_applied(self.base):
                return self.base
            name = self.transaction.file_name
            if written != name:
                self._write_deletions()
            encoded = self.transaction.encode()
            draft, complete = draft_of(self.store, self.base, self.transaction.operation, options)
            draft.wire.transaction_file = name
            marks.record(draft.wire)
            no_files = draft.wire.writer_feature_flags & int(Feature.NO_TRANSACTION_FILES)
            if written != name and not no_files:
                # Its name has the uuid, so nobody reads it before the manifest refers to it.
                self.store.put_new(transaction_path(name), [encoded])
            written = name
            version = draft.wire.version
            refusal: CommitConflictError | None = None
            try:
                manifest = self._put(draft, encoded, complete=complete)
            except CommitConflictError as error:
                if lock_of(self.store) is None:
                    raise
                manifest, refusal = None, error
            if manifest is not None:
                self._clean_up(manifest)
                return manifest
            took = took or monotonic() - started
            late = options.timeout is not None and monotonic() - started > options.timeout
            if attempt < options.max_retries and not late:
                _wait(attempt, took)
            with unknown_until_read(self.store, version):  # also after the last attempt
                reach = version if refusal is None else version - 1
                done = None if options.detached else self._catch_up(version, reach)
            if done is not None:
                return done
            if late or attempt == options.max_retries:
                break
        within, remedy = "", "more retries"
        if late:
            within, remedy = f" in {options.timeout:g} s", "more time (commit_timeout)"
        if refusal is not None:
            raise CommitContentionError(
                f"after {attempt + 1} attempts{within}, {refusal} Or allow {remedy}."
            ) from refusal
        raise CommitContentionError(
            f"other writers of {self.store.uri} were first {attempt + 1} times{within}; the "
            f"newest version is {self.base.version if self.base else 0}. The changes do not "
            f"conflict: repeat the commit, or allow {remedy}."
        )

    def _put(self, draft: Draft, encoded: bytes, *, complete: bool) -> Manifest | None:
        """Put a version and move the hint to it; ``None`` if another writer was first.

        If it is ``complete``, the row counts of all fragments are known, and it is cached.
        """
        parts = encode_manifest(
            draft.wire,
            transaction=encoded,
            index_section=draft.index_section,
            dictionaries=embed_dictionaries(self.store, draft.wire, draft.kept, self.base),
            checksum=checksum_of_metadata(self.store, draft.wire),
        )
        version = draft.wire.version
        scheme = self.base.scheme if self.base is not None else self.options.scheme
        if not put_manifest(self.store, version, scheme, parts, self.transaction.uuid):
            return None
        manifest = Manifest(
            draft.wire,
            where=self.store.full(manifest_path(version, scheme)),
            scheme=scheme,
            transaction=encoded,
            index_section=draft.index_section,
        )
        if self.base is not None:
            manifest.share_schema(self.base)
        if not self.options.detached:
            write_hint(self.store, version)
            if complete:
                state = self.store.folder_state(VERSIONS)
                seen = None if state is None else SeenDirectory(state)
                MANIFESTS.keep(parts, manifest, seen)
        return manifest

    def _clean_up(self, new: Manifest) -> None:
        """Delete old versions if the table's configuration enables it."""
        if self.base is None or self.options.detached or not new.wire.config:
            return
        if INTERVAL in new.config:
            from glaive.table.cleanup import clean_up_if_due

            clean_up_if_due(self.store, self.base, new)

    def _write_deletions(self) -> None:
        """Write the deletion files that a rebase has changed."""
        operation = read_operation(self.transaction.operation)
        for fragment, file, content in operation.deletions:
            put_deletions(self.store, fragment, file, content)

    # ------------------------------------------------------- other commits

    def _catch_up_from_read_version(self) -> Manifest | None:
        """Advance ``base`` to the newest version; return a version that is this commit."""
        read = self.transaction.read_version
        if read & DETACHED:
            self._begin_detached(read)
            return None
        if not read:
            try:
                newest = latest(self.store)
            except DatasetNotFoundError:
                return None
            self.base = load_manifest(self.store, newest)
            return self._catch_up(1, newest.version)
        if self.base is None or self.base.version < read:
            self.base = self._version_at_least(read)
        elif not has_its_name(self.store, self.base):
            self.base = self._renamed(self.base)
        known = newest_known(self.store, self.base)
        check_not_replaced(self.store, self.base, known)
        reach = max(known, self.base.version)
        return self._catch_up(read + 1, reach) if reach > read else None

    def _begin_detached(self, read: int) -> None:
        """Build on a detached version, which has no successors."""
        if not self.options.detached:
            raise OptionError(
                f"version {read} of {self.store.uri} is detached, so versions based on it must be "
                "detached, too. Commit with detached=True, or make the change for a version of "
                "the history."
            )
        if self.base is None or self.base.version != read:
            self.base = open_version(self.store, read)

    def _version_at_least(self, read: int) -> Manifest:
        try:
            return open_version(self.store, read)
        except VersionNotFoundError:
            newest = latest(self.store)
            if newest.version < read:
                raise replaced(self.store, read) from None
            return load_manifest(self.store, newest)

    def _renamed(self, base: Manifest) -> Manifest:
        """Return a version whose manifest was renamed after it was read, or cleaned up."""
        there = self._version_at_least(base.version)
        if there.version > base.version:
            return base
        if not is_same(there, base):
            raise replaced(self.store, base.version)
        return there

    def _catch_up(self, start: int, reach: int) -> Manifest | None:
        """Check all versions from ``start`` on; return a version that is this commit.

        ``reach`` is a version believed to exist: all versions up to it must be there.

        Raises
        ------
        CommitConflictError
            A version conflicts, or its transaction is unknown and so are its changes.
        """
        mine = self.transaction
        operation = original = read_operation(mine.operation)
        seen: list[Operation] = []
        shared: frozenset[int] = frozenset()
        marks = CommitMarks.of(mine.properties)
        before = self.base
        for manifest in self._versions_from(start, reach):
            if marks.are_applied(manifest):
                return manifest
            theirs = read_transaction(self.store, manifest)
            if theirs is not None and (
                theirs.uuid == mine.uuid
                or (
                    self.once is not None
                    and self.once in mine.properties
                    and theirs.properties.get(self.once) == mine.properties[self.once]
                )
            ):
                return manifest
            if mine.read_version == 0:
                raise DatasetExistsError(
                    f"cannot create {self.store.uri}: version {manifest.version} exists already. "
                    "Append to it or overwrite it, or choose another location."
                )
            if operation.strict_without_retries and not self.options.max_retries:
                strict = Conflict("without retries, every concurrent commit is a conflict")
                name = theirs.operation.wire_name if theirs is not None else None
                raise self._conflict(manifest.version, name, strict, is_last=True)
            gap: ObjectNotFoundError | None = None
            if theirs is None or manifest.version > start:
                gap = ObjectNotFoundError(f"transactions before {manifest.where} were cleaned up")
                changes, is_complete = self._changes_since(before, start, manifest, gap)
                if self._has_appended(changes, manifest, gap, is_complete=is_complete):
                    return manifest
            else:
                changes = [theirs.operation]
            for change in changes:
                conflict = operation.conflict(change)
                if conflict is not None:
                    raise self._conflict(manifest.version, change.wire_name, conflict) from gap
                seen.append(change)
                shared |= operation.shared(change)
            if theirs is not None and theirs.operation.wire_name == "merge":
                operation = after_merge(self.store, operation, before, manifest)
            self.base = before = manifest
            start = manifest.version + 1
        if operation is not original:
            self.transaction = replace(self.transaction, operation=operation)
        if seen and self.base is not None:
            self._rebase(operation, seen, shared, self.base)
        return None

    def _changes_since(
        self, before: Manifest | None, start: int, after: Manifest, gap: ObjectNotFoundError
    ) -> tuple[Sequence[Operation], bool]:
        """Return the changes since the version before ``start``, whose successors were cleaned up.

        Also return whether all fragments that were added since still exist.

        Raises
        ------
        CommitConflictError
            The manifests do not tell.
        """
        if before is None or before.version != start - 1:  # the caller gave a later version
            with suppress(ObjectNotFoundError):
                before = load_numbered(self.store, start - 1, after.scheme)
        if before is not None and before.version == start - 1:
            changes = net_changes(before, after, self.transaction.operation)
            if changes is not None:
                highest = before.max_fragment_id
                added = int((after.fragment_ids > highest).sum())
                return changes, added == after.max_fragment_id - highest
        raise self._unknown_changes(after, "what they changed") from gap

    def _has_appended(
        self,
        changes: Sequence[Operation],
        after: Manifest,
        gap: ObjectNotFoundError,
        *,
        is_complete: bool,
    ) -> bool:
        """Return whether a cleaned-up transaction was this append.

        Raises
        ------
        CommitConflictError
            A clean-up removed the files of the new rows, maybe after they were committed. Or
            fragments were added and removed (``is_complete`` is false): others may commit these
            files.
        """
        operation = self.transaction.operation
        if not isinstance(operation, Append):
            return False
        if not operation.files.isdisjoint(file for one in changes for file in appended_files(one)):
            return True
        if self.once is not None and not is_complete:
            raise self._unknown_changes(after, "whether they had the new rows") from gap
        for base, name in operation.files:
            try:
                _ = base >= 0 or self.store.head(data_file_path(name))
            except ObjectNotFoundError:
                raise self._unknown_changes(after, "whether they had the new rows") from gap
        return False

    def _unknown_changes(self, after: Manifest, what: str) -> CommitConflictError:
        reason = f"transactions before it were cleaned up, so it is unknown {what}"
        return self._conflict(after.version, None, Conflict(reason, retryable=False))

    def _rebase(
        self,
        operation: TableOperation,
        theirs: Sequence[Operation],
        shared: frozenset[int],
        base: Manifest,
    ) -> None:
        deleted = {}
        for fragment_id in sorted(shared):
            try:
                fragment = base.fragment(base.position_of(fragment_id))
            except NotFoundError:
                reason = f"fragment {fragment_id} was removed"
                removed = Conflict(reason, fragments=frozenset({fragment_id}))
                raise self._conflict(base.version, theirs[-1].wire_name, removed) from None
            deleted[fragment_id] = load_deletions(self.store, base, fragment)
        rebased = operation.rebase(theirs, base, deleted)
        if isinstance(rebased, Conflict):
            raise self._conflict(base.version, theirs[-1].wire_name, rebased)
        if rebased is not operation:
            read = base.version if rebased.deletions else self.transaction.read_version
            self.transaction = replace(self.transaction, operation=rebased, read_version=read)

    def _versions_from(self, start: int, reach: int) -> Iterator[Manifest]:
        """Yield versions from ``start`` to the newest; one request each, and one for the end.

        Cleaned-up versions are left out: the next version shows their changes.
        """
        known = self.base
        scheme = known.scheme if known is not None else self.options.scheme
        version = start
        while True:
            if known is not None and version == known.version:
                yield known
            else:
                try:
                    yield load_numbered(self.store, version, scheme)
                except ObjectNotFoundError:
                    # A listing may be stale, so glaive asks it last whether the hint is wrong.
                    last = self.base.version if self.base is not None else None
                    if version > reach:  # the hint may also be late for the version that it names
                        is_sure = self.base is None or not may_have_later(self.base)
                    else:
                        is_sure = was_made(self.store, version, scheme, reach, last)
                    if not is_sure:
                        reach = latest(self.store).version
                    if version > reach:
                        return
                    there = [one for one in list_versions(self.store) if one.version > version]
                    version = there[0].version if there else max(version + 1, reach)
                    scheme = there[0].scheme if there else scheme
                    continue
            version += 1

    def _conflict(
        self, version: int, operation: str | None, conflict: Conflict, *, is_last: bool = False
    ) -> CommitConflictError:
        found, how, failed = "Commit conflict", "is incompatible with", ""
        remedy = "Read the newest version; repeat the change if it still makes sense there."
        if conflict.retryable:
            found, how = "Retryable commit conflict", "was preempted by"
            remedy = "Read the newest version and repeat the change."
        if is_last:
            found, failed = "Commit conflict", "Failed to commit the transaction after 0 retries: "
        names = self.transaction.operation.wire_name, operation
        mine, theirs = (str(name or "unknown").title().replace("_", "") for name in names)
        return CommitConflictError(
            f"{found} for version {version}: {failed}This {mine} transaction {how} concurrent "
            f"transaction {theirs} at version {version} of {self.store.uri}: {conflict.reason}. "
            f"{remedy}",
            retryable=conflict.retryable,
            version=version,
            operation=operation,
            fragments=conflict.fragments,
        )


def _wait(attempt: int, first_attempt: float) -> None:
    """Sleep for a random time that grows with each attempt, in units of the first duration."""
    sleep(fraction() * min(first_attempt, 1.0) * 2 ** min(attempt, _MAX_DOUBLINGS))
