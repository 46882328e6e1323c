"""What a merge does with rows that match and with those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glaive.dataset.writing.options import WriteOptions
from glaive.errors import OptionError
from glaive.format.fields import LanceSchema

__all__ = ["MergeClauses", "WriteMode", "primary_key"]

WriteMode = Literal["auto", "rewrite_rows", "rewrite_columns"]

_PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_POSITION = "lance-schema:unenforced-primary-key:position"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClauses:
    """What becomes of rows that match and of those that do not.

    Parameters
    ----------
    on
        Key columns.
    update, update_condition
        Matched rows get the values of the source, if the condition over ``source`` and
        ``target`` holds.
    delete, fail
        Matched rows are deleted; or there must be none.
    insert
        Rows of the source that match nothing are added.
    delete_by_source, by_source_condition
        Rows of the dataset that match nothing are deleted, if the condition holds.
    mode
        Whether updated rows move, or columns are replaced in place.
    data_storage_version
        Format of the files with the rows; that of the dataset when omitted.
    target_bases
        Base paths to which new files go in turn; None is all of them.
    primary_base
        Whether the dataset's own place is one of all.
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

    @property
    def does_nothing(self) -> bool:
        """Whether no clause was given."""
        return not (self.update or self.delete or self.fail or self.insert or self.delete_by_source)

    def options(self, bases: Sequence[str]) -> WriteOptions:
        """How new files are written, into a dataset with these base paths.

        Raises
        ------
        OptionError
            They are to go to base paths, of which there are none.
        """
        targets, everywhere = self.target_bases or (), self.target_bases is None
        if everywhere and not self.primary_base:
            if not bases:
                raise OptionError("target_all_bases: the dataset has no base paths. Add some first")
            targets, everywhere = tuple(bases), False
        return WriteOptions(
            mode="append",
            data_storage_version=self.data_storage_version,
            target_bases=targets,
            target_all_bases=everywhere,
        )

    def describe(self) -> str:
        """The clauses in one line."""
        matched = "Keep"
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
    """Columns that the dataset declares as its primary key, in their order there."""
    declared = [field for field in schema.fields if _flag(field.metadata.get(_PRIMARY_KEY))]
    declared.sort(key=lambda one: int(one.metadata.get(_POSITION, b"0")))
    return tuple(one.name for one in declared)


def _flag(value: bytes | None) -> bool:
    return value is not None and value.lower() in (b"true", b"1", b"yes")
