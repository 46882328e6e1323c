"""Write rows that move to new fragments, with the row ids they keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.dataset.writing.source import Rows
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.rowids import encode_row_ids

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["write_moved"]


def write_moved(
    dataset: OpenedVersion,
    rows: Iterable[Rows],
    ids: Sequence[Any],
    options: WriteOptions | None = None,
) -> list[Fragment]:
    """Write rows into new fragments that no version refers to yet.

    Parameters
    ----------
    rows
        With all columns of the dataset that are not to be null.
    ids
        Filled while ``rows`` are produced: row ids, one array per batch. With stable row ids
        the fragments carry them; rows beyond them get new ones from the commit.
    options
        Format and places of the files; those of the dataset when omitted.

    Raises
    ------
    OptionError
        The dataset has no such format or place.
    """
    manifest = dataset.manifest
    options = options or WriteOptions(mode="append")
    plan = plan_write(dataset.store, manifest.schema, options, manifest)
    written = [fragment for fragment in write_fragments(plan, rows) if fragment.physical_rows]
    if not manifest.uses(Feature.STABLE_ROW_IDS):
        return written
    kept = np.concatenate(ids) if ids else np.empty(0, np.uint64)
    moved, start = [], 0
    for one in written:
        part = kept[start : start + one.physical_rows]
        start += one.physical_rows
        moved.append(replace(one, row_ids=encode_row_ids(part)) if len(part) else one)
    return moved
