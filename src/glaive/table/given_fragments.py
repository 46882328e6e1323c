"""What a commit checks of the fragments that it is given.

Specification: "Building the manifest" in ``docs/format``.
"""

from __future__ import annotations

from glaive.errors import CorruptFileError, OptionError
from glaive.format.limits import MAX_FRAGMENT_ID
from glaive.format.pb import table_pb2

__all__ = ["check_deletions_stay", "check_fragment_id", "give_id"]


def check_fragment_id(number: int) -> None:
    """Check the id of a new fragment.

    Raises
    ------
    CorruptFileError
        It is too large: a sign of damage, as ids are assigned consecutively.
    """
    if number > MAX_FRAGMENT_ID:
        raise CorruptFileError(
            "id of a new fragment",
            expected="below 2^32",
            found=f"{number}, as the previous version has id {number - 1}",
            where="the new version",
        )


def give_id(fragment: table_pb2.DataFragment, number: int) -> None:
    """Give a new fragment its id.

    Raises
    ------
    OptionError
        It had another one, and has a deletion file, whose name has the id: under the new one
        nobody would find it.
    """
    if fragment.id != number and fragment.HasField("deletion_file"):
        raise OptionError(
            f"the transaction adds a fragment with the id {fragment.id} and deleted rows, and as a "
            f"new fragment it would get the id {number}: the file of its deletions would not be "
            "found. Add fragments as they were written; change those of the dataset by a delete, "
            "an update or a merge of all fragments, or write their rows again."
        )
    fragment.id = number


def check_deletions_stay(fragment: table_pb2.DataFragment, before: int) -> None:
    """Check that a changed fragment has the deleted rows that it had ``before``.

    Nothing is known where the numbers are not stated, as by old writers.

    Raises
    ------
    OptionError
        It has fewer of them: the others would come back.
    """
    stated = fragment.deletion_file.num_deleted_rows
    if before > stated and not (fragment.HasField("deletion_file") and not stated):
        raise OptionError(
            f"the transaction changes fragment {fragment.id} to one with {stated} deleted rows, "
            f"and {before} are deleted in the newest version: they would come back. Give the "
            "version that the fragment was read from as the read version, or change it as it is."
        )
