"""Create index: add and remove index entries.

The index files are written before. This operation makes them part of a version.

Specification: "Create index" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import CommitConflictError, IndexExistsError, ObjectNotFoundError
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest, check_entries
from glaive.format.paths import DETACHED
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.io.store import ObjectStore
from glaive.table.fragment_ids import copy_of, moved_fields, refuse_shared_ids
from glaive.table.index_coverage import (
    REUSE_INDEX,
    after_remapping,
    can_remap,
    covered_fragments,
    encode_indices,
    kind_name,
    parts_of,
    prune,
    related_fields,
    rewrite_conflict,
    with_covered,
    without_new,
    without_relocation,
)
from glaive.table.load import load_again, load_numbered, read_transaction
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    changed_fragments,
    incompatible,
    needs_dataset,
    operation,
    read_fields,
    removed_fragments,
    replaced_fields,
)


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIndex(TableOperation):
    """Add and remove entries of the index section.

    Parameters
    ----------
    new
        Entries to add, in wire format.
    removed
        Entries to remove, identified by uuid.
    parts
        Fields of the new entries, with their members and items. Not part of the message.
    """

    wire_name: ClassVar[str] = "create_index"
    compatible = INCREMENTAL - {"create_index", "data_replacement", "merge", "project", "rewrite"}
    renamed = MappingProxyType({"new": "new_indices", "removed": "removed_indices"})

    new: tuple[table_pb2.IndexMetadata, ...] = ()
    removed: tuple[table_pb2.IndexMetadata, ...] = ()
    parts: frozenset[int] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, schema: LanceSchema, new: Iterable[Any], removed: Iterable[Any] = ()) -> Self:
        """Make the operation for entries built from a version with this schema."""
        added = tuple(new)
        parts = parts_of(schema, (number for index in added for number in index.fields))
        return cls(new=added, removed=tuple(removed), parts=frozenset(parts))

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.CreateIndex) -> Self:
        """Read the wire message; :func:`check_entries` lists the errors."""
        for entries in (message.new_indices, message.removed_indices):
            check_entries(entries, "the transaction")
        return read_fields(cls, message)

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts on the same index, on changed or removed fragments, or on fields."""
        message = theirs.to_wire()
        if name in ("merge", "project"):
            lost = (self._fields() | self.parts) - {column.id for column in message.schema}
            return Conflict(f"{name} removed field {min(lost)} of an index") if lost else None
        if name == "create_index":
            mine = {index.name for index in (*self.new, *self.removed)}
            other = {index.name for index in (*message.new_indices, *message.removed_indices)}
            both = ", ".join(sorted(mine & other))
            return Conflict(f"both change index {both}") if both else None
        if name == "rewrite":
            return None  # the table of the newest version decides: see ``rebase``
        if name == "data_replacement":
            if self._fields() & replaced_fields(theirs):
                return Conflict("data_replacement changed values of an indexed column")
            return None
        return incompatible(theirs, replaced="the dataset the index was built from")

    def _fields(self) -> frozenset[int]:
        return frozenset(number for index in self.new for number in index.fields)

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Remove fragments with concurrently replaced values from the coverage of new indices.

        Also remove deleted fragments: a new fragment may have got the id of one. Also remove an
        index that was rebuilt meanwhile for moved rows, if its old version is removed.
        """
        new, removed = list(self.new), self.removed
        moved: set[int] = set()
        for their in theirs:
            name, changed = their.wire_name, changed_fragments(their)
            under = rewrite_conflict(self.new, changed) if name == "rewrite" else None
            again = moved & changed and (name == "rewrite" or replaced_fields(their))
            if again or (moved and name == "merge"):
                return Conflict(f"{name} changed fragments into which indexed rows were relocated")
            if under is not None:
                groups = their.to_wire().groups
                old = [frozenset(one.id for one in group.old_fragments) for group in groups]
                table = next((one for one in base.indices if one.name == REUSE_INDEX), None)
                if not groups or not can_remap(new, old, table):
                    return under
                moved.update(one.id for group in groups for one in group.new_fragments)
            if replaced_fields(their):
                fields = related_fields(base.schema, replaced_fields(their))
                new = prune(new, changed_fragments(their), fields)
            if under is None:
                new = without_new(new, removed_fragments(their))
            if their.wire_name == "rewrite" and removed:
                rebuilt = their.to_wire().rewritten_indices
                ids = {index.old_id.uuid: index.new_id.uuid for index in rebuilt}
                removed = tuple(_renamed(entry, ids) for entry in removed)
        same = new == list(self.new) and removed == self.removed
        return self if same else replace(self, new=tuple(new), removed=removed)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the kept entries of ``base``, then the new entries.

        Raises
        ------
        UnsupportedFeatureError
            Two fragments have the same id, so an index would confuse their rows.
        IndexExistsError
            Another segment of this name indexes another column, or has another kind.
        """
        base = needs_dataset(base, "add an index")
        if self.new:
            refuse_shared_ids(base)
        replaced = {index.uuid.uuid for index in (*self.removed, *self.new)}
        kept = [index for index in base.indices if index.uuid.uuid not in replaced]
        _refuse_others(self.new, kept)
        if any(index.name == REUSE_INDEX for index in self.new):
            entries = [*kept, *self.new]
        else:
            entries = [*without_relocation(kept, base), *self.new]
        return Draft(copy_of(base), encode_indices(entries), base.num_fragments)


