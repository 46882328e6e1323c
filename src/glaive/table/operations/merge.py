"""Merge: a new schema, with new columns for all fragments.

Specification: "Merge" in ``docs/format``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from glaive.dataclass import dataclass
from glaive.errors import OptionError, SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.fragment import (
    LEGACY,
    TOMBSTONE,
    DataFile,
    Fragment,
    FragmentList,
    file_versions,
    messages_of,
)
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.configuration import set_columns, with_field_metadata
from glaive.table.fragment_ids import (
    check_deletions_stay,
    copy_of,
    drop_dead_files,
    edit_fragments,
    mark_changed,
    mark_file_versions,
    new_fragments,
    put_fragments,
)
from glaive.table.index_coverage import (
    after_remapping,
    encode_indices,
    keep_relevant,
    prune,
    related_fields,
    without_new,
)
from glaive.table.operations.create_index import without_moved
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    changes_columns,
    conflict_on,
    incompatible,
    makes_non_nullable,
    needs_dataset,
    operation,
    overlap,
    removed_fragments,
    replaced_fields,
    sets_metadata,
)
from glaive.types import Int64s

_RETRYABLE = frozenset({"append", "delete", "rewrite", "merge", "update", "data_replacement"})


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(TableOperation):
    """Replace the schema, and all fragments by fragments with files for the new columns.

    Parameters
    ----------
    fragments
        All fragments of the new version.
    schema
        All columns of the new version.
    preserves_nullability
        Whether no nullable column becomes non-nullable.
    """

    wire_name: ClassVar[str] = "merge"
    compatible = frozenset({"create_index", "reserve_fragments", "update_bases"})

    fragments: Sequence[Fragment]
    schema: LanceSchema
    preserves_nullability: bool = False

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts with all changes of rows, fragments or the schema."""
        if name in _RETRYABLE:
            return Conflict(f"{name} changed the fragments to which this adds columns")
        if name == "update_config":
            if sets_metadata(theirs):
                return Conflict("update_config changed metadata of the schema")
            return None
        if name in ("overwrite", "restore", "project"):
            return conflict_on(theirs, "replaced the schema that this changes")
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the schema and the fragments of the operation.

        Raises
        ------
        OptionError
            A fragment of the version is missing or repeated, or has fewer deleted rows.
        """
        base = needs_dataset(base, "add columns")
        if len(self.fragments) < base.num_fragments:
            raise OptionError(
                f"Merge operation reduced fragment count from {base.num_fragments} to "
                f"{len(self.fragments)}: it must list all fragments of the new version. "
                "Otherwise their rows would be lost. Add the missing fragments, changed or not."
            )
        wire = copy_of(base)
        set_columns(wire, self.schema, metadata=bool(self.schema.metadata))
        mark_file_versions(wire, file_versions(self.fragments), base.data_format)
        made = FragmentList.of(self.fragments)
        without_id = self._positions_without_id(base, made.ids)
        known = (packed for at, packed in enumerate(made.packed) if at not in without_id)
        check_deletions_stay(base, FragmentList(known) if without_id else made)
        if without_id:
            put_fragments(wire, made)  # new ids start after all of these
        if without_id or (base.uses(Feature.STABLE_ROW_IDS) and base.num_fragments):
            made = FragmentList(self._completed(base, wire, context.version, without_id))
        put_fragments(wire, made)
        entries = keep_relevant(base.indices, base.schema, self.schema.field_ids())
        if entries:
            entries = without_new(entries, np.setdiff1d(made.ids, base.fragment_ids).tolist())
            entries = without_moved(base, messages_of(made), entries)
        return Draft(wire, encode_indices(entries))

    def _positions_without_id(self, base: Manifest, ids: Int64s) -> frozenset[int]:
        """Return positions of new fragments whose id is unset: a repeated id 0 after the first.

        Raises
        ------
        OptionError
            A fragment of the version is missing or repeated, or follows such a new fragment.
        """
        known = base.fragment_ids
        zeros = np.flatnonzero(ids == 0)[int((known == 0).sum()) :]
        listed = np.delete(ids, zeros)
        missing = np.setdiff1d(known, listed)
        if len(missing):
            raise OptionError(
                f"Merge operation is missing original fragments: {missing[:10].tolist()}: it lists "
                "all fragments of the new version, so that the rows of these would be lost. Add "
                "them, changed or not."
            )
        after = ids[zeros[0] :][np.isin(ids[zeros[0] :], known)] if len(zeros) else ids[:0]
        after = after[after != 0]
        if len(after):
            raise OptionError(
                f"Merge operation lists existing fragment {after[0]} after a new fragment (id 0): "
                "list new fragments after all others."
            )
        # Old releases sometimes assigned an id twice.
        numbers, counts = np.unique(listed, return_counts=True)
        ordered = np.sort(known)
        before = np.searchsorted(ordered, numbers, "right") - np.searchsorted(ordered, numbers)
        twice = numbers[counts > np.maximum(before, 1)].tolist()
        if len(zeros) and not twice:  # fragment 0 again, or after a new fragment in its place
            before_at = np.flatnonzero(known == 0).tolist()
            own = {file.path for at in before_at for file in base.fragment(at).files}
            given = (self.fragments[at].files for at in zeros.tolist())
            twice = [0 for files in given if not own.isdisjoint(file.path for file in files)]
        if twice:
            raise OptionError(
                f"Merge operation contains duplicate fragment id {twice[0]}: list each fragment "
                "once. New fragments have the id 0 and come after all others, or have a reserved "
                "id."
            )
        return frozenset(zeros.tolist())

    def _completed(
        self,
        base: Manifest,
        wire: table_pb2.ManifestOutline,
        version: int,
        without_id: frozenset[int],
    ) -> Iterator[bytes]:
        """Yield the fragments: new ones with ids, others with the version of their last change."""
        positions = {number: at for at, number in enumerate(base.fragment_ids.tolist())}
        for at, message in enumerate(messages_of(self.fragments)):
            position = None if at in without_id else positions.get(message.id)
            if position is None:
                yield from new_fragments(
                    wire, FragmentList([message.SerializeToString()]), version
                ).packed
                continue
            if Fragment.from_wire(message).files != base.fragment(position).files:
                mark_changed(message, version)
            yield message.SerializeToString()


# --- Project: a new schema for the same files; drops or renames columns, or changes nullability
# Specification: "Project" in ``docs/format``.

_WITH_VALUES = frozenset({"append", "data_replacement", "update"})


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Project(TableOperation):
    """Replace the schema.

    Parameters
    ----------
    schema
        The remaining columns, with their ids.
    preserves_nullability
        Whether no nullable column becomes non-nullable.
    """

    wire_name: ClassVar[str] = "project"
    compatible = INCREMENTAL - _WITH_VALUES - {"merge", "project"}

    schema: LanceSchema
    preserves_nullability: bool = False

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts with other schema changes, and with new values that may be null."""
        if name in _WITH_VALUES:
            if self.preserves_nullability:
                return None
            return Conflict(f"{name} may have added nulls to a column that becomes non-nullable")
        if name in ("merge", "project"):
            return Conflict(f"{name} changed the schema as well")
        return incompatible(theirs, replaced="the schema that this changes")

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Update the metadata of fields in the schema to later changes of other writers."""
        schema = self.schema
        for their in theirs:
            if their.wire_name == "update_config":
                schema = with_field_metadata(schema, their.to_wire())
        return self if schema == self.schema else replace(self, schema=schema)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the fragments of ``base``; omit files whose columns are all removed.

        Raises
        ------
        SchemaError
            A column has the id of a column of another type, whose values it would show.
        """
        base = needs_dataset(base, "change columns")
        self._check_types(base)
        wire = copy_of(base)
        set_columns(wire, self.schema, metadata=False)
        live = frozenset(self.schema.field_ids())
        entries = keep_relevant(base.indices, base.schema, live)
        kept = base.num_fragments
        if not frozenset(base.schema.field_ids()) <= live:
            kept = 0
            for at in range(base.num_fragments):
                fragment = base.fragment_wire(at)
                before = len(fragment.files)
                drop_dead_files(fragment, live)
                if len(fragment.files) < before:
                    wire.fragments[at] = fragment.SerializeToString()
        return Draft(wire, encode_indices(entries), kept)

    def _check_types(self, base: Manifest) -> None:
        before = {field.id: field for field in base.schema.walk() if field.id >= 0}
        for field in self.schema.walk():
            known = before.get(field.id, field)
            if known.logical_type != field.logical_type:
                raise SchemaError(
                    f"Project: {field.name!r} of type {field.logical_type} has the id {field.id}, "
                    f"which is {known.name!r} of type {known.logical_type}: values are found by "
                    "ids, and a pyarrow.Schema gets ids from 0 on. Give columns of the dataset, as "
                    "in dataset.lance_schema.project(names)"
                )


