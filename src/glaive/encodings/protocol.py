"""The contracts of encodings: value encodings and page layouts.

A **value encoding** turns blocks into buffers and back. It is a frozen dataclass: its fields
are its configuration, read from and written to the wire message. There are three contexts; an
encoding implements the contexts that the format allows for it:

``mini``
    many chunks at once, each with ``num_buffers`` buffers (mini-block pages);
``blocks``
    many opaque buffers at once (levels, dictionaries; often just one);
``values``
    a block whose values were unzipped one by one (full-zip pages).

One call handles all chunks of a page: avoid a Python step per chunk or per value.

A **page layout** knows where the bytes of a row range are. To read, it returns a
:class:`Fetch`, which :func:`glaive.file.protocol.run_fetch` resumes with the buffers. For a
memory-mapped file every buffer is in memory, and the result is the leaf itself.
Specification: ``docs/format/encodings.md`` and ``docs/format/pages.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar
from weakref import ref

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block
from glaive.config import USUAL_RATIO, settings
from glaive.dataclass import dataclass
from glaive.encodings.levels import Layer, Leaf, Validity
from glaive.errors import CorruptFileError, RowIndexError, UnsupportedFeatureError
from glaive.io.cache import ByteCache
from glaive.types import ByteRange, Int64s, UInt8s, Where, allocate, as_array

if TYPE_CHECKING:
    from glaive.encodings.predicate import PagePredicate, RowBits
    from glaive.format.pb import encodings21_pb2 as pb
    from glaive.kernels.match import IntegerRanges


# --- Fetches: the bytes that are needed next, one after the other or several at once ----
#
# The caller reads. A result that is ready is passed on as it is.

T = TypeVar("T")
U = TypeVar("U")


@dataclass(slots=True)
class Fetch(Generic[T]):
    """Bytes that are needed next, and what to do with them.

    ``resume`` takes the buffers in the order of ``ranges`` and returns the result or a
    further ``Fetch``. Pure: it may be called on any thread.
    """

    ranges: Sequence[ByteRange]
    resume: Callable[[list[pa.Buffer]], Fetch[T] | T]


def and_then(step: Fetch[T] | T, then: Callable[[T], Fetch[U] | U]) -> Fetch[U] | U:
    """Call ``then`` with the result of ``step``, once it is there."""
    if not isinstance(step, Fetch):
        return then(step)
    resume = step.resume
    return Fetch(step.ranges, lambda buffers: and_then(resume(buffers), then))


def join(steps: Sequence[Any], then: Callable[[list[Any]], Fetch[U] | U]) -> Fetch[U] | U:
    """Call ``then`` with the results of all steps; what they need is requested at once."""
    waiting = [at for at, step in enumerate(steps) if isinstance(step, Fetch)]
    if not waiting:
        return then(list(steps))
    ranges: list[ByteRange] = []
    for at in waiting:
        ranges.extend(steps[at].ranges)

    def resume(buffers: list[pa.Buffer]) -> Fetch[U] | U:
        after = list(steps)
        first = 0
        for at in waiting:
            count = len(steps[at].ranges)
            after[at] = steps[at].resume(buffers[first : first + count])
            first += count
        return join(after, then)

    return Fetch(ranges, resume)


# --- Wanted rows as runs of consecutive rows: which bytes to request, and where each row ends up


@dataclass(frozen=True, slots=True)
class RowRuns:
    """Distinct rows in ascending order, divided into runs of consecutive rows.

    ``first`` and ``last`` are the positions in ``wanted`` at which each run begins and ends
    (inclusive); ``run`` is the run of each wanted row. ``wanted[order]`` are the requested rows.
    """

    wanted: Int64s
    order: Int64s
    first: Int64s
    last: Int64s
    run: Int64s

    @classmethod
    def of(cls, rows: Int64s) -> Self:
        """Sort rows, drop repeats, and find the runs."""
        wanted, order = np.unique(rows, return_inverse=True)
        begins = np.ones(len(wanted), np.bool_)
        begins[1:] = np.diff(wanted) != 1
        first = begins.nonzero()[0]
        last = np.append(first[1:], len(wanted)) - 1
        return cls(wanted, order, first, last, begins.cumsum() - 1)

    def equal_rows(self, base: int, stride: int) -> list[ByteRange]:
        """Return bytes of the runs when every row has ``stride`` bytes, the first at ``base``."""
        return self._ranges(
            base + self.wanted[self.first] * stride, (self.last - self.first + 1) * stride
        )

    def index_entries(self, base: int, width: int) -> list[ByteRange]:
        """Return the bytes of the row index with the start and end of the rows."""
        return self._ranges(
            base + self.wanted[self.first] * width, (self.last - self.first + 2) * width
        )

    def bounds(self, index: Int64s) -> tuple[Int64s, Int64s]:
        """Start and end of each wanted row, from the requested entries."""
        at = np.arange(len(self.wanted)) + self.run
        return index[at], index[at + 1]

    def rows_between(
        self, base: int, starts: Int64s, stops: Int64s
    ) -> tuple[list[ByteRange], Int64s]:
        """Return the bytes of the runs, and how far each row moves when the runs are back to back.

        ``starts[i]`` to ``stops[i]`` are the bytes of wanted row i, relative to ``base``.
        """
        sizes = stops[self.last] - starts[self.first]
        moves = (sizes.cumsum() - sizes) - starts[self.first]
        return self._ranges(base + starts[self.first], sizes), moves[self.run]

    @staticmethod
    def _ranges(starts: Int64s, sizes: Int64s) -> list[ByteRange]:
        return list(map(ByteRange, starts.tolist(), sizes.tolist()))


def rows_beyond(low: int, high: int, rows: int, where: Where) -> RowIndexError:
    """Return the error for rows outside of a page of ``rows`` rows."""
    return RowIndexError(f"rows {low} to {high} of a page of {rows} rows (in {where})")


def join_buffers(buffers: list[pa.Buffer]) -> pa.Buffer:
    """Concatenate buffers; a single one is returned as it is."""
    if len(buffers) == 1:
        return buffers[0]
    out = allocate(sum(buffer.size for buffer in buffers))
    target, at = as_array(out), 0
    for buffer in buffers:
        target[at : at + buffer.size] = as_array(buffer)
        at += buffer.size
    return out


# --- The buffers of a page: where they are in the file, and in memory if the file is mapped

ReadRanges = Callable[[Sequence[ByteRange]], list[pa.Buffer]]
"""One buffer per range, in order."""


class PageBytes:
    """The ranges of the buffers of one page; ``at_hand`` has them all if the file is mapped.

    Parameters
    ----------
    ranges
        The buffers in the file.
    at_hand
        The buffers in memory; ``None`` where they have to be fetched.
    rows
        Rows of the page.
    where
        The page, for messages.
    read
        Reads ranges of a mapped file, instead of ``at_hand``. The page reads, and counts, these
        bytes when a caller first asks for them. Until then the page is ``unread``. A reader that
        needs a part of it fetches the part, as from a remote file. Threads that ask
        at once may each read it.
    """

    __slots__ = ("_read", "at_hand", "ranges", "rows", "unread", "where")

    at_hand: list[pa.Buffer] | None
    unread: bool
    """Whether the page is of a mapped file, and is still to be read as a whole."""

    def __init__(
        self,
        ranges: tuple[ByteRange, ...],
        at_hand: list[pa.Buffer] | None,
        rows: int,
        where: Where,
        read: ReadRanges | None = None,
    ) -> None:
        self.ranges, self.rows, self.where, self._read = ranges, rows, where, read
        self.unread = read is not None
        if read is None:
            self.at_hand = at_hand

    def __getattr__(self, name: str) -> Any:
        # Called for slots that lack a value: later uses of ``at_hand`` avoid the call.
        if name != "at_hand" or self._read is None:
            raise AttributeError(name)
        buffers = self._read(self.ranges)
        self.unread = False  # first: other threads then use the bytes in memory
        self.at_hand = buffers
        return buffers

    @property
    def is_mapped(self) -> bool:
        """Whether all buffers are in memory, or will be when a caller requests them."""
        return self._read is not None or self.at_hand is not None

    @property
    def mapped_end(self) -> int | None:
        """Where the buffers end in a mapped file, or ``None``."""
        return max([part.end for part in self.ranges], default=0) if self.is_mapped else None

    def part(self, first: int, stop: int, rows: int) -> PageBytes:
        """Return some of the buffers as a page of their own."""
        ranges = self.ranges[first:stop]
        if self.unread:
            return PageBytes(ranges, None, rows, self.where, self._read)
        at_hand = None if self.at_hand is None else self.at_hand[first:stop]
        return PageBytes(ranges, at_hand, rows, self.where)


# --- Estimates of the memory of an opened page, for caches with a budget ----------------

PAGE_BYTES = 2 * 1024
"""Bytes of an opened page in addition to its chunk table, dictionary and structure."""

_CHUNK_BYTES = 48
"""Bytes per entry of a chunk table, with the rows that begin in the chunk."""

_EXPANSION = 6
"""Approximate bytes in memory per byte on disk of a dictionary or a sparse structure."""


def page_bytes(chunks: int, expanded: int) -> int:
    """Return the bytes of memory of a page with ``chunks`` chunks.

    ``expanded`` are the bytes on disk that the first read decodes and keeps.
    """
    return PAGE_BYTES + _CHUNK_BYTES * chunks + _EXPANSION * expanded


P = TypeVar("P")

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

    ``sizes[k][i]`` is the number of bytes of buffer ``k`` in chunk ``i``. ``counts[i]`` is its
    number of values: a power of two from 2 to 32768 for all chunks except the last.
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

    Methods keep the defaults for contexts that the format forbids for an encoding.
    A default raises an error that names the encoding.
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
        """Return the estimated bytes of a mini-block page of such values, and how to encode them.

        ``stats`` is a ``FixedStats`` or a ``VariableStats``; ``None`` when the encoding cannot
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
        """Width of the values, for an encoding of values of one width; else ``None``."""
        return getattr(self, "bits", None)

    def decode_mini(self, chunks: MiniChunks) -> Block:
        """Decode all chunks into one block, in order."""
        raise self._refuse("a mini-block page", chunks.where)

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> Block:
        """Decode value ``index[i]`` of chunk ``chunk[i]`` for every i (any order, repeats).

        The default decodes the given chunks and gathers; override where reading single values
        is cheaper.
        """
        from glaive.arrow.build import take_block

        first = chunks.counts.cumsum() - chunks.counts
        return take_block(self.decode_mini(chunks), first[chunk] + index)

    def match_mini(self, chunks: MiniChunks, test: IntegerRanges) -> pa.Buffer | None:
        """Return which values of all chunks pass, one bit each.

        ``None``, the default, when decoding first is quicker. Override where chunks can be tested
        one by one, while they are in the processor's cache.
        """
        return None

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
    """Return the error for an unknown feature."""
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
        """Return an attribute of every page."""
        return np.array([number(page) for page in self.pages], np.int64)[self.which]

    def only(self, at: int) -> PageParts[P]:
        """Return the page ``at`` alone."""
        where, zero = self.where_of(at), np.zeros(1, np.int64)
        page, row = [self.pages[self.which[at]]], slice(at, at + 1)
        return PageParts(
            page, zero, self.data, self.starts[row], self.sizes[row], where, lambda _: where
        )


