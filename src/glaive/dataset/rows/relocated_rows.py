"""Rewrite rows into new fragments; they keep stable row ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.dataset.writing.source import Rows
from glaive.format.fragment import Fragment
from glaive.format.rowids import decode_row_ids, encode_row_ids

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["RelocatedIds", "with_ids", "write_relocated"]


class RelocatedIds:
    """Row ids in the order in which rows are written; encoded, which takes few bytes per row.

    Parameters
    ----------
    kept
        Whether the rows keep their ids; otherwise none are added.
    """

    __slots__ = ("_ends", "_parts", "kept")

    def __init__(self, *, kept: bool) -> None:
        self.kept = kept
        self._parts: list[bytes] = []
        self._ends = [0]

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Append the ids of some rows."""
        if self.kept and len(ids):
            self._parts.append(encode_row_ids(ids))
            self._ends.append(self._ends[-1] + len(ids))

    def encoded(self, start: int, stop: int) -> bytes | None:
        """The sequence of the ids numbered ``start`` to ``stop``, as far as there are any."""
        stop = min(stop, self._ends[-1])
        if start >= stop:
            return None
        first = int(np.searchsorted(self._ends, start, side="right")) - 1
        last = int(np.searchsorted(self._ends, stop, side="left"))
        pieces = [
            decode_row_ids(self._parts[at], self._ends[at + 1] - self._ends[at], where="new rows")
            for at in range(first, last)
        ]
        begin = start - self._ends[first]
        return encode_row_ids(np.concatenate(pieces)[begin : begin + stop - start])


def write_relocated(
    dataset: OpenedVersion,
    rows: Iterable[Rows],
    ids: RelocatedIds,
    options: WriteOptions | None = None,
) -> list[Fragment]:
    """Write rows into new fragments that no version refers to yet.

    Parameters
    ----------
    rows
        The rows, with at least the non-nullable columns of the dataset.
    ids
        Ids of the first rows; filled while ``rows`` are produced. The commit assigns new ids to
        the others.
    options
        Format and locations of the files; default: those of the dataset.

    Raises
    ------
    OptionError
        There is no such format or base path.
    """
    manifest = dataset.manifest
    options = options or WriteOptions(mode="append")
    plan = plan_write(dataset.store, manifest.schema, options, manifest)
    written = [fragment for fragment in write_fragments(plan, rows) if fragment.physical_rows]
    return with_ids(written, ids)


def with_ids(written: Sequence[Fragment], ids: RelocatedIds) -> list[Fragment]:
    """New fragments with the ids that their first rows keep."""
    if not ids.kept:
        return list(written)
    moved, start = [], 0
    for fragment in written:
        kept = ids.encoded(start, start + fragment.physical_rows)
        start += fragment.physical_rows
        moved.append(fragment if kept is None else replace(fragment, row_ids=kept))
    return moved
