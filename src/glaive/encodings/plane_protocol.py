"""The contracts of 2.3 pages: a page is a structural plane times a value plane.

With **dense** structure levels travel with the values, as in 2.1 and 2.2: a value plane then
opens the page itself, and it is the same page under another message. With **sparse**
structure the page says apart from the values which slots are null and how many items lists
have; a value plane then only has to give the values of some slots.

Specification: ``docs/format/planes.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import Block
from glaive.encodings.levels.sparse import Validity
from glaive.encodings.protocol import Fetch, Layer, PageBytes, PageReader
from glaive.errors import CorruptFileError

__all__ = ["SlotValues", "StructuralPlane", "ValuePlane", "part_of", "wrong_structure"]


class SlotValues(ABC):
    """The values of the inner-most slots of one page with sparse structure.

    ``valid`` tells which of all its slots are valid. Slots that are null hold anything; the
    result is None where there is no value at all.
    """

    @abstractmethod
    def read(self, start: int, stop: int, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Slots ``start`` to ``stop``; at least one."""

    @abstractmethod
    def take(self, slots: NDArray[np.int64], valid: Validity) -> Fetch[Block | None] | Block | None:
        """The slots at these positions, any order, repeats allowed; at least one."""


class ValuePlane(ABC):
    """Where the values of a page are."""

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``ValuePlane`` oneof."""

    @classmethod
    @abstractmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The page, its levels stored with its values."""

    @classmethod
    @abstractmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """The values of so many inner-most slots, and how many of the page's buffers are theirs.

        The buffers are the first of the page; the rest belongs to the structure.
        """


class StructuralPlane(ABC):
    """How the values of a page are nested, and which of them are null."""

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``StructuralPlane`` oneof."""

    @classmethod
    @abstractmethod
    def open_page(
        cls, message: Any, plane: type[ValuePlane], values: Any, page: PageBytes
    ) -> PageReader:
        """The page; ``plane`` understands ``values``. Reads nothing."""


def part_of(page: PageBytes, first: int, count: int, rows: int) -> PageBytes:
    """``count`` buffers of a page as a page of their own.

    Raises
    ------
    CorruptFileError
        The page has fewer buffers.
    """
    stop = first + count
    if len(page.ranges) < stop:
        raise CorruptFileError(
            "buffers of a page",
            expected=f"at least {stop}",
            found=str(len(page.ranges)),
            where=page.where,
        )
    at_hand = None if page.at_hand is None else page.at_hand[first:stop]
    return PageBytes(page.ranges[first:stop], at_hand, rows, page.where)


def wrong_structure(plane: str, expected: str, found: str, page: PageBytes) -> CorruptFileError:
    """The error for a value plane that does not go with the structure of its page."""
    return CorruptFileError(
        f"structure of a page with {plane} values",
        expected=expected,
        found=found,
        where=page.where,
    )
