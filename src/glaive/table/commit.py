"""Commit a transaction as the next version of a dataset, concurrently with other writers.

The loop, as in the specification's "Commit":

1. read the transactions of all versions since the read version and check for conflicts;
2. write the transaction file and build the manifest on top of the newest version;
3. put the manifest if absent; if another writer was first, wait a little and go to 1.

Commits are idempotent: a version with the same transaction uuid, the same value of the property
named by ``once``, this named job, or this transaction of an application or a later one, is returned
as this commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from glaive.clock import monotonic, sleep
from glaive.dataclass import dataclass
from glaive.entropy import fraction
from glaive.errors import (
    CommitConflictError,
    CommitContentionError,
    DatasetExistsError,
    DatasetNotFoundError,
    NotFoundError,
    ObjectNotFoundError,
    OptionError,
    VersionNotFoundError,
)
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import (
    DETACHED,
    VERSIONS,
    data_file_path,
    manifest_path,
    transaction_path,
)
from glaive.format.transaction import Operation, Transaction
from glaive.io.store import ObjectStore
from glaive.table.checksums import checksum_of_metadata
from glaive.table.deletions import load_deletions, put_deletions
from glaive.table.dictionaries import embed_dictionaries
from glaive.table.draft import draft_of
from glaive.table.load import load_manifest, load_numbered, open_version, read_transaction
from glaive.table.manifest_cache import MANIFESTS, SeenDirectory
from glaive.table.moved_columns import after_merge
from glaive.table.named_jobs import CommitMarks
from glaive.table.operations.append import Append, appended_files
from glaive.table.protocol import CommitOptions, Conflict, Draft, TableOperation
from glaive.table.put_manifest import emit_committed, put_manifest, unknown_until_read
from glaive.table.registry import read_operation
from glaive.table.replaced import check_not_replaced, is_same, replaced
from glaive.table.root import lock_of
from glaive.table.version_hint import write_hint
from glaive.table.versions import (
    has_its_name,
    latest,
    list_versions,
    may_have_later,
    newest_known,
    was_made,
)

__all__ = ["commit_transaction"]

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
        Name of a transaction property that identifies the commit in addition to its uuid: if a
        version since ``read_version`` has the same value, it is returned.
    options
        Retries, and options of a new dataset.

    Returns
    -------
    Manifest
        The version with the transaction.

    Raises
    ------
    CommitConflictError
        Another writer made a conflicting change, or another dataset in the place of this one.
    CommitContentionError
        Every attempt lost the race against other writers.
    DatasetExistsError
        The transaction creates a dataset that exists already.
    UnsupportedFeatureError
        The dataset uses a feature that this writer does not support; nothing was written.
    StoreError, CommitError
        The store failed; no version was created, or it is not known whether one was.

    Notes
    -----
    Without contention: read the hint; write transaction, manifest and hint, and list nothing,
    unless the version that was read is older than a minute.
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
            f"newest version is {self.base.version if self.base else 0}. There is no conflict: "
            f"repeat the commit, or allow {remedy}."
        )

    def _put(self, draft: Draft, encoded: bytes, *, complete: bool) -> Manifest | None:
        """Put a version and move the hint to it; None if another writer was first.

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
        from glaive.table.cleanup.auto_cleanup import INTERVAL, clean_after

        if INTERVAL in new.config:
            clean_after(self.store, self.base, new)

    def _write_deletions(self) -> None:
        """Write the deletion files that a rebase has changed."""
        operation = read_operation(self.transaction.operation)
        for fragment, file, content in operation.deletions:
            put_deletions(self.store, fragment, file, content)

    # ------------------------------------------------------- other commits

    def _catch_up_from_read_version(self) -> Manifest | None:
        """Advance ``base`` to the newest version; returns a version that is this commit."""
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
        """A version whose manifest was renamed since it was read, or cleaned up."""
        there = self._version_at_least(base.version)
        if there.version > base.version:
            return base
        if not is_same(there, base):
            raise replaced(self.store, base.version)
        return there

    def _catch_up(self, start: int, reach: int) -> Manifest | None:
        """Check all versions from ``start`` on; returns a version that is this commit.

        ``reach`` is a version believed to exist: no version up to it may be missing.

        Raises
        ------
        CommitConflictError
            One of them conflicts, or its transaction is unknown and so are its changes.
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
        """What became of the version before ``start``, whose successors were cleaned up.

        And whether all fragments that were added since are still there.

        Raises
        ------
        CommitConflictError
            The manifests do not tell.
        """
        from glaive.table.net_changes import net_changes

        if before is None or before.version != start - 1:  # the caller gave a later one
            with suppress(ObjectNotFoundError):
                before = load_numbered(self.store, start - 1, after.scheme)
        if before is not None and before.version == start - 1:
            changes = net_changes(before, after, self.transaction.operation)
            if changes is not None:
                highest = before.max_fragment_id
                added = int((after.fragment_ids > highest).sum())
                return changes, added == after.max_fragment_id - highest
        raise self._untold(after, "what they changed") from gap

    def _has_appended(
        self,
        changes: Sequence[Operation],
        after: Manifest,
        gap: ObjectNotFoundError,
        *,
        is_complete: bool,
    ) -> bool:
        """Whether one of the transactions that were cleaned up was this append.

        Raises
        ------
        CommitConflictError
            A clean-up removed the files of the new rows, maybe after they were committed. Or
            fragments were added and removed (not ``is_complete``): others may commit these files.
        """
        operation = self.transaction.operation
        if not isinstance(operation, Append):
            return False
        if not operation.files.isdisjoint(file for one in changes for file in appended_files(one)):
            return True
        if self.once is not None and not is_complete:
            raise self._untold(after, "whether they had the new rows") from gap
        for base, name in operation.files:
            try:
                _ = base >= 0 or self.store.head(data_file_path(name))
            except ObjectNotFoundError:
                raise self._untold(after, "whether they had the new rows") from gap
        return False

    def _untold(self, after: Manifest, what: str) -> CommitConflictError:
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
        """Versions from ``start`` to the newest; one request each, and one to detect the end.

        Versions that were cleaned up are left out: the next one shows what became of them.
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
                    # A listing may be stale, so it is asked last whether the hint is wrong.
                    last = self.base.version if self.base is not None else None
                    if version > reach:  # the hint may be late for the version that it names, too
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
        remedy = "Repeating it only helps if the change still makes sense for the newest version."
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
