"""Append: add fragments.

Specification: "Append" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.fragment import Fragment, file_versions, ids_of
from glaive.format.manifest import Manifest
from glaive.format.transaction import Operation
from glaive.table.fragment_ids import copy_of, edit_fragments, mark_file_versions, new_fragments
from glaive.table.index_coverage import encode_indices, without_new
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    incompatible,
    makes_non_nullable,
    needs_dataset,
    operation,
)

_COMPATIBLE = INCREMENTAL - {"merge", "project"}


@operation
@dataclass(frozen=True, slots=True)
class Append(TableOperation):
    """Add fragments; the commit assigns ids to those with id 0.

    Parameters
    ----------
    fragments
        The new fragments.
    dropped
        Fields of which they have values, and that others dropped since; not part of the message.
    once
        Whether the rows must not be there already, as for a batch that has some transactions of
        another one: they would be doubled. Not part of the message.
    """

    wire_name: ClassVar[str] = "append"

    fragments: Sequence[Fragment]
    dropped: frozenset[int] = field(default=frozenset(), compare=False)
    once: bool = field(default=False, compare=False)

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with new non-nullable columns, and with replacing the whole dataset."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in ("merge", "project"):
            if makes_non_nullable(theirs):
                return Conflict(f"{name} may have made a column non-nullable")
            return None
        return incompatible(theirs, replaced="the dataset the new rows were written for")

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Conflicts with columns that others put in the place of those that the new rows have.

        A cast gives a column another id: the rows would have nulls in it. A new column may have the
        id of a dropped one: the rows would have the values of that one.

        Conflicts also with an append of the same files, if these are added once.
        """
        appended = (
            {file for their in theirs for file in appended_files(their)} if self.once else None
        )
        if appended and (twice := appended & self.files):
            reason = f"append added the rows of {min(twice)[1]} already, which would be there twice"
            return Conflict(reason, retryable=False)
        schemas = [one for one in theirs if one.wire_name in ("merge", "project")]
        if not schemas:
            return self
        files = (file for fragment in self.fragments for file in fragment.files)
        written = {number for file in files for number in file.fields if number >= 0}
        dropped = self.dropped
        for their in schemas:
            ids = {column.id for column in their.to_wire().schema}
            if again := dropped & ids:
                reason = f"gave the id {min(again)} of a dropped column to another one"
                return Conflict(f"{their.wire_name} {reason}, and the new rows have the first")
            lost = written - dropped - ids
            if their.wire_name == "merge" and lost:
                return Conflict(
                    f"merge replaced field {min(lost)}, of which the new rows have values"
                )
            dropped |= lost
        return self if dropped == self.dropped else replace(self, dropped=dropped)

    def _refuse_twice(self) -> None:
        seen = set[tuple[int, str]]()
        for fragment in self.fragments:
            files = set(_files_of(fragment))
            if twice := files & seen:
                raise OptionError(
                    f"the append adds the rows of {min(twice)[1]} twice. Give each fragment, and "
                    "each transaction of a batch, once."
                )
            seen |= files

    @property
    def files(self) -> frozenset[tuple[int, str]]:
        """Base path, -1 for none, and name of each data file."""
        return frozenset(file for fragment in self.fragments for file in _files_of(fragment))

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The fragments of ``base``, then the new ones.

        Raises
        ------
        OptionError
            A file is there twice, though the rows must not be.
        """
        base = needs_dataset(base, "append rows")
        if self.once:
            self._refuse_twice()
        wire = copy_of(base)
        mark_file_versions(wire, file_versions(self.fragments), base.data_format)
        added = new_fragments(wire, self.fragments, context.version)
        kept = edit_fragments(base, wire, added=added)
        section = base.index_section
        if section is not None and any(given := ids_of(self.fragments)):
            section = encode_indices(without_new(base.indices, given))
        return Draft(wire, section, kept)


def _files_of(fragment: Fragment) -> Iterator[tuple[int, str]]:
    """Base path, -1 for none, and name of each file of a fragment."""
    for file in fragment.files:
        yield -1 if file.base_id is None else file.base_id, file.path


def appended_files(theirs: Operation) -> Iterator[tuple[int, str]]:
    """Base path, -1 for none, and name of each file that an append added."""
    if theirs.wire_name == "append":
        for fragment in theirs.to_wire().fragments:
            for file in fragment.files:
                yield file.base_id if file.HasField("base_id") else -1, file.path
