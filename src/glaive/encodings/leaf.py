"""Decoded rows of a page: values and levels, before they become an array."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block
from glaive.dataclass import dataclass
from glaive.types import UInt16s

__all__ = ["Layer", "Leaf", "Slots"]


class Layer(IntEnum):
    """One layer between a leaf and the row; the wire's ``RepDefLayer``."""

    ALL_VALID_ITEM = 1
    ALL_VALID_LIST = 2
    NULLABLE_ITEM = 3
    NULLABLE_LIST = 4
    EMPTYABLE_LIST = 5
    NULL_AND_EMPTY_LIST = 6

    @property
    def is_list(self) -> bool:
        """Whether the layer is a list layer."""
        return self not in (Layer.ALL_VALID_ITEM, Layer.NULLABLE_ITEM)

    @property
    def def_levels(self) -> int:
        """How many definition levels the layer adds."""
        return (0, 0, 0, 1, 1, 1, 2)[self]


@dataclass(slots=True)
class Slots:
    """One layer of a leaf, as in Arrow.

    ``validity`` is a bitmap, None without nulls; ``offsets`` are ``count + 1`` numbers of 32 or
    64 bits from 0 for a list layer, else None.
    """

    count: int
    validity: pa.Buffer | None
    null_count: int
    offsets: NDArray[np.signedinteger] | None = None


@dataclass(slots=True)
class Leaf:
    """Decoded rows of a page.

    ``values`` has one slot per *visible* entry. ``rep`` and ``definition`` are ``uint16``
    arrays of equal length, one per entry, or None when the page has none. ``validity`` is
    an Arrow bitmap that replaces ``definition`` when ``layers`` is just
    ``(NULLABLE_ITEM,)``; then ``definition`` is None and ``null_count`` is exact.
    ``values`` is None when no entry has a value (all null, or no visible entry).
    ``layers`` is inner-most first.

    A page without levels has a ``shape`` instead, layer by layer, inner-most first; then
    ``rep`` and ``definition`` are None, ``layers`` only distinguish lists from items, and
    ``values`` has one slot per item of the inner-most layer.
    """

    values: Block | None
    rows: int
    entries: int
    layers: tuple[Layer, ...]
    rep: UInt16s | None = None
    definition: UInt16s | None = None
    validity: pa.Buffer | None = None
    null_count: int = 0
    shape: Sequence[Slots] | None = None
