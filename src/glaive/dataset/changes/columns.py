"""Columns of a change feed in each of the versions that its rows come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from glaive.dataset.changes.commits import Commit
from glaive.errors import SchemaError
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.named_tuple import NamedTuple
from glaive.scan.system_columns import SYSTEM_COLUMNS

__all__ = ["CHANGE_COLUMNS", "ColumnHistory", "Source", "fitted", "sources"]

_ADDED: list[Any] = [
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False),
]
CHANGE_COLUMNS = pa.schema(_ADDED)
"""What a feed tells of each row, after the columns of the dataset."""


_SAME_COLUMNS: Final = frozenset(
    {
        "append",
        "create_index",
        "data_replacement",
        "delete",
        "reserve_fragments",
        "rewrite",
        "update",
        "update_bases",
        "update_config",
    }
)
"""Operations after which a dataset has the same columns."""


class ColumnHistory:
    """Which columns the field ids of each version mean: those of dropped columns are given again.

    Versions are added in their order; what is kept of most of them is what is kept of the one
    before.
    """

    def __init__(self) -> None:
        self._since: dict[int, dict[int, int]] = {}
        """By version and id, the version in which the column came."""
        self._unknown = 0

    def add(self, commit: Commit) -> None:
        """Add the version that a commit made."""
        before, after, number = commit.before, commit.after, commit.version
        known = {} if before is None else self._columns_of(before)
        if commit.operation == "restore" and commit.transaction is not None:
            restored = commit.transaction.operation.to_wire().version
            if restored in self._since:
                self._since[number] = self._since[restored]
                return
        if before is not None and commit.operation in _SAME_COLUMNS:
            self._since[number] = known
            return
        if before is None or commit.replaced_everything:
            known = {}
        elif commit.operation in (None, "overwrite", "restore") and _renamed(before, after):
            # Columns were renamed, or others got their ids, in versions that are not seen here.
            self._unknown = number
        self._since[number] = {id_: known.get(id_, number) for id_ in after.schema.field_ids()}

    def _columns_of(self, version: Manifest) -> dict[int, int]:
        number = version.version
        if number not in self._since:
            self._since[number] = dict.fromkeys(version.schema.field_ids(), number)
        return self._since[number]

    def replaced(self, before: Manifest | None, after: Manifest) -> frozenset[int]:
        """Ids that are known to mean other columns in one of two versions than in the other."""
        others = None if before is None else self.others(before.version, after.version)
        return frozenset() if others is None else others

    def others(self, version: int, reference: int) -> frozenset[int] | None:
        """Ids that mean other columns in one version than in another one; None if unknown."""
        if min(version, reference) < self._unknown <= max(version, reference):
            return None
        there = self._since[reference]
        mine = self._since[version]
        return frozenset(id_ for id_, since in mine.items() if there.get(id_, since) != since)


def _renamed(before: Manifest, after: Manifest) -> bool:
    """Whether a field id has another name."""
    names = {field.id: field.name for field in before.schema.walk()}
    return any(names.get(field.id, field.name) != field.name for field in after.schema.walk())


class Source(NamedTuple):
    """A column of a version.

    Parameters
    ----------
    name
        Its name there; ``None``: the version does not have it.
    members
        The column with the names that its members have in the feed, where these are others.
    """

    name: str | None
    members: Field | None


def sources(
    names: Sequence[str],
    wanted: LanceSchema,
    stored: LanceSchema,
    *,
    others: frozenset[int] | None,
    where: str,
) -> list[Source]:
    """Where the values of each column are in a version.

    Parameters
    ----------
    names
        Top-level columns of ``wanted``, and system columns.
    wanted, stored
        Schema that the feed has, and schema of the version.
    others
        Field ids that mean other columns in the version than in the feed; ``None`` if that is not
        known.

    Raises
    ------
    SchemaError
        A column may have been renamed, which only field ids would tell.
    """
    selected = [field for field in wanted.fields if others is not None or field.name in names]
    matched = _Names(others, where).of(selected, stored.fields)
    known = {field.name: (of, field) for of, field in zip(stored.fields, matched, strict=True)}
    found: list[Source] = []
    for name in names:
        if name in SYSTEM_COLUMNS:
            found.append(Source(name, None))
        elif name in known:
            of, field = known[name]
            same = of.children == field.children
            found.append(Source(of.name, None if same else field))
        else:
            found.append(Source(None, None))
    return found


class _Names(NamedTuple):
    """What fields of a version are called in the feed."""

    others: frozenset[int] | None
    where: str

    def of(self, wanted: Sequence[Field], stored: Sequence[Field]) -> list[Field]:
        """Fields of the version with their names in the feed, or ones that no field there has.

        Fields are the same by their ids. One that has no such field, as one of another type, is
        that of its name, if this is none of the others.
        """
        by_id = {field.id: field for field in wanted if field.id >= 0}
        by_name = {field.name: field for field in wanted}
        same: dict[int, Field] = {}
        if self.others is None:
            self._check(by_id, stored)
        else:
            known = by_id.keys() - self.others
            same = {field.id: by_id[field.id] for field in stored if field.id in known}
        taken = {field.name for field in same.values()}
        made: list[Field] = []
        for field in stored:
            there = same.get(field.id)
            if there is None and field.name not in taken:
                there = by_name.get(field.name)
            if there is not None:
                children = tuple(self.of(there.children, field.children))
                made.append(_called(field, there.name, children))
            elif field.name in by_name:
                made.append(_called(field, f"{field.name}:{field.id}", field.children))
            else:
                made.append(field)
        return made

    def _check(self, wanted: Mapping[int, Field], stored: Sequence[Field]) -> None:
        """See that no column was renamed."""
        names = {field.name for field in stored}
        for field in stored:
            there = wanted.get(field.id)
            if there is not None and there.name not in names:
                raise SchemaError(
                    f"column {there.name!r} does not exist in {self.where}, where {field.name!r} "
                    "may be the same column under another name. Start at a later version, or leave "
                    "the column out"
                )


def _called(field: Field, name: str, children: tuple[Field, ...]) -> Field:
    if field.name == name and field.children == children:
        return field
    return replace(field, name=name, children=children)


def fitted(
    array: pa.ChunkedArray, column: pa.Field, members: Field | None, where: str
) -> pa.ChunkedArray:
    """Values of an earlier type of a column in the type that the feed has.

    Parameters
    ----------
    members
        See :class:`Source`.

    Raises
    ------
    SchemaError
        A value cannot be converted.
    """
    if members is None and array.type == column.type:
        return array
    try:
        if members is not None:
            kind = _with_names(array.type, members)
            chunks: Any = [chunk.view(kind) for chunk in array.chunks]
            array = pa.chunked_array(chunks, kind)
        return array.cast(column.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"column {column.name!r} is {array.type} in {where} and {column.type} in the feed: "
            f"{error}. Leave the column out, or read changes since its type was changed"
        ) from error


def _with_names(kind: Any, named: Field) -> Any:
    """A type with the names that its members have in a field."""
    types, children = pa.types, named.children
    if not children:
        return kind
    if types.is_struct(kind) and kind.num_fields == len(children):
        return pa.struct(
            [
                member.with_name(child.name).with_type(_with_names(member.type, child))
                for member, child in zip(kind, children, strict=True)
            ]
        )
    if types.is_map(kind):
        (entries,) = children
        item = kind.item_field
        item = item.with_type(_with_names(item.type, entries.children[1]))
        return pa.map_(kind.key_field, item, kind.keys_sorted)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_with_names(kind.value_type, children[0]))
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    return kind