@dataclass(frozen=True, slots=True)
class PageSignature:
    """Common properties of pages that can be joined: joinable pages have equal signatures.

    ``join`` makes the reader of joined pages.
    """

    key: Hashable
    join: Callable[[PageParts[Any]], PageReader] = field(compare=False)


class PageReader(ABC):
    """One page of one column, parsed from its layout message. Immutable once loaded.

    The first call that needs small buffers fetches and keeps them.
    """

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``PageLayout`` oneof."""

    rows: int

    cuts: Sequence[int] = ()
    """Rows inside the page, ascending, at which a reader of the whole page should divide it."""

    @property
    def nbytes(self) -> int:
        """Estimate the bytes of memory held after the first read."""
        return PAGE_BYTES

    @property
    def entries(self) -> int:
        """Entries of all rows, as the page states them; by default the rows."""
        return self.rows

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Parse and check the layout's wire message; the default, of joined pages, refuses."""
        raise TypeError(f"{cls.__name__} is not a layout of the wire: it joins other pages")

    def with_values(self, end: int) -> PageReader:
        """Return the page, reading values elsewhere in the file instead of descriptors."""
        return self

    @abstractmethod
    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Return the rows ``start`` to ``stop`` of the page, 0 ≤ start ≤ stop ≤ rows."""

    @abstractmethod
    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """Return the rows at these positions of the page, any order, repeats allowed."""

    @property
    def mapped_end(self) -> int | None:
        """Where the bytes of ``page`` end in its mapped file; ``None`` if unknown."""
        page: PageBytes | PageReader | None = getattr(self, "page", None)
        return None if page is None else page.mapped_end

    def page_signature(self) -> PageSignature | None:
        """Return the signature of pages to join; ``None``, the default: read the page alone."""
        return None

    def plan_opening(self) -> Fetch[Any] | None:
        """Fetch what is read before any row; ``None``, the default: it comes with the rows."""
        return None

    def opening_ranges(self, rows: Int64s) -> MemoryRanges:
        """Return what a mapped page reads first to find these ascending rows; may be empty."""
        return NO_RANGES

    def take_ranges(self, rows: Int64s) -> MemoryRanges | None:
        """Return what a take of ascending rows reads of a mapped page after the opening ranges.

        ``None``, the default, where it is unknown. Reads the :meth:`opening_ranges`.

        Raises
        ------
        CorruptFileError
            The bytes in the opening ranges are damaged.
        """
        return None

    def find(self, predicate: PagePredicate, start: int, stop: int) -> RowBits | None:
        """Return which of the rows ``start`` to ``stop`` pass, 0 ≤ start < stop ≤ rows.

        For pages of flat columns. ``None`` when reading the rows is the quickest way.
        """
        return None


# --- Data that pages decode once and use again: dictionaries, structure, levels, whole buffers
#
# A page keeps data in proportion to its bytes in the file. A few bytes may encode far more.
# The process keeps only the latest of that, so any number of pages takes bounded memory.


_MAX_OWN_BYTES: Final = 32 * 1024
"""Bytes that each page may keep."""


class _Entry(Generic[T]):
    """A value that is out of proportion, as long as it is kept."""

    __slots__ = ("__weakref__", "value")

    value: T | None

    def __init__(self, value: T) -> None:
        self.value = value


_LARGE: ByteCache[ref[_Entry[Any]], _Entry[Any]] = ByteCache(settings.max_decoded_bytes_per_page)
"""The values of this process that are out of proportion, up to the limit of one page.

