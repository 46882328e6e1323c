"""Arguments of compiled kernels with many numbers: one record per call, its numbers by name.

Wrappers make the record by keyword and unpack it: ``kernel(*record)``. ``loops.memory.kernel_of``
compares the names with the parameters when the kernel is defined, so no two addresses can be
swapped by mistake. Kernels that call each other do so by keyword. (numba accepts named tuples,
but that costs microseconds per call, and its cache on disk cannot be read once a name has changed.)

Each number is an ``int64``: the address of an array or buffer that the wrapper keeps alive during
the call, 0 if there is none; or a size, a count or a limit. Unless a kernel says otherwise,
addresses with plural names are of ``int64`` arrays, one item per chunk or row.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

Record = TypeVar("Record", bound=tuple[int, ...])


def packed(record: tuple[int, ...]) -> Int64s:
    """A record as an array, for kernels that read it from memory; see :func:`offsets_of`."""
    return np.fromiter(record, np.int64, len(record))


def offsets_of(record: type[Record]) -> Record:
    """Byte offsets of the members of a packed record, by name.

    Parameters
    ----------
    record
        A named tuple whose members are ``int64`` numbers.
    """
    names = getattr(record, "_fields")  # noqa: B009  # tuples without names have none
    return record(*range(0, 8 * len(names), 8))


class LevelPage(NamedTuple):
    """Level encodings of a page with lists, and limits of its levels; read from memory.

    ``rep`` and ``definition`` are 0 none, 1 plain, 2 packed to a width in bits, 3 packed inline,
    4 runs.

    Chunks have ``value_buffers``, whose sizes take ``value_width`` bytes in their header, 2 or 4.
    Definition levels up to ``visible_max`` stand for an entry of the innermost list. A null list
    has the level ``null_list``, a null item ``null_item``; 0 where there is none.

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
    wrap around from the largest integer to 0. The other members, where not 0, represent the same
    set: ``table`` has one byte per integer from 0 to ``limit``; ``bitset`` has one bit per integer
    from ``base`` to ``base + top``, the last of which is clear; ``prefilter`` has one bit per hash
    shifted by ``shift``: an integer whose bit is clear does not pass; ``slots`` is the hash table
    of the integers ``words``, with 2 ** ``slot_bits`` slots and the factor ``secret``
    (``glaive.kernels.loops.hashing``).
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


class CompactInline(NamedTuple):
    """For ``compact.compact_inline``."""

    data: int
    data_size: int
    starts: int
    sizes: int
    counts: int
    chunks: int
    word_bits: int
    low: int
    rows: int
    bits: int
    begin: int
    target: int
    capacity: int
    scratch: int


class ResolveLists(NamedTuple):
    """For ``levels.resolve_lists``."""

    rep: int
    definition: int
    entries: int
    visible_max: int
    resolved_max: int
    slot_max: int
    null_level: int
    offsets: int
    width: int
    valid: int
    next_rep: int
    next_def: int
    capacity: int


class SpreadLists(NamedTuple):
    """For ``list_entries.spread_lists``."""

    rep: int
    ended: int
    outer: int
    entries: int
    lengths: int
    valid: int
    null_code: int
    empty_code: int
    rep_out: int
    ended_out: int


class ReadChunks(NamedTuple):
    """For ``list_levels.read_chunks``."""

    data: int
    data_size: int
    starts: int
    sizes: int
    counts: int
    row_starts: int
    enters: int
    chunks: int
    page: int
    buffer_starts: int
    buffer_sizes: int
    firsts: int
    rep: int
    definition: int
    capacity: int


class ChunkRows(NamedTuple):
    """The chunks of a page with lists, and the rows in them; read from memory.

    ``row_starts`` has an item more than there are ``chunks``, ``enters`` one byte each.
    """

    sizes: int
    counts: int
    row_starts: int
    enters: int
    chunks: int