# --- Data replacement: new files for the same columns of single fragments ---------------
# Specification: "Data replacement" in ``docs/format``.


@operation
@dataclass(frozen=True, slots=True)
class DataReplacement(TableOperation):
    """Replace the files of some columns of fragments: pairs of fragment id and new file."""

    wire_name: ClassVar[str] = "data_replacement"
    compatible = frozenset({"append", "reserve_fragments", "update_bases", "update_config"})

    replacements: tuple[tuple[int, DataFile], ...]

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.DataReplacement) -> Self:
        """Read the wire message."""
        return cls(
            tuple(
                (replacement.fragment_id, DataFile.from_wire(replacement.new_file))
                for replacement in message.replacements
            )
        )

    def encode(self) -> list[bytes]:
        """Make the wire message."""
        kind = table_pb2.Transaction.DataReplacement
        pairs = [(fragment_id, file.to_wire()) for fragment_id, file in self.replacements]
        groups = [kind.Replacement(fragment_id=number, new_file=file) for number, file in pairs]
        return [kind(replacements=groups).SerializeToString()]

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts on the same columns of the same fragments, and on removed fragments."""
        if name in ("delete", "update", "data_replacement", "rewrite"):
            return self._same_fragments(theirs)
        if name in ("create_index", "project"):
            return self._same_columns(theirs)
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        return incompatible(theirs, replaced="the dataset whose columns this replaces")

    def _fields(self) -> frozenset[int]:
        return frozenset(field for _, file in self.replacements for field in file.fields)

    def _same_fragments(self, theirs: Operation) -> Conflict | None:
        name = theirs.wire_name
        mine = frozenset(fragment_id for fragment_id, _ in self.replacements)
        removed = mine & removed_fragments(theirs)
        if name == "delete":
            if not removed:
                return None
            reason = f"delete removed fragment {min(removed)}"
            return Conflict(reason, retryable=False, fragments=removed)
        in_place = name == "data_replacement" or changes_columns(theirs)
        if in_place and not removed and not self._fields() & replaced_fields(theirs):
            return None
        return overlap(mine, theirs, f"{name} changed")

    def _same_columns(self, theirs: Operation) -> Conflict | None:
        message = theirs.to_wire()
        if theirs.wire_name == "create_index":
            indexed = {field for index in message.new_indices for field in index.fields}
            both = self._fields() & indexed
            return Conflict("an index was built from the old values") if both else None
        if makes_non_nullable(theirs):
            return Conflict("project may have made a column non-nullable")
        if self._fields() - {field.id for field in message.schema} - {TOMBSTONE}:
            return conflict_on(theirs, "dropped a column that this replaces")
        return None

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the fragments of ``base`` with the new files.

        Raises
        ------
        OptionError
            The replacements have different columns, or a fragment has several.
        UnsupportedFeatureError
            Files of format 0.1 and of 2.x would be mixed.
        """
        base = needs_dataset(base, "replace columns")
        _check(self.replacements)
        wire = copy_of(base)
        replaced = []
        for fragment_id, file in self.replacements:
            fragment = base.fragment_wire(base.position_of(fragment_id))
            _replace(fragment, file)
            mark_changed(fragment, context.version)
            replaced.append(fragment.SerializeToString())
        mark_file_versions(wire, {file.version for _, file in self.replacements}, base.data_format)
        kept = edit_fragments(base, wire, replaced=FragmentList(replaced))
        numbers = [number for number, _ in self.replacements]
        fields = related_fields(base.schema, self._fields())
        entries = prune(after_remapping(base.indices), numbers, fields)
        return Draft(wire, encode_indices(entries), kept)


