"""The clauses of a merge: what it does with matched and unmatched rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from glaive.dataclass import dataclass
from glaive.dataset.writing.options import WriteOptions
from glaive.errors import OptionError
from glaive.format import declared_keys
from glaive.format.fields import LanceSchema

__all__ = ["MergeClauses", "WriteMode", "primary_key"]

WriteMode = Literal["auto", "rewrite_rows", "rewrite_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClauses:
    """What a merge does with matched and unmatched rows.

    Parameters
    ----------
    on
        Key columns.
    update, update_condition
        Update matched rows from the source, if the condition over ``source`` and ``target``
        holds.
    delete, fail
        Delete matched rows; or fail if there are any.
    insert
        Insert unmatched rows of the source.
    delete_by_source, by_source_condition
        Delete unmatched rows of the dataset for which the condition holds.
    mode
        Whether updated rows are rewritten as new rows, or columns are replaced in place.
    data_storage_version
        Format of the new files; default: that of the dataset.
    target_bases
        Base paths for new files, used in turn; None for all of them.
    primary_base
        Whether "all" includes the dataset's own root.
    use_index
        Whether scalar indices may be searched for keys.
    """

    on: tuple[str, ...]
    update: bool = False
    update_condition: str | None = None
    delete: bool = False
    fail: bool = False
    insert: bool = False
    delete_by_source: bool = False
    by_source_condition: str | None = None
    mode: WriteMode = "auto"
    data_storage_version: str | None = None
    target_bases: tuple[str, ...] | None = ()
    primary_base: bool = True
    use_index: bool = True

    @property
    def does_nothing(self) -> bool:
        """Whether there is no clause."""
        return not (self.update or self.delete or self.fail or self.insert or self.delete_by_source)

    def options(self, bases: Sequence[str]) -> WriteOptions:
        """Write options for a dataset with these base paths.

        Raises
        ------
        OptionError
            The files must go to base paths, but there are none.
        """
        targets, everywhere = self.target_bases or (), self.target_bases is None
        if everywhere and not self.primary_base:
            if not bases:
                raise OptionError("target_all_bases: the dataset has no base paths. Add one first")
            targets, everywhere = tuple(bases), False
        return WriteOptions(
            mode="append",
            data_storage_version=self.data_storage_version,
            target_bases=targets,
            target_all_bases=everywhere,
        )

    def describe(self) -> str:
        """The clauses in one line."""
        matched = "DoNothing"
        if self.update:
            matched = f"UpdateIf({self.update_condition})" if self.update_condition else "UpdateAll"
        elif self.delete or self.fail:
            matched = "Delete" if self.delete else "Fail"
        by_source = "Keep"
        if self.delete_by_source:
            condition = self.by_source_condition
            by_source = "Delete" if condition is None else f"DeleteIf({condition})"
        return (
            f"on=[{', '.join(self.on)}], when_matched={matched}, "
            f"when_not_matched={'InsertAll' if self.insert else 'DoNothing'}, "
            f"when_not_matched_by_source={by_source}"
        )


def primary_key(schema: LanceSchema) -> tuple[str, ...]:
    """The primary key columns that the schema declares, in key order."""
    return tuple(field.name for field in declared_keys.primary_key(schema.fields))
