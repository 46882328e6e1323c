"""The contracts of layer 3: value encodings and page layouts.

A **value encoding** turns blocks into buffers and back. It is a frozen dataclass: its fields
are its configuration, read from and written to the wire message. It meets bytes in three
contexts, and implements those it is allowed in:

``mini``
    many chunks at once, each with ``num_buffers`` buffers (mini-block pages);
``blocks``
    many opaque buffers at once (levels, dictionaries; often just one);
``values``
    a block whose values were unzipped one by one (full-zip pages).

All chunks of a page are handled in one call: never a Python step per chunk or per value.

A **page layout** knows where the bytes of a row range lie. It never reads: it answers with
a :class:`Fetch`, and is resumed with the buffers. Whoever drives it may fetch as it likes;
:func:`glaive.file.drive.drive` does. For a memory-mapped file every buffer is at hand, and
the answer is the leaf itself.

Specification: ``docs/format/encodings.md`` and ``docs/format/pages.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block
from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.memory import PAGE_BYTES
from glaive.errors import UnsupportedFeatureError
from glaive.types import ByteRange, Where

if TYPE_CHECKING:
    from glaive.encodings.predicate import PagePredicate, RowBits
    from glaive.format.pb import encodings21_pb2 as pb
    from glaive.kernels.keep import DeletionMask
    from glaive.kernels.match import IntegerRanges

__all__ = [
    "NO_RANGES",
    "EncodedBlocks",
    "EncodedChunks",
    "EncodedPage",
    "MemoryRanges",
    "MiniChunks",
    "PageBytes",
    "PageParts",
    "PageReader",
    "PageSignature",
    "ValueEncoding",
]

P = TypeVar("P")

MemoryRanges = NDArray[np.int64]
"""Address and size of ranges in memory, shape ``(n, 2)``."""

NO_RANGES: MemoryRanges = np.empty((0, 2), np.int64)


@dataclass(slots=True)
class MiniChunks:
    """The value buffers of some chunks of a mini-block page.

    Buffer ``k`` of chunk ``i`` is ``data[starts[k][i] : starts[k][i] + sizes[k][i]]``
    (``int64`` arrays); the layout has checked that this lies within ``data``. ``counts[i]``
    is the number of values of chunk ``i``.
    """

    data: pa.Buffer
    starts: tuple[NDArray[np.int64], ...]
    sizes: tuple[NDArray[np.int64], ...]
    counts: NDArray[np.int64]
    where: Where


@dataclass(slots=True)
class EncodedChunks:
    """Values cut into chunks: per buffer the bytes of all chunks back to back.

    ``sizes[k][i]`` is the number of bytes of buffer ``k`` in chunk ``i``; ``counts[i]`` its
    values: a power of two from 2 to 32768 for all chunks but the last.
    """

    buffers: tuple[NDArray[np.uint8], ...]
    sizes: tuple[NDArray[np.int64], ...]
    counts: NDArray[np.int64]


@dataclass(slots=True)
class EncodedBlocks:
    """Block-context buffers back to back: ``data`` and the ``sizes`` of each, in bytes."""

    data: NDArray[np.uint8]
    sizes: NDArray[np.int64]


@dataclass(slots=True)
class EncodedPage:
    """A page ready to be written: its wire message and its buffers in file order.

    ``layout`` is the message that the version's page grammar describes a page by.
    """

    layout: Any
    buffers: list[pa.Buffer | NDArray[np.uint8] | bytes]
    rows: int


class ValueEncoding(ABC):
    """Blocks ↔ buffers; subclasses are frozen dataclasses under ``@value_encoding``.

    Methods for contexts in which the format does not allow an encoding keep the defaults,
    which refuse by name.
    """

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``CompressiveEncoding`` oneof."""

    @classmethod
    @abstractmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Read the configuration from the encoding's own wire message; check it.

        The result may be of another class, where one message covers several forms.
        """

    @abstractmethod
    def to_wire(self) -> pb.CompressiveEncoding:
        """Write the configuration, wrapped in ``CompressiveEncoding``."""

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Estimated bytes of a mini-block page of such values, and how to encode them.

        ``stats`` is a ``FixedStats`` or a ``VariableStats``; None when the encoding cannot
        hold such values or should not be used for them.
        """
        return None

    @property
    def num_buffers(self) -> int:
        """Buffers per chunk in a mini-block page."""
        return 1

    @property
    def has_payload(self) -> bool:
        """Whether a block has bytes at all; without, the message says everything."""
        return True

    @property
    def number_bits(self) -> int | None:
        """Width of the values, for an encoding of values of one width; else None."""
        bits: int | None = getattr(self, "bits", None)
        return bits

    def decode_mini(self, chunks: MiniChunks) -> Block:
        """Decode all chunks into one block, in order."""
        raise self._refuse("a mini-block page", chunks.where)

    def take_mini(
        self, chunks: MiniChunks, chunk: NDArray[np.int64], index: NDArray[np.int64]
    ) -> Block:
        """Decode value ``index[i]`` of chunk ``chunk[i]`` for every i (any order, repeats).

        The default decodes the chunks given and gathers; override where single values can
        be had for less.
        """
        from glaive.arrow.gather import take_block

        block = self.decode_mini(chunks)
        first = np.zeros(len(chunks.counts), np.int64)
        np.cumsum(chunks.counts[:-1], out=first[1:])
        return take_block(block, first[chunk] + index)

    def match_mini(self, chunks: MiniChunks, test: IntegerRanges) -> pa.Buffer | None:
        """Which values of all chunks pass, one bit each without gaps.

        None, the default, when they are better decoded first. Override where chunks can be
        told one by one, while they are in the cache.
        """
        return None

    def keep_mini(self, chunks: MiniChunks, low: int, gone: DeletionMask) -> Block | None:
        """The values that stay of those from value ``low`` of the chunks on.

        None, the default, when they are better decoded first.
        """
        return None

    def take_one(
        self,
        data: pa.Buffer,
        pieces: Sequence[tuple[int, int]],
        count: int,
        index: int,
        where: Where,
    ) -> Block:
        """Decode value ``index`` of one chunk of ``count`` values.

        ``pieces`` are start and size of its buffers, which lie within ``data``. Override
        where plain Python does it in fewer steps than the arrays of :meth:`take_mini` take.
        """
        starts = tuple([np.array([start]) for start, _ in pieces])
        sizes = tuple([np.array([size]) for _, size in pieces])
        chunks = MiniChunks(data, starts, sizes, np.array([count]), where)
        return self.take_mini(chunks, np.zeros(1, np.int64), np.array([index]))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Cut the block into chunks and encode each."""
        raise self._refuse("a mini-block page", None)

    def decode_blocks(
        self,
        data: pa.Buffer,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        counts: NDArray[np.int64],
        where: Where,
    ) -> Block:
        """Decode buffers ``data[starts[i] : starts[i] + sizes[i]]`` of ``counts[i]`` values.

        Returns one block with all values in order. The caller has checked that the ranges
        lie within ``data``.
        """
        raise self._refuse("a block", where)

    def encode_blocks(self, block: Block, counts: NDArray[np.int64]) -> EncodedBlocks:
        """Encode the first ``counts[0]`` values as one buffer, the next as another, …"""
        raise self._refuse("a block", None)

    def decode_values(self, block: Block, where: Where) -> Block:
        """Decode values that a full-zip page held one by one."""
        raise self._refuse("a full-zip page", where)

    def encode_values(self, block: Block) -> Block:
        """Encode each value on its own, for a full-zip page."""
        raise self._refuse("a full-zip page", None)

    def _refuse(self, context: str, where: Where | None) -> UnsupportedFeatureError:
        place = f" (in {where})" if where is not None else ""
        return UnsupportedFeatureError(
            f"value encoding {self.wire_name!r} cannot stand in {context}{place}. "
            "The file was probably written by a newer Lance."
        )


@dataclass(slots=True)
class PageBytes:
    """Where the buffers of one page lie, and those already at hand.

    ``at_hand`` has all buffers when the file is memory-mapped, else None.
    """

    ranges: tuple[ByteRange, ...]
    at_hand: list[pa.Buffer] | None
    rows: int
    where: Where

    @property
    def mapped_end(self) -> int | None:
        """Where the buffers end in the file; None where it is not mapped."""
        if self.at_hand is None:
            return None
        return max((part.end for part in self.ranges), default=0)


@dataclass(frozen=True, slots=True)
class PageParts(Generic[P]):
    """Pages with equal signatures in one piece of memory, to be read as one.

    Parameters
    ----------
    pages, which
        What the pages are: page i says what ``pages[which[i]]`` says, wherever that lies.
    data, starts, sizes
        Buffer b of page i is ``data[starts[i, b] : starts[i, b] + sizes[i, b]]``, int64; the
        caller has checked that it lies within ``data``. Pages of several files ascend.
    where, where_of
        The place of all, and of page i, for messages.
    """

    pages: Sequence[P]
    which: NDArray[np.int64]
    data: pa.Buffer
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    where: Where
    where_of: Callable[[int], Where]

    def each(self, number: Callable[[P], int]) -> NDArray[np.int64]:
        """A number of every page."""
        return np.array([number(page) for page in self.pages], np.int64)[self.which]

    def only(self, at: int) -> PageParts[P]:
        """Page ``at`` alone."""
        where, none = self.where_of(at), np.zeros(1, np.int64)
        page, row = [self.pages[self.which[at]]], slice(at, at + 1)
        return PageParts(
            page, none, self.data, self.starts[row], self.sizes[row], where, lambda _: where
        )


@dataclass(frozen=True, slots=True)
class PageSignature:
    """What pages that can be read as one have in common: equal for pages that go together.

    ``join`` makes the reader of such pages; it reads nothing yet.
    """

    key: Hashable
    join: Callable[[PageParts[Any]], PageReader] = field(compare=False)


class PageReader(ABC):
    """One page of one column, parsed from its layout message. Immutable once loaded.

    Making one reads nothing. The first call that needs the small buffers (chunk table,
    repetition index, dictionary) asks for them, checks them and keeps them.
    """

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``PageLayout`` oneof."""

    rows: int

    cuts: Sequence[int] = ()
    """Rows inside the page, ascending, at which a reader of all of it should cut."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory held once the page was read from; an estimate that reads nothing."""
        return PAGE_BYTES

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Parse the layout's own wire message; check what can be checked without bytes.

        Readers that are made of other pages have no message, and keep the default, which refuses.
        """
        raise TypeError(f"{cls.__name__} is no layout of the wire: it is made of other pages")

    def with_values(self, end: int) -> PageReader:
        """The page, read as what it describes where that lies elsewhere, before ``end``."""
        return self

    @abstractmethod
    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop`` of the page, 0 ≤ start ≤ stop ≤ rows."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """The rows at these positions of the page, any order, repeats allowed."""

    @property
    def mapped_end(self) -> int | None:
        """Where all that the page reads ends in its mapped file.

        None, the default, where that is not known or the file is not mapped.
        """
        return None

    def page_signature(self) -> PageSignature | None:
        """What pages must have in common with this one to be read as one with it.

        None, the default, for a page that is read alone.
        """
        return None

    def opening_ranges(self) -> MemoryRanges:
        """What a mapped page reads whole before any row; empty once it did."""
        return NO_RANGES

    def take_ranges(self, rows: NDArray[np.int64]) -> MemoryRanges | None:
        """What a take of these rows, ascending, reads of a mapped page beside that.

        None, the default, where it is not known. Reads what :meth:`opening_ranges` names.

        Raises
        ------
        CorruptFileError
            That is damaged.
        """
        return None

    def find(self, predicate: PagePredicate, start: int, stop: int) -> RowBits | None:
        """Which of the rows ``start`` to ``stop`` pass, 0 ≤ start < stop ≤ rows.

        For pages of columns that are not nested. None when there is no quicker way than to
        read the rows.
        """
        return None

    def read_live(self, start: int, stop: int, gone: DeletionMask) -> Leaf | None:
        """``read`` without the rows that are gone.

        None, the default, when there is no quicker way than to drop them later.
        """
        return None
