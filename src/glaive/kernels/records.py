"""What compiled kernels are called with: one record per call, its numbers by name.

A kernel that needs many numbers has a record with the same names, which wrappers make by keyword
and spread: ``kernel(*record)``. ``loops.memory.loop_of`` compares the names when the kernel is
defined, so two addresses cannot be swapped unseen. Kernels that call each other do so by keyword.
(numba takes named tuples as well, but that costs microseconds per call, and its cache on disk
cannot be read once a name is gone.)

Each number is an ``int64``: the address of an array or buffer whose owner the wrapper keeps alive
during the call, 0 for one that is not there; or a size, a count or a limit. Unless a kernel says
otherwise, addresses named in the plural are of ``int64`` arrays, one item per chunk or row.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "KeepInline",
    "LevelPage",
    "MeasureEntries",
    "MendGraph",
    "PickRows",
    "ReadChunks",
    "ReorderRows",
    "ResolveLists",
    "UnzipEntries",
    "WordRanges",
    "ZipEntries",
    "offsets_of",
    "packed",
]

Record = TypeVar("Record", bound=tuple[int, ...])


def packed(record: tuple[int, ...]) -> NDArray[np.int64]:
    """A record in memory, for kernels that read it there; see :func:`offsets_of`."""
    return np.fromiter(record, np.int64, len(record))


def offsets_of(record: type[Record]) -> Record:
    """Byte offsets of the members of a record that lies in memory, under their names.

    Parameters
    ----------
    record
        A named tuple whose members are ``int64`` numbers, one behind the other.
    """
    names = getattr(record, "_fields")  # noqa: B009  # tuples without names have none
    return record(*range(0, 8 * len(names), 8))


class LevelPage(NamedTuple):
    """Levels of a page with lists, and what its chunks must hold; read from memory.

    ``rep`` and ``definition`` are 0 none, 1 plain, 2 packed to a width in bits, 3 packed inline,
    4 runs.

    Chunks have ``value_pieces``, whose sizes take ``value_width`` bytes in their header, 2 or 4.
    Definition levels up to ``visible_max`` stand for an entry of the innermost list.
    """

    rep: int
    rep_width: int
    definition: int
    def_width: int
    value_pieces: int
    value_width: int
    max_rep: int
    visible_max: int
    max_def: int


class WordRanges(NamedTuple):
    """A test that integers of ``bits`` bits, 8 to 64, pass; read from memory.

    ``lows`` and ``spans`` are ``uint64`` arrays of ``ranges`` items, ascending; the last range may
    go on at 0 behind the largest integer. The others say the same, if they are not 0: ``table``
    has one byte per integer from 0 to ``limit``; ``marks`` is a bitmap of the integers from
    ``base`` on up to ``top``, which is a bit that is clear; ``sieve`` is a bitmap by the upper bits
    of hashes, those above ``shift``: where the bit of an integer is not set, it does not pass;
    ``slots`` are as of ``glaive.kernels.loops.lookup``, 2 ** ``slot_bits`` of them, for the
    integers ``words``. With a ``limit`` of at least 0, integers above it are damage. ``base`` and
    ``top`` are ``uint64`` bits.
    """

    bits: int
    lows: int = 0
    spans: int = 0
    ranges: int = 0
    limit: int = -1
    table: int = 0
    marks: int = 0
    base: int = 0
    top: int = 0
    sieve: int = 0
    shift: int = 0
    slots: int = 0
    words: int = 0
    slot_bits: int = 0


class MendGraph(NamedTuple):
    """For ``graph.mend``."""

    offsets: int
    nodes: int
    kept: int
    damaged: int
    damaged_count: int
    vectors: int
    place: int
    dimension: int
    dot: int
    stamps: int
    scratch: int
    room: int
    into_counts: int
    into_nodes: int
    into_distances: int


class KeepInline(NamedTuple):
    """For ``keep.keep_inline``."""

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
    room: int
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
    room: int


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
    piece_starts: int
    piece_sizes: int
    firsts: int
    rep: int
    definition: int
    room: int


class PickRows(NamedTuple):
    """For ``list_rows.pick_rows``."""

    data: int
    data_size: int
    sizes: int
    counts: int
    row_starts: int
    enters: int
    table_chunks: int
    ids: int
    starts: int
    chunks: int
    page: int
    rows: int
    begin: int
    last: int
    wanted: int
    scratch_rep: int
    scratch_def: int
    scratch_room: int
    piece_starts: int
    piece_sizes: int
    lengths: int
    values: int
    rep_out: int
    def_out: int
    slots: int
    positions: int
    room: int


class ReorderRows(NamedTuple):
    """For ``list_rows.reorder_rows``."""

    order: int
    lengths: int
    values: int
    wanted: int
    rep: int
    definition: int
    slots: int
    positions: int
    begins: int
    rep_out: int
    def_out: int
    slots_out: int
    index_out: int


class MeasureEntries(NamedTuple):
    """For ``zipped.measure``."""

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
    """For ``zipped.unzip``."""

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
    """For ``zipped.zip_entries``."""

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
