"""Finalise a manifest: set version number, time, writer and feature flags."""

from __future__ import annotations

from typing import Final

from glaive.clock import now_ns
from glaive.format.flags import Feature, recompute
from glaive.format.fragment_columns import FragmentColumns
from glaive.format.manifest import WRITER
from glaive.table.index_coverage import has_covering_fields
from glaive.table.protocol import Draft

__all__ = ["finish"]

_DELETED: Final = int(Feature.DELETION_FILES)
_SPILLED: Final = int(Feature.SPILLED_ROW_LINEAGE)
"""Flags that depend on the fragments."""


def finish(draft: Draft, version: int, *, carried: int = 0) -> bool:
    """Finalise a draft, except for the name of its transaction.

    ``carried`` are the flags, of both words, of the version whose leading fragments are kept: those
    fragments are not read again.

    Returns
    -------
    bool
        Whether the row counts of the other fragments are known.
    """
    made = draft.wire
    made.version = version
    seconds, nanos = divmod(now_ns(), 1_000_000_000)
    made.timestamp.seconds, made.timestamp.nanos = seconds, nanos
    made.ClearField("tag")
    made.ClearField("version_aux_data")
    made.writer_version.Clear()
    made.writer_version.library, made.writer_version.version = WRITER
    if draft.kept == len(made.fragments):
        deleted = bool(carried & _DELETED)
        spilled = bool(carried & _SPILLED)
        known = True
    else:
        columns = FragmentColumns(made, "the version being made")
        columns = columns.since(draft.kept) if not carried & (_DELETED | _SPILLED) else columns
        deleted, spilled = columns.any_deleted, columns.any_lineage_in_files
        known = columns.rows_known
    recompute(
        made,
        deletion_files=deleted,
        spilled_row_lineage=spilled,
        covering_indices=has_covering_fields(draft.index_section),
    )
    return known
