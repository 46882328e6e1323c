"""Arguments of the kernel of takes, by name: see ``glaive.kernels.records``."""

from __future__ import annotations

from glaive.named_tuple import NamedTuple

__all__ = ["ChunkPlace", "RowTable", "TakeRows", "TakenColumn"]


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