def _refuse_others(
    new: Sequence[table_pb2.IndexMetadata], kept: Sequence[table_pb2.IndexMetadata]
) -> None:
    """Raise an ``IndexExistsError`` if segments of one name would belong to two indices.

    Readers take the column and the kind of one segment for all segments.
    """
    names = {entry.name for entry in new}
    first: dict[str, tuple[list[int], str]] = {}
    for entry in (*kept, *new):
        if entry.name not in names:
            continue
        fields, kind = list(entry.fields), kind_name(entry.index_details.type_url)
        known_fields, known_kind = first.setdefault(entry.name, (fields, kind))
        if fields != known_fields:
            raise IndexExistsError(
                f"Index name {entry.name!r} already exists with different fields: segments over "
                "another column would be taken for its own; please specify a different name"
            )
        if kind != known_kind and kind and known_kind:  # old writers omit it
            raise IndexExistsError(
                f"Index name {entry.name!r} already exists, of another kind: its segments are of "
                f"{known_kind}, those to be added of {kind}. Choose another name, or drop it first"
            )


def _renamed(entry: table_pb2.IndexMetadata, ids: Mapping[bytes, bytes]) -> table_pb2.IndexMetadata:
    """Return an entry with its new uuid, if it got one."""
    if entry.uuid.uuid not in ids:
        return entry
    changed = table_pb2.IndexMetadata()
    changed.CopyFrom(entry)
    changed.uuid.uuid = ids[entry.uuid.uuid]
    return changed


# --- Indices of columns whose values a merge has put into other files -------------------
# A merge lists the files of all fragments, but not the columns with changed values.
#
# Specification: "Building the manifest" in ``docs/format/building-the-manifest.md``.

Entry = table_pb2.IndexMetadata


def after_merge(
    store: ObjectStore, operation: TableOperation, known: Manifest | None, merged: Manifest
) -> TableOperation:
    """Return an operation as it is after a merge; new indices were built from older files.

    ``known`` is the version before, if the caller has it. Otherwise it takes a request. If it was
    cleaned up, new indices cover nothing.
    """
    if not isinstance(operation, CreateIndex) or not operation.new:
        return operation
    number = merged.version - 1
    try:
        is_before = known is not None and known.version == number
        before = known if is_before else load_numbered(store, number, merged.scheme)
    except ObjectNotFoundError:
        before = None
    if before is None:
        new = [with_covered(entry, ()) for entry in operation.new]
    else:
        after = map(merged.fragment_wire, range(merged.num_fragments))
        new = without_moved(before, after, list(operation.new))
    return operation if new == list(operation.new) else replace(operation, new=tuple(new))


