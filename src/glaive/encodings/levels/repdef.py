"""Validity and list offsets into repetition and definition levels.

Shredding walks a column from the row inward. :class:`Entries` is the state on the way: one
entry per future level, with the null or empty list that ended it, if any. Levels are numbered
from the inside, so they are assigned only when the leaf is reached (:func:`to_levels`); until
then an entry remembers *which layer* ended it.

The reverse, from levels to offsets and validity, is in ``glaive.kernels.levels``.

Specification: "Levels" in ``docs/format/levels.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from glaive.encodings.leaf import Layer
from glaive.types import Flags, Int64s, UInt8s, UInt16s

__all__ = [
    "Entries",
    "LayerStep",
    "Levels",
    "add_items",
    "add_lists",
    "flat_levels",
    "layer_steps",
    "level_plan",
    "multiply",
    "start",
    "to_levels",
]

_ALIVE = 0

ANY_LEVEL = 65535
"""The highest level there is."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a column, shredded down to some layer.

    ``rep`` numbers list layers from the outside (0 starts a row); ``ended`` is 0 for entries
    that continue, else ``2 * layer + 1`` (null) or ``2 * layer + 2`` (empty), layers counted
    from the outside. ``slotted`` flags the entries that have a slot in the current array (None:
    all): those that an outer list ended have none.
    """

    count: int
    layers: tuple[Layer, ...]
    rep: UInt16s | None
    ended: UInt8s | None
    slotted: Flags | None


@dataclass(frozen=True, slots=True)
class Levels:
    """Stored levels of a leaf, with layers inner-most first."""

    rep: UInt16s | None
    definition: UInt16s | None
    layers: tuple[Layer, ...]
    visible: int


def start(rows: int) -> Entries:
    """Begin with one entry per row."""
    return Entries(rows, (), None, None, None)


def add_items(entries: Entries, valid: Flags | None) -> Entries:
    """Pass a struct or leaf layer; ``valid`` has one flag per slot, None when all are valid.

    What is below a null counts as null: pylance reads a member of a struct without looking at
    the validity of the struct.
    """
    if valid is None or valid.all():
        below_null = entries.ended is not None and _has_ended(entries)
        layer = Layer.NULLABLE_ITEM if below_null else Layer.ALL_VALID_ITEM
        return replace(entries, layers=(*entries.layers, layer))
    code = np.uint8(2 * len(entries.layers) + 1)
    ended = _ended(entries)
    null = np.zeros(entries.count, np.bool_)
    null[entries.slotted if entries.slotted is not None else slice(None)] = ~valid
    ended[null & (ended == _ALIVE)] = code
    return replace(entries, layers=(*entries.layers, Layer.NULLABLE_ITEM), ended=ended)


def flat_levels(rows: int, valid: Flags | None) -> Levels:
    """Levels of a column without lists and structs: the same as by :func:`add_items`."""
    if valid is None or valid.all():
        return Levels(None, None, (Layer.ALL_VALID_ITEM,), rows)
    definition = np.logical_not(valid).view(np.uint8).astype(np.uint16)
    return Levels(None, definition, (Layer.NULLABLE_ITEM,), rows)


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
        caller drops the items of the others, so that items and slotted entries match.
    """
    depth = len(entries.layers)
    ended = _ended(entries) if entries.ended is not None else None
    slot_lengths = lengths
    keep: Flags | None = None
    live = entries.ended is None
    if entries.ended is not None:
        in_slot = entries.ended if entries.slotted is None else entries.ended[entries.slotted]
        alive = in_slot == _ALIVE
        live = bool(alive.all())
        if not live:
            keep = alive
    has_nulls = valid is not None and not valid.all()
    if has_nulls and valid is not None:
        keep = valid if keep is None else keep & valid
    if keep is not None:
        slot_lengths = np.where(keep, lengths, 0)
    empty = slot_lengths == 0
    if keep is not None:
        empty &= keep
    has_empty = bool(empty.any())
    # A list below a null struct counts as null: pylance would see an item in it otherwise.
    layer = (
        (Layer.NULL_AND_EMPTY_LIST if has_empty else Layer.NULLABLE_LIST)
        if has_nulls or not live
        else (Layer.EMPTYABLE_LIST if has_empty else Layer.ALL_VALID_LIST)
    )
    where = entries.slotted if entries.slotted is not None else slice(None)
    if has_nulls or has_empty:
        if ended is None:
            ended = np.zeros(entries.count, np.uint8)
        in_slot = ended[where]
        going = in_slot == _ALIVE
        if has_nulls and valid is not None:
            in_slot[going & ~valid] = 2 * depth + 1
        in_slot[going & empty] = 2 * depth + 2
        ended[where] = in_slot
    counts = np.ones(entries.count, np.int64)
    counts[where] = np.maximum(slot_lengths, 1)
    total = int(counts.sum())
    first = np.cumsum(counts) - counts
    # Items after the first of a list repeat at this layer; the first keeps the level of the list.
    lists = 1 + sum(layer.is_list for layer in entries.layers)
    rep = np.full(total, lists, np.uint16)
    rep[first] = entries.rep if entries.rep is not None else 0
    new_ended = slotted = None
    if ended is not None and ended.any():
        new_ended = np.zeros(total, np.uint8)
        new_ended[first] = ended
        slotted = new_ended == _ALIVE
    if keep is not None and not lengths[~keep].any():
        keep = None
    after = Entries(total, (*entries.layers, layer), rep, new_ended, slotted)
    return after, keep