A scan of dozens of nearly empty columns then decodes them once, instead of for each batch. Values
of closed pages make room with time.
"""


class Latest:
    """The values of the page of a column that was read last, where they are in proportion.

    All columns of a scan may have more such values than the process keeps. This class saves each
    batch from decoding them again.
    """

    __slots__ = ("_held", "_page")

    def __init__(self) -> None:
        self._page: object = None
        self._held: list[object] = []

    def keep(self, page: object, held: object) -> None:
        """Keep a value, together with other values of its page only."""
        if self._page is not page:
            self._page, self._held = page, []
        self._held.append(held)


class Kept(Generic[T]):
    """A kept value. If other values have replaced it since, its owner decodes it again."""

    __slots__ = ("_held", "own")

    own: T | None
    """The value, if it is in proportion: it is kept as long as its page."""

    def __init__(self) -> None:
        self.own = None
        self._held: ref[_Entry[T]] | None = None

    def __del__(self) -> None:
        """Release the value."""
        self._release()

    def _release(self) -> None:
        # Avoid a lock, as it may run at any time.
        held = self._held and self._held()
        if held:
            held.value = None

    def get(self) -> T | None:
        """Return the value; ``None`` before it is kept and after it was dropped."""
        if self._held is None:
            return self.own
        _LARGE.get(self._held)  # used now
        held = self._held()
        return None if held is None else held.value

    def of_page(
        self,
        page: PageBytes,
        load: Callable[[list[pa.Buffer]], T],
        then: Callable[[T], Fetch[U] | U],
    ) -> Fetch[U] | U:
        """Call ``then`` with the value, which ``load`` makes of the page's buffers and keeps."""
        value = self.get()
        if value is not None:
            return then(value)
        if page.at_hand is not None or not page.ranges:
            return then(load(page.at_hand or []))
        return Fetch(page.ranges, lambda got: then(load(got)))

    def keep(self, value: T, size: int, stored: int) -> T:
        """Keep a value of ``size`` bytes, for which a file has ``stored`` bytes; returns it."""
        if size <= _MAX_OWN_BYTES or size <= USUAL_RATIO * stored:
            self.own = value
        else:
            self._keep_large(value, size)
        return value

    def keep_latest(self, value: T, size: int, stored: int, latest: Latest, page: object) -> T:
        """Keep the values of a whole page; a column keeps them for its latest page only."""
        if size <= _MAX_OWN_BYTES:
            self.own = value
            return value
        held = self._keep_large(value, size)
        if size <= USUAL_RATIO * stored:
            latest.keep(page, held)
        return value

    def _keep_large(self, value: T, size: int) -> _Entry[T]:
        self._release()  # another thread may have kept a value
        held = _Entry(value)
        self._held = ref(held)
        # A value larger than the whole budget stays until the next one.
        _LARGE.put(self._held, held, min(size, _LARGE.budget))
        return held


