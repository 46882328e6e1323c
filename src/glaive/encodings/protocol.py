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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block
from glaive.encodings.memory import PAGE_BYTES
from glaive.errors import UnsupportedFeatureError
from glaive.types import ByteRange, Where

if TYPE_CHECKING:
    from glaive.encodings.predicate import Matches, Probe
    from glaive.format.pb import encodings21_pb2 as pb
    from glaive.kernels.keep import Gone
    from glaive.kernels.match import WordTest

__all__ = [
    "EncodedBlocks",
    "EncodedChunks",
    "EncodedPage",
    "Fetch",
    "Layer",
    "Leaf",
    "MiniChunks",
    "PageBytes",
    "PageReader",
    "Slots",
    "ValueEncoding",
]

T = TypeVar("T")


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
    """One layer of a leaf as it is in Arrow.

    ``validity`` is a bitmap, None without nulls; ``offsets`` are ``count + 1`` numbers from 0
    for a list layer, else None.
    """

    count: int
    validity: pa.Buffer | None
    null_count: int
    offsets: NDArray[np.int64] | None = None


@dataclass(slots=True)
class Leaf:
    """What a page says about a range of its rows.

    ``values`` has one slot per *visible* entry. ``rep`` and ``definition`` are ``uint16``
    arrays of equal length, one per entry, or None when the page has none. ``validity`` is
    an Arrow bitmap that stands in for ``definition`` when ``layers`` is just
    ``(NULLABLE_ITEM,)``; then ``definition`` is None and ``null_count`` is exact.
    ``values`` is None when no entry has a value (all null, or no visible entry).
    ``layers`` is inner-most first.

    A page without levels gives its ``shape`` instead, layer by layer, inner-most first; then
    ``rep`` and ``definition`` are None, ``layers`` only tell lists from items, and ``values``
    has one slot per item of the inner-most layer.
    """

    values: Block | None
    rows: int
    entries: int
    layers: tuple[Layer, ...]
    rep: NDArray[np.uint16] | None = None
    definition: NDArray[np.uint16] | None = None
    validity: pa.Buffer | None = None
    null_count: int = 0
    shape: Sequence[Slots] | None = None


@dataclass(slots=True)
class Fetch(Generic[T]):
    """Bytes that are needed next, and what to do with them.

    ``resume`` takes the buffers in the order of ``ranges`` and returns the result or a
    further ``Fetch``. Pure: it may be called on any thread.
    """

    ranges: Sequence[ByteRange]
    resume: Callable[[list[pa.Buffer]], Fetch[T] | T]


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

    def match_mini(self, chunks: MiniChunks, test: WordTest) -> pa.Buffer | None:
        """Which values of all chunks pass, one bit each without gaps.

        None, the default, when they are better decoded first. Override where chunks can be
        told one by one, while they are in the cache.
        """
        return None

    def keep_mini(self, chunks: MiniChunks, low: int, gone: Gone) -> Block | None:
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


class PageReader(ABC):
    """One page of one column, parsed from its layout message. Immutable once loaded.

    Making one reads nothing. The first call that needs the small buffers (chunk table,
    repetition index, dictionary) asks for them, checks them and keeps them.
    """

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``PageLayout`` oneof."""

    rows: int

    kin: object = None
    """Neighbouring pages with equal kin, other than None, can be read as one; see ``join``."""

    cuts: Sequence[int] = ()
    """Rows inside the page, ascending, at which a reader of all of it should cut."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory held once the page was read from; an estimate that reads nothing."""
        return PAGE_BYTES

    @classmethod
    def join(cls, pages: Sequence[Any]) -> PageReader:
        """Read pages of this class, neighbours of equal kin, as one. Reads nothing yet."""
        raise TypeError(f"pages of layout {cls.wire_name!r} are not read as one")

    @classmethod
    @abstractmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Parse the layout's own wire message; check what can be checked without bytes."""

    def with_values(self, end: int) -> PageReader:
        """The page, read as what it describes where that lies elsewhere, before ``end``."""
        return self

    @abstractmethod
    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop`` of the page, 0 ≤ start ≤ stop ≤ rows."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """The rows at these positions of the page, any order, repeats allowed."""

    def find(self, probe: Probe, start: int, stop: int) -> Matches | None:
        """Which of the rows ``start`` to ``stop`` pass, 0 ≤ start < stop ≤ rows.

        For pages of columns that are not nested. None when there is no quicker way than to
        read the rows.
        """
        return None

    def read_live(self, start: int, stop: int, gone: Gone) -> Leaf | None:
        """``read`` without the rows that are gone.

        None, the default, when there is no quicker way than to drop them later.
        """
        return None