def multiply(entries: Entries, size: int) -> Entries:
    """Pass into lists of ``size`` items each, which add no layer; null lists have items, too."""
    if size == 1:
        return entries
    rep, ended, slotted = entries.rep, entries.ended, entries.slotted
    return Entries(
        entries.count * size,
        entries.layers,
        None if rep is None else rep.repeat(size),
        None if ended is None else ended.repeat(size),
        None if slotted is None else slotted.repeat(size),
    )


def _has_ended(entries: Entries) -> bool:
    """Whether a slot belongs to an entry that has ended."""
    ended = _ended(entries)
    return bool((ended if entries.slotted is None else ended[entries.slotted]).any())


def _ended(entries: Entries) -> UInt8s:
    if entries.ended is None:
        return np.zeros(entries.count, np.uint8)
    return entries.ended.copy()


def to_levels(entries: Entries) -> Levels:
    """Number the levels from the inside, once all layers are known."""
    layers = entries.layers[::-1]
    lists = sum(layer.is_list for layer in layers)
    rep = None
    if entries.rep is not None:
        rep = (lists - entries.rep).astype(np.uint16, copy=False)
    definition = None
    top = sum(layer.def_levels for layer in layers)
    if top:
        table = np.zeros(2 * len(layers) + 1, np.uint16)
        for at, (null, empty) in enumerate(level_plan(layers)):
            outside = len(layers) - 1 - at
            table[2 * outside + 1], table[2 * outside + 2] = null, empty
        definition = (
            np.zeros(entries.count, np.uint16) if entries.ended is None else table[entries.ended]
        )
    visible = entries.count
    if entries.slotted is not None:
        visible = int(np.count_nonzero(entries.slotted))
    return Levels(rep, definition, layers, visible)


def level_plan(layers: tuple[Layer, ...]) -> list[tuple[int, int]]:
    """Return ``(null level, empty level)`` of each layer, inner-most first; 0 where none."""
    plan, used = [], 0
    for layer in layers:
        null = empty = 0
        if layer in (Layer.NULLABLE_ITEM, Layer.NULLABLE_LIST, Layer.NULL_AND_EMPTY_LIST):
            used += 1
            null = used
        if layer in (Layer.EMPTYABLE_LIST, Layer.NULL_AND_EMPTY_LIST):
            used += 1
            empty = used
        plan.append((null, empty))
    return plan


class LayerStep(NamedTuple):
    """How to resolve one layer; see ``resolve_lists`` for the level bounds."""

    is_list: bool
    null_level: int
    visible_max: int
    resolved_max: int
    slot_max: int
    list_outside: bool
    outer: bool


@lru_cache(maxsize=256)
def layer_steps(layers: tuple[Layer, ...]) -> tuple[LayerStep, ...]:
    """How to resolve each of ``layers``, inner-most first."""
    plan = level_plan(layers)
    spent = [0]
    for layer in layers:
        spent.append(spent[-1] + layer.def_levels)
    steps = []
    for at, layer in enumerate(layers):
        beyond = [k for k in range(at + 1, len(layers)) if layers[k].is_list]
        # Without a list outside every entry has a slot: no level needs to be compared.
        slot_max = spent[beyond[0]] if beyond else ANY_LEVEL
        steps.append(
            LayerStep(
                layer.is_list,
                plan[at][0],
                spent[at],
                spent[at + 1],
                slot_max,
                bool(beyond),
                at + 1 < len(layers),
            )
        )
    return tuple(steps)
