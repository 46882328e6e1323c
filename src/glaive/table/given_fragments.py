"""What a commit checks of the fragments that it is given.

Specification: "Building the manifest" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glaive.errors import CorruptFileError, OptionError
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.limits import MAX_FRAGMENT_ID
from glaive.format.manifest import Manifest
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


def check_deletions_stay(base: Manifest, fragments: Sequence[Fragment]) -> None:
    """Check that fragments have as many deleted rows as those of ``base`` that they change.

    Nothing is known where the numbers are not stated, as by old writers, nor where two fragments
    have an id.

    Raises
    ------
    OptionError
        One has fewer: the others would come back.
    """
    if not fragments or not base.columns.any_deleted:
        return
    given, ids = FragmentList.of(fragments), base.fragment_ids
    numbers, stated = given.ids, given.deleted_rows
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, numbers, sorter=order)
    is_one = np.searchsorted(ids, numbers, "right", sorter=order) - at == 1
    before = np.zeros(len(numbers), np.int64)
    before[is_one] = base.deleted_rows[order[at[is_one]]]
    fewer = np.flatnonzero((stated >= 0) & (stated < before))
    if len(fewer):
        first = fewer[0]
        raise OptionError(
            f"the transaction has fragment {numbers[first]} with {stated[first]} deleted rows, and "
            f"{before[first]} are deleted in the newest version: they would come back. Give the "
            "version that the fragment was read from as the read version, or change it as it is."
        )
