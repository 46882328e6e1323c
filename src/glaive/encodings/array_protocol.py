"""The contract of array encodings, of which pages of format 2.0 are trees.

An array encoding turns buffers of a page into Arrow arrays of a known type and back. It is
a frozen dataclass: its fields are its configuration, read from and written to the wire
message; encodings nest. Like page layouts it never reads: it answers with a ``Fetch`` or,
when the file is memory-mapped, with the array itself.

Specification: "Arrays" in ``docs/format/arrays.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import pyarrow as pa

from glaive.arrow.chunked import concat_arrays, take_values
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.compression import check_decoded
from glaive.encodings.protocol import Fetch, Latest, PageBytes, RowRuns, and_then, join
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.types import ByteRange, Int64s, Where

if TYPE_CHECKING:
    from glaive.encodings.predicate import PagePredicate, RowBits
    from glaive.format.pb import encodings20_pb2 as pb


T = TypeVar("T")


class BufferRange(NamedTuple):
    """``size`` bytes of buffer number ``buffer`` of a page, from byte ``start`` on."""

    buffer: int
    start: int
    size: int


@dataclass(slots=True)
class Source:
    """The buffers of one page, and the decoded parts that later calls use again."""

    page: PageBytes
    latest: Latest = field(default_factory=Latest)
    """What its column keeps of one page only."""

    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def where(self) -> Where:
        """The page, for messages."""
        return self.page.where

    @property
    def at_hand(self) -> bool:
        """Whether the buffers are in memory already."""
        return self.page.at_hand is not None

    def check_implied(self, size: int) -> None:
        """Check memory for which the page has no bytes against the limit of a page.

        Raises
        ------
        UnsupportedFeatureError
            It is more, and more than ``USUAL_RATIO`` times the bytes of the page.
        """
        check_decoded(size, sum(part.size for part in self.page.ranges), self.where)

    def fetch(
        self, wanted: Sequence[BufferRange], then: Callable[[list[pa.Buffer]], Fetch[T] | T]
    ) -> Fetch[T] | T:
        """Call ``then`` with the wanted bytes.

        Raises
        ------
        CorruptFileError
            A range does not lie within its buffer.
        """
        ranges = self.page.ranges
        for number, start, size in wanted:
            if start < 0 or size < 0 or start + size > ranges[number].size:
                raise CorruptFileError(
                    f"page buffer {number}",
                    expected=f"at least {start + size} bytes",
                    found=f"{ranges[number].size}",
                    where=self.where,
                )
        buffers = None if self.page.unread else self.page.at_hand
        if buffers is not None:
            return then([buffers[number].slice(start, size) for number, start, size in wanted])
        in_file = [ByteRange(ranges[n].offset + start, size) for n, start, size in wanted]
        return Fetch(in_file, then)


def buffer_number(message: Any, page: PageBytes) -> int:
    """Return the number of the page buffer that a wire ``Buffer`` names."""
    if message.buffer_type != 0:
        raise UnsupportedFeatureError(
            f"values outside of their page (in {page.where}); this reader knows page buffers "
            "only. The file was probably written by a newer Lance."
        )
    number: int = message.buffer_index
    if number >= len(page.ranges):
        raise CorruptFileError(
            "number of a page buffer",
            expected=f"below {len(page.ranges)} (the buffers of the page)",
            found=f"{number}",
            where=page.where,
        )
    return number


def check_size(number: int, size: int, page: PageBytes) -> None:
    """Refuse a page whose buffer ``number`` has less than ``size`` bytes."""
    if page.ranges[number].size < size:
        raise CorruptFileError(
            f"page buffer {number}",
            expected=f"at least {size} bytes",
            found=f"{page.ranges[number].size}",
            where=page.where,
        )


def wrong_type(kind: pa.DataType, found: str, where: Where) -> CorruptFileError:
    """The error for an encoding that cannot give values of a type."""
    expected = f"values of type {kind}"
    return CorruptFileError("array encoding", expected=expected, found=found, where=where)


@dataclass(slots=True)
class Outlet:
    """Collects the buffers of the page that is being written, in file order."""

    buffers: list[Any] = field(default_factory=list)

    def put(self, buffer: Any) -> int:
        """Append a buffer; returns its number."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1


_MOST_IMPLIED = 2**20
"""Bytes that the page does not have, at most, that are made to find rows, or between rows taken."""


class ArrayEncoding(ABC):
    """Arrays ↔ page buffers; subclasses are frozen dataclasses under ``@array_encoding``."""

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``ArrayEncoding`` oneof."""

    views: ClassVar[bool] = False
    """Whether reading buffers in memory costs nothing, as the array only views them."""

    @property
    def dictionary_encoded(self) -> bool:
        """Whether it gives dictionary arrays."""
        return pa.types.is_dictionary(getattr(self, "kind", None) or pa.null())

    def implied_bytes(self, count: int) -> int:
        """Memory that ``count`` values take for which the page has no bytes; 0, the default."""
        return 0

    @property
    def all_equal(self) -> bool:
        """Whether any values are as good as others, as all of them are equal, or null."""
        return False

    structural: ClassVar[bool] = False
    """Whether it gives the shape of a nested column instead of values."""

    @classmethod
    @abstractmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Read the configuration from the encoding's own wire message; check it.

        Parameters
        ----------
        kind
            Type of the arrays that it is to decode to.
        count
            Number of values it holds; None when only other buffers determine it.

        Raises
        ------
        CorruptFileError
            The encoding cannot give such values, or a buffer is too short for ``count``.
        """

    @abstractmethod
    def to_wire(self) -> pb.ArrayEncoding:
        """Write the configuration, wrapped in ``ArrayEncoding``."""

    @abstractmethod
    def read(self, source: Source, start: int, stop: int) -> Fetch[Any] | Any:
        """Values ``start`` to ``stop`` as one array, 0 ≤ start ≤ stop ≤ count."""

    def find(
        self, source: Source, predicate: PagePredicate, start: int, stop: int
    ) -> RowBits | None:
        """Which of the values ``start`` to ``stop`` pass, 0 ≤ start < stop ≤ count.

        None when reading them is the quickest way. The default reads values of fixed width,
        and those of dictionary columns, when the buffers are in memory.
        """
        from glaive.encodings.predicate import array_matches

        if not source.at_hand or not (predicate.any_width or self.dictionary_encoded):
            return None
        if self.implied_bytes(stop - start) > _MOST_IMPLIED:
            return None
        return array_matches(self.read(source, start, stop), predicate, source.where)

    def take(self, source: Source, rows: Int64s) -> Fetch[Any] | Any:
        """The values at these positions, any order, repeats allowed.

        The default reads the span of the positions when the buffers are in memory, else each
        run of consecutive positions, and selects from that.
        """
        if self.all_equal:
            return self.read(source, 0, len(rows))
        first, last = int(rows.min()), int(rows.max())
        if source.at_hand and self.implied_bytes(last + 1 - first) <= _MOST_IMPLIED:
            return take_values(self.read(source, first, last + 1), rows - first)
        runs = RowRuns.of(rows)
        bounds = zip(
            runs.wanted[runs.first].tolist(), (runs.wanted[runs.last] + 1).tolist(), strict=True
        )
        steps = [self.read(source, first, stop) for first, stop in bounds]
        return and_then(join(steps, concat_arrays), lambda array: take_values(array, runs.order))
