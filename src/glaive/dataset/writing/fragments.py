"""Carry out a plan: rows into data files, which are referenced by nothing until a commit."""

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
        Columns, places, limits and encodings.
    rows
        Pieces whose columns fit those of the plan by name, in any order.
    keep_dictionaries
        Whether text may come with a dictionary, as :meth:`glaive.scan.query.Query.tables` gives it.

    Raises
    ------
    SchemaError
        A piece has other columns, or values that do not go with a type. Here, and only here,
        the columns of a piece are compared with the plan: what callers say of their rows as a
        whole was looked at when the plan was made, and files only make sure of what they get.

    Notes
    -----
    When anything fails, the files written so far are removed again as far as possible; no
    version refers to them in any case.
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
