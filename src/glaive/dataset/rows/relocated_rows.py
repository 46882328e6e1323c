"""Rewrite rows into new fragments; they keep stable row ids."""

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

__all__ = ["write_relocated"]


def write_relocated(
    dataset: OpenedVersion,
    rows: Iterable[Rows],
    ids: Sequence[Any],
    options: WriteOptions | None = None,
) -> list[Fragment]:
    """Write rows into new fragments that no version refers to yet.

    Parameters
    ----------
    rows
        The rows, with at least the non-nullable columns of the dataset.
    ids
        Row ids, one array per batch; filled while ``rows`` are produced. Used with stable row
        ids; the commit assigns new ids to rows beyond them.
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
    if not manifest.uses(Feature.STABLE_ROW_IDS):
        return written
    kept = np.concatenate(ids) if ids else np.empty(0, np.uint64)
    moved, start = [], 0
    for fragment in written:
        part = kept[start : start + fragment.physical_rows]
        start += fragment.physical_rows
        moved.append(replace(fragment, row_ids=encode_row_ids(part)) if len(part) else fragment)
    return moved
