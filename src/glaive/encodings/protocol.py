"""The contracts of encodings: value encodings and page layouts.

A **value encoding** turns blocks into buffers and back. It is a frozen dataclass: its fields
are its configuration, read from and written to the wire message. Of three contexts it implements
those that the format allows for it:

``mini``
    many chunks at once, each with ``num_buffers`` buffers (mini-block pages);
``blocks``
    many opaque buffers at once (levels, dictionaries; often just one);
``values``
    a block whose values were unzipped one by one (full-zip pages).

All chunks of a page are handled in one call: never a Python step per chunk or per value.

A **page layout** knows where the bytes of a row range are. It never reads: it returns a
:class:`Fetch`, which :func:`glaive.file.run_fetch.run_fetch` resumes with the buffers. For a
memory-mapped file every buffer is in memory, and the result is the leaf itself.
Specification: ``docs/format/encodings.md`` and ``docs/format/pages.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block
from glaive.dataclass import dataclass
from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.memory import PAGE_BYTES
from glaive.encodings.page_bytes import PageBytes
from glaive.errors import UnsupportedFeatureError
from glaive.types import Int64s, UInt8s, Where

if TYPE_CHECKING:
    from glaive.encodings.predicate import PagePredicate, RowBits
    from glaive.format.pb import encodings21_pb2 as pb
    from glaive.kernels.compact import DeletionMask
    from glaive.kernels.match import IntegerRanges

__all__ = [
    "NO_RANGES",
    "ChunkBuffers",
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
    "newer_lance",
]

P = TypeVar("P")

ChunkBuffers = Sequence[tuple[int, int]]
"""Start and size of each buffer of one chunk."""

MemoryRanges = Int64s
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
    starts: tuple[Int64s, ...]
    sizes: tuple[Int64s, ...]
    counts: Int64s
    where: Where

    @property
    def first(self) -> tuple[pa.Buffer, Int64s, Int64s, Int64s]:
        """The memory; start and size of the first buffer of each chunk; and its values."""
        return self.data, self.starts[0], self.sizes[0], self.counts


@dataclass(slots=True)
class EncodedChunks:
    """Values divided into chunks: per buffer the bytes of all chunks back to back.

    ``sizes[k][i]`` is the number of bytes of buffer ``k`` in chunk ``i``; ``counts[i]`` its
    values: a power of two from 2 to 32768 for all chunks but the last.
    """

    buffers: tuple[UInt8s, ...]
    sizes: tuple[Int64s, ...]
    counts: Int64s


@dataclass(slots=True)
class EncodedBlocks:
    """Block-context buffers back to back: ``data`` and the ``sizes`` of each, in bytes."""

    data: UInt8s
    sizes: Int64s


@dataclass(slots=True)
class EncodedPage:
    """A page ready to be written: its wire message and its buffers in file order.

    ``layout`` is the version's message that describes a page. A buffer may be a tuple of its parts.
    """

    layout: Any
    buffers: list[Any]
    rows: int


class ValueEncoding(ABC):
    """Blocks ↔ buffers; subclasses are frozen dataclasses under ``@value_encoding``.

    Methods for contexts in which the format does not allow an encoding keep the defaults,
    which raise an error that names the encoding.
    """

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``CompressiveEncoding`` oneof."""

    @classmethod
    @abstractmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Read the configuration from the encoding's own wire message; check it.

        The result may be of another class, where one message covers several classes.
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
        """Whether a block has any bytes; otherwise the message describes all values."""
        return True

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """The encodings within this one."""
        return ()

    @property
    def number_bits(self) -> int | None:
        """Width of the values, for an encoding of values of one width; else None."""
        bits: int | None = getattr(self, "bits", None)
        return bits

    def decode_mini(self, chunks: MiniChunks) -> Block:
        """Decode all chunks into one block, in order."""
        raise self._refuse("a mini-block page", chunks.where)

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> Block:
        """Decode value ``index[i]`` of chunk ``chunk[i]`` for every i (any order, repeats).

        The default decodes the given chunks and gathers; override where reading single values
        is cheaper.
        """
        from glaive.arrow.gather import take_block

        first = np.cumsum(chunks.counts) - chunks.counts
        return take_block(self.decode_mini(chunks), first[chunk] + index)

    def match_mini(self, chunks: MiniChunks, test: IntegerRanges) -> pa.Buffer | None:
        """Which values of all chunks pass, one bit each without gaps.

        None, the default, when decoding first is quicker. Override where chunks can be tested
        one by one, while they are in the processor's cache.
        """
        return None

    def compact_mini(self, chunks: MiniChunks, low: int, deleted: DeletionMask) -> Block | None:
        """The values from value ``low`` of the chunks on that are not deleted.

        None, the default, when decoding first is quicker.
        """
        return None

    def take_one(
        self, data: pa.Buffer, buffers: ChunkBuffers, count: int, index: int, where: Where
    ) -> Block:
        """Decode value ``index`` of one chunk of ``count`` values.

        ``buffers`` are start and size of its buffers, which lie within ``data``. Override
        where plain Python takes fewer steps than the arrays of :meth:`take_mini`.
        """
        starts = tuple([np.array([start]) for start, _ in buffers])
        sizes = tuple([np.array([size]) for _, size in buffers])
        chunks = MiniChunks(data, starts, sizes, np.array([count]), where)
        return self.take_mini(chunks, np.zeros(1, np.int64), np.array([index]))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Divide the block into chunks and encode each."""
        raise self._refuse("a mini-block page", None)

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> Block:
        """Decode buffers ``data[starts[i] : starts[i] + sizes[i]]`` of ``counts[i]`` values.

        Returns one block with all values in order. The caller has checked that the ranges
        lie within ``data``.
        """
        raise self._refuse("a block", where)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode the first ``counts[0]`` values as one buffer, the next as another, …"""
        raise self._refuse("a block", None)

    def decode_values(self, block: Block, where: Where) -> Block:
        """Decode values that a full-zip page held one by one."""
        raise self._refuse("a full-zip page", where)

    def encode_values(self, block: Block) -> Block:
        """Encode each value on its own, for a full-zip page."""
        raise self._refuse("a full-zip page", None)

    def _refuse(self, context: str, where: Where | None) -> UnsupportedFeatureError:
        location = f" (in {where})" if where is not None else ""
        return UnsupportedFeatureError(
            f"value encoding {self.wire_name!r} is not allowed in {context}{location}. "
            "The file was probably written by a newer Lance."
        )


