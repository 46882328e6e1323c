"""Data replacement: new files for the same columns of single fragments.

Specification: "Data replacement" in ``docs/format``.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.fragment import LEGACY, TOMBSTONE, DataFile, FragmentList
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.fragment_ids import (
    copy_of,
    drop_dead_files,
    edit_fragments,
    mark_changed,
    mark_file_versions,
)
from glaive.table.index_coverage import encode_indices, followed, prune, related_fields
from glaive.table.protocol import (
    BuildContext,
    Conflict,
    Draft,
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
)

_COMPATIBLE = frozenset({"append", "reserve_fragments", "update_bases", "update_config"})


@operation
@dataclass(frozen=True, slots=True)
class DataReplacement(TableOperation):
    """Replace the files of some columns of fragments: pairs of fragment id and new file."""

    wire_name: ClassVar[str] = "data_replacement"

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
        """The wire message."""
        kind = table_pb2.Transaction.DataReplacement
        pairs = [(fragment_id, file.to_wire()) for fragment_id, file in self.replacements]
        groups = [kind.Replacement(fragment_id=number, new_file=file) for number, file in pairs]
        return [kind(replacements=groups).SerializeToString()]

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts on the same columns of the same fragments, and on removed fragments."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
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
        """The fragments of ``base`` with the new files.

        Raises
        ------
        OptionError
            The replacements are not for the same columns, or a fragment has several.
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
        entries = prune(followed(base.indices), numbers, fields)
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