# --- The contracts of 2.3 pages: a page is a structural plane times a value plane -------
#
# With **dense** structure levels are stored with the values, as in 2.1 and 2.2. A value plane
# then opens the page itself: the same page under another message. With **sparse** structure
# validity and list sizes are stored apart from the values. A value plane then only returns the
# values of some slots.
#
# Specification: ``docs/format/planes.md``.


class SlotValues(ABC):
    """The values of the inner-most slots of one page with sparse structure.

    ``valid`` is the validity of all its slots. Slots that are null hold any value; the result
    is ``None`` where the page has no values.
    """

    @abstractmethod
    def read(self, start: int, stop: int, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Return the slots ``start`` to ``stop``; at least one."""

    @abstractmethod
    def take(self, slots: Int64s, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Return the slots at these positions, any order, repeats allowed; at least one."""


class ValuePlane(ABC):
    """How the values of a page are stored."""

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``ValuePlane`` oneof."""

    @classmethod
    @abstractmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """Return the page, whose levels are stored with its values."""

    @classmethod
    @abstractmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """Return the values of ``slots`` inner-most slots, and the number of their buffers.

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
        """Return the page; ``plane`` parses ``values``."""


def part_of(page: PageBytes, first: int, count: int, rows: int) -> PageBytes:
    """Return ``count`` buffers of a page as a page of their own.

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
    """Return the error for a value plane that contradicts the structure of its page."""
    return CorruptFileError(
        f"structure of a page with {plane} values", expected=expected, found=found, where=page.where
    )