def without_moved(
    before: Manifest, after: Iterable[table_pb2.DataFragment], entries: list[Entry]
) -> list[Entry]:
    """Remove from entries the fragments that have the values in other files than before."""
    known = frozenset(before.schema.field_ids())
    positions = {number: at for at, number in enumerate(before.fragment_ids.tolist())}
    changed: dict[frozenset[int], list[int]] = {}
    for fragment in after:
        if fragment.id in positions:
            old = before.fragment_wire(positions[fragment.id])
            moved = known & moved_fields(old, fragment)
            if moved:
                changed.setdefault(moved, []).append(fragment.id)
    if changed:
        entries = after_remapping(entries)
    for moved, fragments in changed.items():
        entries = prune(entries, fragments, related_fields(before.schema, moved))
    return entries


# --- Segments built from an earlier version than the version to which they are committed
# A commit checks the changes since the version it is made for. Workers build segments earlier, from
# versions that they open themselves, and the committer may have opened a later version. This
# section checks the changes in between by the same rules.


def rebase_segments(
    store: ObjectStore, manifest: Manifest, entries: Sequence[Entry]
) -> list[Entry]:
    """Return segments for a version: remove fragments whose values were replaced.

    Raises
    ------
    CommitConflictError
        Fragments of a segment were rewritten after it was built, or its column was removed. Or
        the changes are unknown, for example after a detached version.

    Notes
    -----
    Makes one request per version in between, unless the version has the segments already. A version
    that changed fields takes one more if a segment's field has child fields.
    """
    of_version = {entry.uuid.uuid: entry for entry in manifest.indices}
    built = [
        manifest.version
        if not entry.dataset_version or _is_covered_by(entry, of_version.get(entry.uuid.uuid))
        else entry.dataset_version
        for entry in entries
    ]
    outside = next((one for one in built if one & DETACHED and one != manifest.version), None)
    if outside is not None:
        reason = f"they were built from version {outside}, which is detached"
        raise _outdated(store, manifest.version, Conflict(reason, retryable=False))
    brought = list(entries)
    for number in range(min(built, default=manifest.version) + 1, manifest.version + 1):
        older = [at for at, version in enumerate(built) if version < number]
        one = CreateIndex(new=tuple(brought[at] for at in older))
        for at, entry in zip(older, _after(store, manifest, number, one).new, strict=True):
            brought[at] = entry
    return brought


def _is_covered_by(entry: Entry, other: Entry | None) -> bool:
    """Return whether the version has the segment, with the same or more fragments."""
    if other is None or other.fields != entry.fields:
        return False
    mine, known = covered_fragments(entry), covered_fragments(other)
    return known is None or (mine is not None and mine <= known)


def _after(store: ObjectStore, newest: Manifest, number: int, segments: CreateIndex) -> CreateIndex:
    """Return the segments after a version."""
    try:
        made = newest
        if number != newest.version:
            made = load_again(store, number, newest.scheme)
        transaction = read_transaction(store, made)
    except ObjectNotFoundError:
        transaction = None
    if transaction is None:
        raise _outdated(store, number, Conflict("what it changed is unknown", retryable=False))
    theirs = transaction.operation
    if theirs.wire_name == "create_index":  # segments of one index may be committed in turn
        return segments
    fields = {field for entry in segments.new for field in entry.fields}
    if theirs.wire_name in ("merge", "project") and len(parts_of(made.schema, fields)) > len(
        fields
    ):
        try:
            before = load_again(store, number - 1, newest.scheme)
        except ObjectNotFoundError:
            unknown = Conflict("what it removed is unknown", retryable=False)
            raise _outdated(store, number, unknown) from None
        segments = CreateIndex.of(before.schema, segments.new)
    conflict = segments.conflict(theirs)
    if conflict is not None:
        raise _outdated(store, number, conflict, theirs.wire_name)
    rebased = segments.rebase([theirs], made, {})
    if isinstance(rebased, Conflict):
        raise _outdated(store, number, rebased, theirs.wire_name)
    return rebased


def _outdated(
    store: ObjectStore, number: int, conflict: Conflict, operation: str | None = None
) -> CommitConflictError:
    return CommitConflictError(
        f"segments that were built before version {number} of {store.uri} cannot be committed "
        f"after it: {conflict.reason}. Build them again from the newest version.",
        retryable=conflict.retryable,
        version=number,
        operation=operation,
        fragments=conflict.fragments,
    )
