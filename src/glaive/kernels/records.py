"""Records that compiled kernels read from memory, and conventions of their arguments.

Wrappers call kernels by keyword, in the order of the parameters (``loops.entry``). Kernels that
call each other do so by keyword, too, where they have many parameters.

Each number is an ``int64``: a size, a count, a limit or an address. The wrapper keeps arrays and
buffers alive during the call; the address of a missing one is 0. Unless a kernel says otherwise,
addresses with plural names are of ``int64`` arrays, one item per chunk or row.

A record has such numbers under names. Wrappers write it to memory with :func:`packed`.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from glaive.dataclass import NamedTuple
from glaive.types import Int64s

Record = TypeVar("Record", bound=tuple[int, ...])


def packed(record: tuple[int, ...]) -> Int64s:
    """Return a record as an array, for kernels that read it from memory; see :func:`offsets_of`."""
    return np.fromiter(record, np.int64, len(record))


def offsets_of(record: type[Record]) -> Record:
    """Return the byte offsets of the members of a packed record, by name.

    Parameters
    ----------
    record
        A named tuple whose members are ``int64`` numbers.
    """
    names = getattr(record, "_fields")  # noqa: B009  # tuples without names have none
    return record(*range(0, 8 * len(names), 8))


class LevelPage(NamedTuple):
    """Level encodings of a page with lists, and limits of its levels; read from memory.

    ``rep`` and ``definition`` are 0 absent, 1 plain, 2 packed to a width in bits, 3 packed inline,
    4 runs.

    Chunks have ``value_buffers``, whose sizes take ``value_width`` bytes in their header, 2 or 4.
    Definition levels up to ``visible_max`` stand for an entry of the innermost list. A null list
    has the level ``null_list``, a null item ``null_item``; 0 where all are valid.

    ``values`` and ``value_bits`` are the encoding of values that kernels read themselves: 0 others,
    1 plain words of so many bits, 3 words packed inline.
    """

    rep: int
    rep_width: int
    definition: int
    def_width: int
    value_buffers: int
    value_width: int
    max_rep: int
    visible_max: int
    max_def: int
    null_list: int = 0
    null_item: int = 0
    values: int = 0
    value_bits: int = 0


class WordRanges(NamedTuple):
    """A test of integers of ``bits`` bits, 8 to 64; read from memory.

    ``lows`` and ``spans`` are ``uint64`` arrays of ``ranges`` items, ascending; the last range may
    wrap around from the largest integer to 0. The other members are 0, or represent the same set:

    - ``table`` has one byte per integer from 0 to ``limit``.
    - ``bitset`` has one bit per integer from ``base`` to ``base + top``; the last bit is clear.
    - ``prefilter`` has one bit per hash shifted by ``shift``. Integers whose bit is clear fail.
    - ``slots`` is the hash table of the integers ``words``, with 2 ** ``slot_bits`` slots and the
      factor ``secret`` (``glaive.kernels.loops.hashing``).

    With a ``limit`` of at least 0, integers above it are damage. ``base`` and ``top`` are
    ``uint64`` bits.
    """

    bits: int
    lows: int = 0
    spans: int = 0
    ranges: int = 0
    limit: int = -1
    table: int = 0
    bitset: int = 0
    base: int = 0
    top: int = 0
    prefilter: int = 0
    shift: int = 0
    slots: int = 0
    words: int = 0
    slot_bits: int = 0
    secret: int = 0


class ChunkRows(NamedTuple):
    """The chunks of a page with lists, and the rows in them; read from memory.

    ``row_starts`` has an item more than there are ``chunks``, ``enters`` one byte each.
    """

    sizes: int
    counts: int
    row_starts: int
    enters: int
    chunks: int


# --- Records of the kernel of takes ----------------------------------------------------


class ChunkPlace(NamedTuple):
    """Where a chunk is: ``size`` bytes from ``start``; it has ``values``, from number ``first`` on.

    Values that are numbers of items are below ``limit``, from ``base`` on. A line of the cache has
    two places, or one place of a page with items, which has two unused numbers.
    """

    start: int
    first: int
    size: int
    values: int
    base: int = 0
    limit: int = 0


class RowTable(NamedTuple):
    """Pages outside of lists, read as one, and how to take their column; read from memory.

    Chunk i has a ``ChunkPlace``, ``1 << place_shift`` bytes each, at ``chunk_places``. Page p
    begins with value ``starts[p]`` and chunk ``first_chunks[p]``; its chunks have ``1 << shift``
    values, or more in the last, or differ where ``shift`` is -1.

    ``definition``, ``def_width`` and ``max_def`` are as for ``LevelPage``; with ``nullable`` a
    level of 1 is a null. ``values`` is the encoding of values: 1 plain ones of ``bits`` bits, 3
    words packed inline, 4 runs of words, 5 and 6 strings with offsets of ``bits`` bits. Strings of
    encoding 6 are FSST codes: ``symbols`` has :data:`SYMBOLS_BYTES` of symbols for each page.

    If ``item_width`` is above 0, values are numbers of ``items`` items, and the kernel takes the
    items: strings of ``item_data``, from ``item_offsets`` of ``item_width`` bytes. Or values of
    ``item_width`` bytes, if ``item_offsets`` is 0. If only ``items`` is above 0, words are numbers
    of so many items, and the kernel takes the words.

    Row r of the dataset is value ``r - first_row``.
    """

    data: int
    data_size: int
    chunk_places: int
    place_shift: int
    chunks: int
    starts: int
    first_chunks: int
    pages: int
    shift: int
    value_width: int
    definition: int
    def_width: int
    max_def: int
    nullable: int
    values: int
    bits: int
    symbols: int = 0
    items: int = 0
    item_width: int = 0
    item_offsets: int = 0
    item_data: int = 0
    item_data_size: int = 0
    first_row: int = 0


class TakenColumn(NamedTuple):
    """Place of a taken column, from the beginning of the memory; stored by the kernel.

    ``values`` are values, bits, or the bytes of strings, ``size`` bytes in all; ``offsets``,
    ``validity`` and ``levels`` are -1 if absent.
    """

    values: int
    size: int
    offsets: int
    validity: int
    nulls: int
    levels: int


# --- Records of strings -----------------------------------------------------------------


class DecodeState(NamedTuple):
    """How far decoding has come, in memory: a kernel resumes there with a larger output."""

    chunk: int
    values: int
    size: int


class TrainRound(NamedTuple):
    """A round of training, in memory: values, minimum occurrences, weight of a pair in tenths."""

    values: int
    min_count: int
    pair_weight: int


class Candidate(NamedTuple):
    """A candidate for a symbol, in memory: its bytes as a number, their count, and its gain."""

    word: int
    size: int
    gain: int


class SymbolSlot(NamedTuple):
    """A slot of a trained table, in memory: the symbol, the bits that count, and its entry."""

    word: int
    mask: int
    entry: int


# --- Records of full-text search --------------------------------------------------------


class TermEntry(NamedTuple):
    """A posting list to be searched: ``length`` documents with weights, and bounds of blocks.

    ``documents`` and ``lasts`` are ``uint32`` arrays, ``weights`` and ``bests`` ``float32``.
    """

    documents: int
    weights: int
    lasts: int
    bests: int
    length: int


class PhraseEntry(NamedTuple):
    """A term of a phrase: its list, and where it stands in each document.

    Document i has ``positions`` from ``starts[i]`` to ``starts[i + 1]``, of ``total``; ``offset``
    is the place of the term in the phrase.
    """

    list: int
    starts: int
    positions: int
    total: int
    offset: int
