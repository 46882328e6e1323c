"""Execute a write plan: write rows to data files, uncommitted."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.nulls import check_members
from glaive.dataset.writing.plan import WritePlan
from glaive.dataset.writing.rolling import RollingWriter
from glaive.dataset.writing.source import Rows
from glaive.format.fragment import Fragment

__all__ = ["write_fragments"]


def write_fragments(
    plan: WritePlan, rows: Iterable[Rows], *, keep_dictionaries: bool = False
) -> list[Fragment]:
    """Write rows into as many files as needed; one fragment each, without an id yet.

    Parameters
    ----------
    plan
        Columns, locations, limits and encodings.
    rows
        Tables or batches whose columns match those of the plan by name, in any order.
    keep_dictionaries
        Whether strings may be dictionary-encoded, as from
        :meth:`glaive.scan.query.Query.tables`.

    Raises
    ------
    SchemaError
        A batch has other columns, or values that cannot be cast. Only this function compares the
        columns of each batch with the plan; the plan checks the schema of the input as a whole.

    Notes
    -----
    On failure the files written so far are removed, if possible; no version refers to them.
    """
    arrow = plan.schema.to_arrow()
    roll = RollingWriter(plan)
    try:
        for piece in rows:
            fitted = piece if keep_dictionaries and _fits(piece, arrow) else conform(piece, arrow)
            check_members(fitted, plan.schema)
            roll.write(fitted)
        roll.close()
    except BaseException:
        roll.discard()
        raise
    return roll.fragments


def _fits(piece: Rows, schema: pa.Schema) -> bool:
    from glaive.file.v2.dictionary_passthrough import fits_with_dictionaries

    return fits_with_dictionaries(piece, schema)