class TakeItemLists(NamedTuple):
    """For ``list_takes.take_item_lists``.

    ``begin`` to ``back`` have an item per row, ``ids``, ``buffer_starts`` and ``buffer_sizes``
    one per chunk up to ``chunk_capacity``; ``value_capacity`` is of all that have one per value.
    """

    data: int
    data_size: int
    starts: int
    table: int
    page: int
    rows: int
    order: int
    wanted: int
    begin: int
    last: int
    places: int
    lengths: int
    firsts: int
    nulls: int
    back: int
    ids: int
    buffer_starts: int
    buffer_sizes: int
    chunk_capacity: int
    sets: int
    taken_valid: int
    value_capacity: int
    offsets: int
    width: int
    list_valid: int
    item_valid: int
    slots: int
    positions: int
    result: int


class MeasureEntries(NamedTuple):
    """For ``full_zip.measure``."""

    data: int
    starts: int
    stops: int
    rows: int
    control: int
    bits_def: int
    max_rep: int
    max_def: int
    visible_def: int
    width: int
    prefix: int
    totals: int


class UnzipEntries(NamedTuple):
    """For ``full_zip.unzip``."""

    data: int
    starts: int
    stops: int
    rows: int
    control: int
    bits_def: int
    visible_def: int
    width: int
    prefix: int
    reps: int
    levels: int
    offset_width: int
    offsets: int
    out: int


class ZipEntries(NamedTuple):
    """For ``full_zip.zip_entries``."""

    words: int
    entries: int
    control: int
    bits_def: int
    max_rep: int
    visible_def: int
    width: int
    prefix: int
    offsets: int
    offset_width: int
    values: int
    out: int
    row_starts: int


class LocateValues(NamedTuple):
    """For ``locate.locate_values``."""

    values: int
    wanted: int
    starts: int
    first_chunks: int
    pages: int
    shift: int
    firsts: int
    chunks: int
    numbers: int
    slots: int
    places: int
    ids: int


# --- Arguments of the kernel of takes, by name: see ``glaive.kernels.records`` ----------


class ChunkPlace(NamedTuple):
    """Where a chunk is: ``size`` bytes from ``start``; it has ``values``, from number ``first`` on.

    Values that are numbers of items are below ``limit``, from ``base`` on. Two of them fit in a
    line of the cache, or one of those with items, which have two numbers more without a use.
    """

    start: int
    first: int
    size: int
    values: int
    base: int = 0
    limit: int = 0


class RowTable(NamedTuple):
    """Pages without lists, read as one, and how their column is to be taken; read from memory.

    Chunk i has a ``ChunkPlace``, ``1 << place_shift`` bytes each, at ``chunk_places``. Page p
    begins with value ``starts[p]`` and chunk ``first_chunks[p]``; its chunks have ``1 << shift``
    values, or more in the last, or differ where ``shift`` is -1.

    ``definition``, ``def_width`` and ``max_def`` are as for ``LevelPage``; with ``nullable`` a
    level of 1 is a null. ``values`` is the encoding of values: 1 plain ones of ``bits`` bits, 3
    words packed inline, 5 strings with offsets of so many bits, 6 the same in FSST codes, where
    page p has the symbols at ``symbols``, :data:`SYMBOLS_BYTES` each.

    Where ``item_width`` is not 0, values are numbers of items, and these are what is taken:
    strings of ``item_data`` from ``item_offsets`` of as many bytes, ``items`` in all.

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


class TakeRows(NamedTuple):
    """For ``row_takes.take_rows``: ``tables`` has a ``RowTable`` per column.

    ``pages`` has room for a number of each row.
    """

    tables: int
    columns: int
    rows: int
    wanted: int
    memory: int
    room: int
    scratch: int
    pages: int
    taken: int


class TakenColumn(NamedTuple):
    """Where a column was put, from the beginning of the memory; stored by the kernel.

    ``values`` are words, bits, or the bytes of strings, ``size`` bytes in all; ``offsets``,
    ``validity`` and ``levels`` are -1 where there are none.
    """

    values: int
    size: int
    offsets: int
    validity: int
    nulls: int
    levels: int
