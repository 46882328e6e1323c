"""Contents of the layout message of a mini-block page, checked and ready for use."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.levels import Layer, LevelLimits, level_limits, read_layers
from glaive.encodings.protocol import PageBytes, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.fsst import Fsst
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.chunks import read_words
from glaive.kernels.levels import count_starts
from glaive.types import ByteRange, Flags, Int64s, UInt16s, UInt64s, Where, as_array

# --- The chunk table of mini-block pages: where chunks lie, and which values and rows they hold
#
# Two small buffers of a page hold it. The **chunk words**, 16 or 32 bits each::
#
#     word = (chunk bytes / 8 - 1) << 4 | log2(values)
#
# and, for pages with repetition, the **repetition index**. It has a pair of ``u64`` per chunk: the
# rows that finish there, and the entries of a row that continues in the next chunk.
#
# Several pages are read like one, because opening costs matter where pages are many and small.
#
# Specification: "Chunk words" and "Repetition index" in ``docs/format/pages.md``.

WORD_BYTES = {False: 2, True: 4}
"""Bytes of a chunk word, and of the size of a value buffer in its chunk, by ``has_large_chunk``."""

MAX_CHUNK_LEVELS = (1 << 16) - 1
"""Maximum levels of a chunk: their number has 16 bits."""


class RowIndex(NamedTuple):
    """The chunk where each row starts.

    Rows ``starts[i]`` up to ``starts[i + 1]`` start in chunk i. ``enters[i]`` says whether chunk
    i begins with more entries of a row that started in an earlier chunk. Both have one item
    more than there are chunks.
    """

    starts: Int64s
    enters: Flags

    def chunks_of(self, first: Int64s | int, last: Int64s | int) -> tuple[Int64s, Int64s]:
        """Return the chunks of rows ``first`` to ``last`` (inclusive): from, to (exclusive)."""
        begin = self.starts.searchsorted(first, "right") - 1
        end = self.starts.searchsorted(np.add(last, 1), "right") - 1
        # The row after the last one starts in chunk `end`. That chunk is needed only when the last
        # row starts there too, or reaches into it from the chunk before.
        shared = (self.starts[end] <= last) | self.enters[end]
        return begin, end + ((end < len(self.starts) - 1) & shared)


class PageClaims(NamedTuple):
    """Statements of pages that their chunk words must agree with; one number per page.

    Parameters
    ----------
    word_sizes, index_sizes
        Bytes of the chunk words, and of the repetition index.
    starts, sizes
        Where the chunks begin in the memory that holds the chunks of all pages, and their bytes.
    num_items, rows
        Visible entries, and rows.
    where_of
        The place of page i, for messages.
    """

    word_sizes: Int64s
    index_sizes: Int64s
    starts: Int64s
    sizes: Int64s
    num_items: Int64s
    rows: Int64s
    where_of: Callable[[int], Where]

    def wrong(self, what: str, page: int, expected: str, found: str) -> CorruptFileError:
        """Return the error for one of the pages."""
        return CorruptFileError(what, expected=expected, found=found, where=self.where_of(page))


@dataclass(slots=True)
class ChunkTable:
    """Chunk i has ``sizes[i]`` bytes from ``offsets[i]`` and ``counts[i]`` values from
    ``firsts[i]`` on; ``offsets`` and ``firsts`` have one item more, the end.

    ``shift`` is the power of two of the values in every chunk but the last of a page, or -1 when
    they differ. If each page has a single chunk, it is larger than any value number. ``pages`` is
    ``None`` for one page. For several it has the number of each page's first chunk, and the number
    of all chunks at the end. ``rows`` is ``None`` without repetition: then rows are values.
    """

    offsets: Int64s
    sizes: Int64s
    firsts: Int64s
    counts: Int64s
    shift: int
    rows: RowIndex | None = None
    pages: Int64s | None = None

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.sizes)

    def ranges_of(self, ids: slice | Int64s, base: int) -> list[ByteRange]:
        """Return the bytes of ascending chunks in a file where the first one begins at ``base``."""
        if isinstance(ids, slice):
            first, last = np.array([ids.start]), np.array([ids.stop])
        else:
            breaks = (np.diff(ids) != 1).nonzero()[0] + 1
            first = ids[np.concatenate(([0], breaks))]
            last = ids[np.concatenate((breaks - 1, [-1]))] + 1
        begin, end = self.offsets[first], self.offsets[last]
        return [
            ByteRange(base + offset, size)
            for offset, size in zip(begin.tolist(), (end - begin).tolist(), strict=True)
        ]

    def find_one(self, value: int) -> int:
        """Return the chunk that holds one value number."""
        if self.shift >= 0 and self.pages is None:
            return min(value >> self.shift, len(self.sizes) - 1)
        return int(self.firsts[1:-1].searchsorted(value, "right"))

    @classmethod
    def of_pages(
        cls, words: pa.Buffer, word_bytes: int, pages: PageClaims, index: pa.Buffer | None = None
    ) -> ChunkTable:
        """Read the chunk words of pages: one table for the chunks of all of them.

        Parameters
        ----------
        words
            The chunk words of all pages, back to back.
        word_bytes
            Bytes of a word: 2 or 4.
        index
            The repetition indices of all pages, back to back; ``None`` for pages without lists.

        Raises
        ------
        CorruptFileError
            The sum of words differs from the bytes and values of their page. Or a chunk has an
            impossible number of values, or the sum of an index differs from the rows of its page.
            Names the first such page.
        """
        chunks = pages.word_sizes // word_bytes
        good = (chunks > 0) & (chunks * word_bytes == pages.word_sizes)
        if np.count_nonzero(good) < len(good):
            at = int(np.argmin(good))
            expected, found = "at least one chunk", "none"
            if pages.word_sizes[at]:
                expected = f"a multiple of {word_bytes} bytes"
                found = f"{pages.word_sizes[at]} bytes"
            raise pages.wrong("chunk words", at, expected, found)
        shift, offsets, sizes, firsts, counts = read_words(
            words, word_bytes, chunks, pages.starts, pages.sizes, pages.num_items
        )
        if shift < -1:
            raise _wrong_words(words, word_bytes, pages, chunks, -2 - shift)
        rows = None if index is None else _row_index(index, chunks, pages)
        borders = np.append(0, chunks.cumsum()) if len(chunks) > 1 else None
        return cls(offsets, sizes, firsts, counts, shift, rows, borders)


def _wrong_words(
    words: pa.Buffer, word_bytes: int, pages: PageClaims, chunks: Int64s, at: int
) -> CorruptFileError:
    """Return the error for the chunk words of a page."""
    first = int(chunks[:at].sum())
    table = as_array(words, f"<u{word_bytes}").astype(np.int64)[first : first + int(chunks[at])]
    held, before = int(((table >> 4) + 1).sum()) << 3, int((1 << (table[:-1] & 15)).sum())
    expected, found = f"chunks of {pages.sizes[at]} bytes in all", f"{held} bytes"
    if held == pages.sizes[at]:
        expected = f"{pages.num_items[at]} values in chunks of 2, 4, … 32768, the rest in the last"
        found = f"{before} values before the last of {chunks[at]} chunks"
    return pages.wrong("chunk words", at, expected, found)


def _sums(numbers: Int64s) -> Int64s:
    """Return the sums of so many of the first numbers, from 0 to all."""
    sums = np.zeros(len(numbers) + 1, np.int64)
    numbers.cumsum(out=sums[1:])
    return sums


def _row_index(index: pa.Buffer, chunks: Int64s, pages: PageClaims) -> RowIndex:
    """Read the repetition indices of pages with so many chunks each."""
    rows = pages.rows
    good = (pages.index_sizes == 16 * chunks) & (rows <= MAX_CHUNK_LEVELS * chunks)
    if not good.all():
        at = int(np.argmin(good))
        expected = f"16 bytes for each of {chunks[at]} chunks"
        found = f"{pages.index_sizes[at]} bytes"
        if pages.index_sizes[at] == 16 * chunks[at]:
            expected = f"at most {MAX_CHUNK_LEVELS} rows per chunk"
            found = f"{rows[at]} rows in {chunks[at]} chunks"
        raise pages.wrong("repetition index", at, expected, found)
    pairs = as_array(index, "<u8").reshape(-1, 2)
    after = chunks.cumsum()
    first, last = after - chunks, after - 1
    continues = pairs[:, 1] > 0
    # Checked before they are added up: the sum might wrap around.
    largest = np.maximum.reduceat(pairs[:, 0], first)
    limit = np.minimum(rows, MAX_CHUNK_LEVELS + 1)  # one row may have begun before
    good = (largest <= limit.astype(np.uint64)) & ~continues[last]
    if not good.all():
        at = int(np.argmin(good))
        expected = f"chunks with at most {limit[at]} rows, none unfinished in the end"
        found = f"{largest[at]} rows in a chunk, {pairs[last[at], 1]} entries left over"
        raise pages.wrong("repetition index", at, expected, found)
    begin = pairs[:, 0].astype(np.int64) + continues
    begin[1:] -= continues[:-1]
    smallest, held = np.minimum.reduceat(begin, first), np.add.reduceat(begin, first)
    good = (smallest >= 0) & (held == rows)
    if not good.all():
        at = int(np.argmin(good))
        found = f"{held[at]} rows, at least {smallest[at]} per chunk"
        raise pages.wrong("repetition index", at, f"{rows[at]} rows", found)
    enters = np.zeros(len(begin) + 1, np.bool_)
    enters[1:] = continues
    return RowIndex(_sums(begin), enters)


@lru_cache(maxsize=1024)
def page_message(
    value: ValueEncoding,
    rep: ValueEncoding | None,
    definition: ValueEncoding | None,
    items: tuple[ValueEncoding, int] | None,
    layers: tuple[Layer, ...],
    num_items: int,
    num_buffers: int,
    word_bytes: int,
) -> pb.PageLayout:
    """Return the message of a page: its encodings and numbers; ``items`` of its dictionary."""
    layout = pb.MiniBlockLayout(
        value_compression=value.to_wire(),
        layers=[pb.RepDefLayer.ValueType(layer) for layer in layers],
        num_buffers=num_buffers,
        repetition_index_depth=int(rep is not None),
        num_items=num_items,
        has_large_chunk=word_bytes == WORD_BYTES[True],
    )
    if rep is not None:
        layout.rep_compression.CopyFrom(rep.to_wire())
    if definition is not None:
        layout.def_compression.CopyFrom(definition.to_wire())
    if items is not None:
        layout.dictionary.CopyFrom(items[0].to_wire())
        layout.num_dictionary_items = items[1]
    return pb.PageLayout(mini_block_layout=layout)


def chunk_words(counts: Int64s, sizes: Int64s, word_bytes: int) -> NDArray[np.unsignedinteger]:
    """Write the chunk words of chunks with these numbers of values and bytes.

    ``counts`` are powers of two except for the last. ``sizes`` are multiples of 8, at most
    32 KiB for words of 2 bytes and 2 GiB for words of 4.
    """
    logs: Int64s = np.frexp(counts)[1].astype(np.int64) - 1
    logs[-1] = 0
    return (((sizes >> 3) - 1) << 4 | logs).astype(f"<u{word_bytes}")


def repetition_index(rep: UInt16s, cuts: Int64s, max_rep: int) -> UInt64s:
    """Write the repetition index of chunks with the entries ``cuts[i]`` to ``cuts[i + 1]``."""
    starts, behind = count_starts(rep, cuts, max_rep)
    fresh = rep[cuts[:-1]] == max_rep
    # Where the next chunk begins with a new row, the row before is finished after all.
    done = np.append(fresh[1:], True)
    pairs = np.empty((len(starts), 2), "<u8")
    pairs[:, 0] = starts - fresh + done
    pairs[:, 1] = np.where(done, 0, behind)
    return pairs.reshape(-1)


MAX_BUFFERS = 64
"""Maximum value buffers per chunk; all known encodings need only a handful."""

MAX_ITEMS = 2**31 - 1
"""Maximum items of a dictionary."""

MAX_IMPLIED_ITEMS = 65_536
"""Maximum items of a dictionary that only the message describes: other items are bounded by their
bytes."""

MAX_LAYOUTS = 256
"""Layouts to remember; text pages have one each, as it includes their symbol table."""

MAX_ENTRIES = 2**48
"""Visible entries that a page may claim, so that the sums of thousands of pages fit in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MiniBlockLayout:
    """The encodings and shape of a mini-block page.

    Parameters
    ----------
    value, rep, definition, dictionary
        Encodings of values, levels and dictionary items; ``None`` where the page has none.
    limits
        Levels that the layers allow.
    nullable_item
        Whether the only layer is a nullable leaf: then validity is a bitmap.
    value_width
        Bytes of a chunk word, and of a value buffer's size in chunk headers: 2 or 4.
    level_buffers, pieces
        Buffers per chunk: of levels, and in all.
    signature
        Equal for pages that can be read as one. Without lists each may have FSST symbols of its
        own; with lists these are part of it, so that single values stay cheap to take.
    """

    value: ValueEncoding
    rep: ValueEncoding | None
    definition: ValueEncoding | None
    dictionary: ValueEncoding | None
    layers: tuple[Layer, ...]
    limits: LevelLimits
    nullable_item: bool
    value_width: int
    level_buffers: int
    pieces: int
    signature: bytes

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> MiniBlockLayout:
        """Read a ``MiniBlockLayout``; check that its parts agree.

        Pages that differ in their numbers of items only share one layout.
        """
        shared = type(message)()
        shared.CopyFrom(message)
        shared.num_items = shared.num_dictionary_items = 0
        key = shared.SerializeToString(deterministic=True)
        layout = _LAYOUTS.get(key)
        if layout is None:
            layout = cls._parse(shared, key, where)
            if len(_LAYOUTS) >= MAX_LAYOUTS:
                _LAYOUTS.clear()
            _LAYOUTS[key] = layout
        return layout

    @classmethod
    def _parse(cls, message: Any, key: bytes, where: Where) -> MiniBlockLayout:
        layers = read_layers(message.layers, where)
        limits = level_limits(layers)
        value = read_encoding(message.value_compression, where)
        num_buffers = message.num_buffers
        if num_buffers != value.num_buffers or num_buffers > MAX_BUFFERS:
            raise CorruptFileError(
                "num_buffers of a mini-block page",
                expected=f"{value.num_buffers} for value encoding {value.wire_name!r}",
                found=f"{num_buffers}",
                where=where,
            )
        parts: dict[str, ValueEncoding | None] = {}
        for name, field in (
            ("rep", "rep_compression"),
            ("definition", "def_compression"),
            ("dictionary", "dictionary"),
        ):
            given = message.HasField(field)
            parts[name] = read_encoding(getattr(message, field), where) if given else None
        _check_repetition(limits.max_rep, parts["rep"], message.repetition_index_depth, where)
        level_buffers = (parts["rep"] is not None) + (parts["definition"] is not None)
        width = WORD_BYTES[message.has_large_chunk]
        if isinstance(value, Fsst) and value.joins and not parts["dictionary"]:
            message.value_compression.fsst.symbol_table = b""
            key = message.SerializeToString(deterministic=True)
        return cls(
            value=value,
            rep=parts["rep"],
            definition=parts["definition"],
            dictionary=parts["dictionary"],
            layers=layers,
            limits=limits,
            nullable_item=layers == (Layer.NULLABLE_ITEM,),
            value_width=width,
            level_buffers=level_buffers,
            pieces=level_buffers + num_buffers,
            signature=key,
        )

    def check_page(self, page: PageBytes, num_items: int, num_dictionary_items: int) -> None:
        """Check the number of the page's buffers, rows, entries and items against the layout."""
        _check_items(self.dictionary, num_dictionary_items, page.where)
        buffers = 2 + (self.dictionary is not None) + (self.rep is not None)
        if len(page.ranges) != buffers:
            raise CorruptFileError(
                "buffers of a mini-block page",
                expected=f"{buffers}",
                found=f"{len(page.ranges)}",
                where=page.where,
            )
        if num_items > MAX_ENTRIES:
            raise CorruptFileError(
                "num_items of a mini-block page",
                expected=f"at most {MAX_ENTRIES}",
                found=f"{num_items}",
                where=page.where,
            )
        if self.rep is None and num_items != page.rows:
            raise CorruptFileError(
                "num_items of a mini-block page without lists",
                expected=f"{page.rows}, one per row",
                found=f"{num_items}",
                where=page.where,
            )


_LAYOUTS: dict[bytes, MiniBlockLayout] = {}


def _check_items(dictionary: ValueEncoding | None, count: int, where: Where) -> None:
    limit = MAX_ITEMS if dictionary is None or dictionary.has_payload else MAX_IMPLIED_ITEMS
    if count > limit:
        raise CorruptFileError(
            "dictionary items", expected=f"at most {limit}", found=str(count), where=where
        )


def _check_repetition(max_rep: int, rep: ValueEncoding | None, depth: int, where: Where) -> None:
    if (rep is not None) != (max_rep > 0):
        raise CorruptFileError(
            "repetition levels of a mini-block page",
            expected=f"levels for {max_rep} list layers",
            found="none" if rep is None else "levels",
            where=where,
        )
    if depth > 1:
        raise UnsupportedFeatureError(
            f"repetition index of depth {depth} (in {where}); this reader knows depth 1. "
            "The file was probably written by a newer Lance: upgrade glaive."
        )
    if depth != (max_rep > 0):
        raise CorruptFileError(
            "repetition index of a mini-block page",
            expected=f"depth {int(max_rep > 0)} for {max_rep} list layers",
            found=f"depth {depth}",
            where=where,
        )
