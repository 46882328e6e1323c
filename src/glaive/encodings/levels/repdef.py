"""Validity and list offsets into repetition and definition levels.

Shredding walks a column from the row inward. :class:`Entries` is the state on the way: one
entry per future level, with the null or empty list that ended it, if any. Levels are numbered
from the inside, so they are assigned only when the leaf is reached (:func:`to_levels`); until
then an entry remembers *which layer* ended it.

The reverse, from levels to offsets and validity, is in ``glaive.kernels.levels``.

Specification: "Levels" in ``docs/format/levels.md``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from glaive.dataclass import dataclass
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.layers import level_plan
from glaive.kernels.list_entries import end_slots, number_ends, spread_lists
from glaive.types import Flags, Int64s, UInt8s, UInt16s

__all__ = [
    "Entries",
    "Levels",
    "add_items",
    "add_lists",
    "flat_levels",
    "multiply",
    "start",
    "to_levels",
]

_ALIVE = 0


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a column, shredded down to some layer.

    ``rep`` numbers list layers from the outside (0 starts a row); ``ended`` is 0 for entries
    that continue, else ``2 * layer + 1`` (null) or ``2 * layer + 2`` (empty), layers counted
    from the outside. ``outer`` is ``ended`` as it was inside the innermost list: entries that had
    ended there have no slot in the current array. None stands for zeros.
    """

    count: int
    layers: tuple[Layer, ...]
    rep: UInt16s | None
    ended: UInt8s | None
    outer: UInt8s | None


@dataclass(frozen=True, slots=True)
class Levels:
    """Stored levels of a leaf, with layers inner-most first."""

    rep: UInt16s | None
    definition: UInt16s | None
    layers: tuple[Layer, ...]


def start(rows: int) -> Entries:
    """Begin with one entry per row."""
    return Entries(rows, (), None, None, None)


def add_items(entries: Entries, valid: Flags | None) -> Entries:
    """Pass a struct or leaf layer; ``valid`` has one flag per slot, None when all are valid.

    What is below a null counts as null: pylance reads a member of a struct without looking at
    the validity of the struct.
    """
    if valid is None or valid.all():
        # Only a null struct ends entries inside of the innermost list.
        below_null = entries.ended is not entries.outer
        layer = Layer.NULLABLE_ITEM if below_null else Layer.ALL_VALID_ITEM
        return replace(entries, layers=(*entries.layers, layer))
    code = 2 * len(entries.layers) + 1
    ended = end_slots(entries.count, entries.ended, entries.outer, valid, code)
    return replace(entries, layers=(*entries.layers, Layer.NULLABLE_ITEM), ended=ended)


def flat_levels(valid: Flags | None) -> Levels:
    """Levels of a column without lists and structs: the same as by :func:`add_items`."""
    if valid is None or valid.all():
        return Levels(None, None, (Layer.ALL_VALID_ITEM,))
    definition = np.logical_not(valid).view(np.uint8).astype(np.uint16)
    return Levels(None, definition, (Layer.NULLABLE_ITEM,))


def add_lists(
    entries: Entries, lengths: Int64s, valid: Flags | None
) -> tuple[Entries, Flags | None]:
    """Pass a list layer: every list that continues becomes one entry per item.

    Parameters
    ----------
    lengths, valid
        Items and validity of the list in each slot; the length of a null list is ignored.

    Returns
    -------
    tuple
        The entries of the items, and which slots keep their items (None: all of them). The
        caller drops the items of the others, so that items and entries with a slot match.
    """
    depth = len(entries.layers)
    # Items after the first of a list repeat at this layer; the first keeps the level of the list.
    repeated = 1 + sum(layer.is_list for layer in entries.layers)
    lists = spread_lists(
        entries.rep, entries.ended, entries.outer, lengths, valid,
        entries=entries.count, repeated=repeated,
        null_code=2 * depth + 1, empty_code=2 * depth + 2,
    )  # fmt: skip
    # A list below a null struct counts as null: pylance would see an item in it otherwise.
    if lists.nulls or lists.ended_outside:
        layer = Layer.NULL_AND_EMPTY_LIST if lists.empties else Layer.NULLABLE_LIST
    else:
        layer = Layer.EMPTYABLE_LIST if lists.empties else Layer.ALL_VALID_LIST
    inside = (*entries.layers, layer)
    after = Entries(len(lists.rep), inside, lists.rep, lists.ended, lists.ended)
    return after, _kept(entries, valid, len(lengths)) if lists.dropped else None


def _kept(entries: Entries, valid: Flags | None, slots: int) -> Flags:
    """Which lists neither are null nor have ended outside."""
    kept = np.ones(slots, np.bool_) if valid is None else valid
    if entries.ended is None:
        return kept
    ended = entries.ended if entries.outer is None else entries.ended[entries.outer == _ALIVE]
    alive: Flags = ended == _ALIVE
    return kept & alive


def multiply(entries: Entries, size: int) -> Entries:
    """Pass into lists of ``size`` items each, which add no layer; null lists have items, too."""
    if size == 1:
        return entries
    rep, ended, outer = entries.rep, entries.ended, entries.outer
    wider = None if ended is None else ended.repeat(size)
    return Entries(
        entries.count * size,
        entries.layers,
        None if rep is None else rep.repeat(size),
        wider,
        wider if outer is ended else None if outer is None else outer.repeat(size),
    )


def to_levels(entries: Entries) -> Levels:
    """Number the levels from the inside, once all layers are known."""
    layers = entries.layers[::-1]
    rep = definition = None
    if entries.rep is not None:
        lists = sum(layer.is_list for layer in layers)
        rep = np.subtract(lists, entries.rep, dtype=np.uint16)
    if any(layer.def_levels for layer in layers):
        table = np.zeros(2 * len(layers) + 1, np.uint16)
        for at, (null, empty) in enumerate(level_plan(layers)):
            outside = len(layers) - 1 - at
            table[2 * outside + 1], table[2 * outside + 2] = null, empty
        ended = np.zeros(entries.count, np.uint8) if entries.ended is None else entries.ended
        definition = number_ends(ended, table)
    return Levels(rep, definition, layers)
