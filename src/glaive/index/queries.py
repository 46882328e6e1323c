"""Queries that scalar indices answer: conditions on values, and tests that need more than that.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from glaive.arrow.conditions import Condition
from glaive.dataclass import dataclass

__all__ = ["HasLabels", "HasTokens", "IndexQuery", "MatchesPattern", "MeetsBox"]


@dataclass(frozen=True, slots=True, eq=False)
class HasLabels:
    """Whether a list has one of some values, or ``every`` one: ``array_has_any``.

    Parameters
    ----------
    values
        In the type of the list's values; without nulls.
    """

    values: pa.Array
    every: bool = False


@dataclass(frozen=True, slots=True)
class HasTokens:
    """Whether a text has all tokens of another one: ``contains_tokens``."""

    text: str


@dataclass(frozen=True, slots=True)
class MatchesPattern:
    """Whether a regular expression matches somewhere in a text: ``regexp_like``."""

    pattern: str


@dataclass(frozen=True, slots=True)
class MeetsBox:
    """Whether the bounding box of a geometry meets a box: what ``st_intersects`` needs.

    Parameters
    ----------
    bounds
        Lowest x and y, highest x and y; points on them are inside.
    """

    bounds: tuple[float, float, float, float]


IndexQuery: TypeAlias = Condition | HasLabels | HasTokens | MatchesPattern | MeetsBox
