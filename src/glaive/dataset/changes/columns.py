"""Columns of a change feed in each of the versions that its rows come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from glaive.dataset.changes.commits import Commit
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.scan.system_columns import SYSTEM_COLUMNS

__all__ = ["CHANGE_COLUMNS", "ColumnHistory", "fitted", "sources"]

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


def sources(
    names: Sequence[str],
    wanted: LanceSchema,
    stored: LanceSchema,
    *,
    others: frozenset[int] | None,
    where: str,
) -> list[str | None]:
    """The name that each column had in a version; ``None`` if it did not have the column.

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
    found: list[str | None] = []
    for name in names:
        if name in SYSTEM_COLUMNS or name in stored.names:
            found.append(name)
            continue
        (field,) = wanted.find(name)
        renamed = [column.name for column in stored.fields if column.id == field.id]
        if not renamed or (others is not None and field.id in others):
            found.append(None)
        elif others is not None:
            found.append(renamed[0])
        else:
            raise SchemaError(
                f"column {name!r} does not exist in {where}, where {renamed[0]!r} may be the same "
                "column under another name. Start at a later version, or leave the column out"
            )
    return found


def fitted(array: pa.ChunkedArray, column: pa.Field, where: str) -> pa.ChunkedArray:
    """Values of an earlier type of a column in the type that the feed has.

    Raises
    ------
    SchemaError
        A value cannot be converted.
    """
    if array.type == column.type:
        return array
    try:
        return array.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {column.name!r} is {array.type} in {where} and {column.type} in the feed: "
            f"{error}. Leave the column out, or read changes since its type was changed"
        ) from error