def _check(replacements: tuple[tuple[int, DataFile], ...]) -> None:
    ids = [fragment_id for fragment_id, _ in replacements]
    if len(set(ids)) < len(ids):
        twice = next(fragment_id for fragment_id, times in Counter(ids).items() if times > 1)
        raise OptionError(f"fragment {twice} has two new files; give one file per fragment")
    kinds = {file.fields for _, file in replacements}
    if len(kinds) > 1:
        names = " and ".join(map(str, sorted(kinds)[:2]))
        raise OptionError(
            f"the files have fields {names}: all files of a replacement must have the same fields"
        )


def _replace(fragment: table_pb2.DataFragment, new: DataFile) -> None:
    for existing in fragment.files:
        old = DataFile.from_wire(existing)
        if old.fields == new.fields and old.version == new.version:
            existing.CopyFrom(new.to_wire())
            return
    fields = frozenset(new.fields)
    for existing in fragment.files:
        if fields.isdisjoint(existing.fields):
            continue
        if DataFile.from_wire(existing).version == LEGACY:
            raise OptionError(
                f"fragment {fragment.id} has fields {list(existing.fields)} in a file of format "
                "0.1: replace all of them in one operation, or rewrite the dataset in a newer "
                "format"
            )
        existing.fields[:] = [TOMBSTONE if field in fields else field for field in existing.fields]
    drop_dead_files(fragment)
    fragment.files.append(new.to_wire())
