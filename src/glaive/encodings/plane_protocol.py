"""The contracts of 2.3 pages: a page is a structural plane times a value plane.

With **dense** structure levels are stored with the values, as in 2.1 and 2.2: a value plane
then opens the page itself, the same page under another message. With **sparse** structure
validity and list sizes are stored apart from the values; a value plane then only returns the
values of some slots.

Specification: ``docs/format/planes.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from glaive.arrow.blocks import Block
from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.sparse import Validity
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.errors import CorruptFileError
from glaive.types import Int64s

__all__ = ["SlotValues", "StructuralPlane", "ValuePlane", "part_of", "wrong_structure"]


class SlotValues(ABC):
    """The values of the inner-most slots of one page with sparse structure.

    ``valid`` is the validity of all its slots. Slots that are null hold any value; the result
    is None where there is no value at all.
    """

    @abstractmethod
    def read(self, start: int, stop: int, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Slots ``start`` to ``stop``; at least one."""

    @abstractmethod
    def take(self, slots: Int64s, valid: Validity) -> Fetch[Block | None] | Block | None:
        """The slots at these positions, any order, repeats allowed; at least one."""


class ValuePlane(ABC):
    """How the values of a page are stored."""

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``ValuePlane`` oneof."""

    @classmethod
    @abstractmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The page, whose levels are stored with its values."""

    @classmethod
    @abstractmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """The values of ``slots`` inner-most slots, and the number of their buffers.

        These are the first buffers of the page; the rest belongs to the structure.
        """


class StructuralPlane(ABC):
    """How the nesting and the nulls of a page are stored."""

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``StructuralPlane`` oneof."""

    @classmethod
    @abstractmethod
    def open_page(
        cls, message: Any, plane: type[ValuePlane], values: Any, page: PageBytes
    ) -> PageReader:
        """The page; ``plane`` parses ``values``. Reads nothing."""


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
    return page.part(first, stop, rows)


def wrong_structure(plane: str, expected: str, found: str, page: PageBytes) -> CorruptFileError:
    """The error for a value plane that does not fit the structure of its page."""
    return CorruptFileError(
        f"structure of a page with {plane} values", expected=expected, found=found, where=page.where
    )