def newer_lance(feature: str, where: Where) -> UnsupportedFeatureError:
    """The error for a feature that this reader does not know."""
    return UnsupportedFeatureError(
        f"{feature} (in {where}): the file was probably written by a newer Lance"
    )


@dataclass(frozen=True, slots=True)
class PageParts(Generic[P]):
    """Pages with equal signatures in one buffer, to be joined.

    Parameters
    ----------
    pages, which
        Descriptions of the pages: page i has the message of ``pages[which[i]]``.
    data, starts, sizes
        Buffer b of page i is ``data[starts[i, b] : starts[i, b] + sizes[i, b]]``, int64; the
        caller has checked that it lies within ``data``. Pages of several files ascend.
    where, where_of
        Location of all pages, and of page i, for messages.
    """

    pages: Sequence[P]
    which: Int64s
    data: pa.Buffer
    starts: Int64s
    sizes: Int64s
    where: Where
    where_of: Callable[[int], Where]

    def each(self, number: Callable[[P], int]) -> Int64s:
        """An attribute of every page."""
        return np.array([number(page) for page in self.pages], np.int64)[self.which]

    def only(self, at: int) -> PageParts[P]:
        """Page ``at`` alone."""
        where, zero = self.where_of(at), np.zeros(1, np.int64)
        page, row = [self.pages[self.which[at]]], slice(at, at + 1)
        return PageParts(
            page, zero, self.data, self.starts[row], self.sizes[row], where, lambda _: where
        )


@dataclass(frozen=True, slots=True)
class PageSignature:
    """What pages must have in common to be joined: joinable pages have equal signatures.

    ``join`` makes the reader of joined pages; it reads nothing yet.
    """

    key: Hashable
    join: Callable[[PageParts[Any]], PageReader] = field(compare=False)


class PageReader(ABC):
    """One page of one column, parsed from its layout message. Immutable once loaded.

    The constructor reads nothing; the first call that needs small buffers fetches and keeps them.
    """

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``PageLayout`` oneof."""

    rows: int

    cuts: Sequence[int] = ()
    """Rows inside the page, ascending, at which a reader of the whole page should divide it."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory held after the first read; an estimate that reads nothing."""
        return PAGE_BYTES

    @property
    def entries(self) -> int:
        """Entries of all rows, by what the page says of itself; the rows, where it says nothing."""
        return self.rows

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Parse and check the layout's wire message; the default, of joined pages, refuses."""
        raise TypeError(f"{cls.__name__} is not a layout of the wire: it joins other pages")

    def with_values(self, end: int) -> PageReader:
        """The page, returning values that are elsewhere in the file instead of descriptors."""
        return self

    @abstractmethod
    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop`` of the page, 0 ≤ start ≤ stop ≤ rows."""

    @abstractmethod
    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """The rows at these positions of the page, any order, repeats allowed."""

    @property
    def mapped_end(self) -> int | None:
        """Where what the page reads ends in its mapped file; None, the default, if unknown."""
        return None

    def page_signature(self) -> PageSignature | None:
        """What pages must have to be joined with this one; None, the default: it is read alone."""
        return None

    def plan_opening(self) -> Fetch[Any] | None:
        """Fetch what is read before any row; None, the default: it comes with the rows."""
        return None

    def opening_ranges(self, rows: Int64s) -> MemoryRanges:
        """What a mapped page reads to know where these ascending rows are; empty where it does."""
        return NO_RANGES

    def take_ranges(self, rows: Int64s) -> MemoryRanges | None:
        """What a take of these ascending rows reads of a mapped page besides the opening ranges.

        None, the default, where it is unknown. Reads the :meth:`opening_ranges`.

        Raises
        ------
        CorruptFileError
            The bytes in the opening ranges are damaged.
        """
        return None

    def find(self, predicate: PagePredicate, start: int, stop: int) -> RowBits | None:
        """Which of the rows ``start`` to ``stop`` pass, 0 ≤ start < stop ≤ rows.

        For pages of columns that are not nested. None when reading the rows is the quickest way.
        """
        return None

    def read_live(self, start: int, stop: int, deleted: DeletionMask) -> Leaf | None:
        """``read`` without deleted rows; None, the default, when dropping them later is quicker."""
        return None
