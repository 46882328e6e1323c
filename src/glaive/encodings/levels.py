"""Repetition and definition levels, and their replacement in sparse pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from enum import IntEnum
from functools import cache, lru_cache
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import MAX_IMPLIED_POSITIONS, Block, Variable, pack_flags, spread
from glaive.arrow.build import take_block
from glaive.config import MAX_IMPLIED_BYTES
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.kernels.list_levels import end_slots, number_ends, spread_lists
from glaive.types import Flags, Int64s, UInt8s, UInt16s, Where, as_buffer, items_of

# --- Decoded rows of a page: values and levels, before they become an array -------------


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
    """One layer of a leaf, as in Arrow.

    ``validity`` is a bitmap, or ``None`` if all are valid. ``offsets`` are ``count + 1`` numbers
    of 32 or 64 bits from 0 for a list layer, else ``None``.
    """

    count: int
    validity: pa.Buffer | None
    null_count: int
    offsets: NDArray[np.signedinteger] | None = None


@dataclass(slots=True)
class Leaf:
    """Decoded rows of a page.

    ``values`` has one slot per *visible* entry. ``rep`` and ``definition`` are ``uint16``
    arrays of equal length, one per entry, or ``None`` when the page has none. ``validity`` is
    an Arrow bitmap that replaces ``definition`` when ``layers`` is just ``(NULLABLE_ITEM,)``.
    Then ``definition`` is ``None`` and ``null_count`` is exact.
    ``values`` is ``None`` when no entry has a value (all null, or no visible entry).
    ``layers`` is inner-most first.

    Other pages have a ``shape`` instead of levels, layer by layer, inner-most first. Then
    ``rep`` and ``definition`` are ``None``, and ``layers`` only distinguish lists from items.
    ``values`` has one slot per item of the inner-most layer.
    """

    values: Block | None
    rows: int
    entries: int
    layers: tuple[Layer, ...]
    rep: UInt16s | None = None
    definition: UInt16s | None = None
    validity: pa.Buffer | None = None
    null_count: int = 0
    shape: Sequence[Slots] | None = None


# --- The levels that the layers of a page allow, and how each is resolved ---------------

ANY_LEVEL = 65535
"""The highest possible level."""


class LevelLimits(NamedTuple):
    """Highest repetition and definition level, and the highest of entries with a slot."""

    max_rep: int
    max_def: int
    visible_def: int


@cache
def level_limits(layers: tuple[Layer, ...]) -> LevelLimits:
    """Count the levels of ``layers`` (inner-most first)."""
    lists = [at for at, layer in enumerate(layers) if layer.is_list]
    inside = layers[: lists[0]] if lists else layers
    return LevelLimits(
        len(lists),
        sum(layer.def_levels for layer in layers),
        sum(layer.def_levels for layer in inside),
    )


def read_layers(numbers: Iterable[int], where: Where) -> tuple[Layer, ...]:
    """Turn the wire's ``RepDefLayer`` numbers into layers; at least one is needed."""
    try:
        layers = tuple(map(Layer, numbers))
    except ValueError as error:
        raise CorruptFileError(
            "layers", expected="numbers 1 to 6", found=str(error), where=where
        ) from None
    if not layers:
        raise CorruptFileError("layers", expected="at least one", found="none", where=where)
    return layers


def check_levels(
    rep: UInt16s | None, definition: UInt16s | None, limits: LevelLimits, where: Where
) -> None:
    """Refuse levels beyond the limits."""
    for name, levels, highest in (
        ("repetition", rep, limits.max_rep),
        ("definition", definition, limits.max_def),
    ):
        if levels is not None and len(levels) and int(levels.max()) > highest:
            raise CorruptFileError(
                f"{name} levels",
                expected=f"0 to {highest}",
                found=str(int(levels.max())),
                where=where,
            )


def level_plan(layers: tuple[Layer, ...]) -> list[tuple[int, int]]:
    """Return ``(null level, empty level)`` of each layer, inner-most first; 0 if missing."""
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


@lru_cache(maxsize=256)
def list_layers(layers: tuple[Layer, ...]) -> tuple[bool, ...]:
    """Return which of ``layers`` are of lists."""
    return tuple(layer.is_list for layer in layers)


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
    """Return how to resolve each of ``layers``, inner-most first."""
    plan = level_plan(layers)
    spent = [0]
    for layer in layers:
        spent.append(spent[-1] + layer.def_levels)
    steps = []
    for at, layer in enumerate(layers):
        beyond = [k for k in range(at + 1, len(layers)) if layers[k].is_list]
        # Outside of all lists every entry has a slot.
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


# --- Validity and list offsets into repetition and definition levels --------------------
#
# Shredding walks a column from the row inward. :class:`Entries` is the state on the way: one entry
# per future level, with the null or empty list that ended it, if any. Levels are numbered from the
# inside, so :func:`to_levels` assigns them only when the leaf is reached. Until then an entry
# remembers *which layer* ended it.
#
# The reverse, from levels to offsets and validity, is in ``glaive.kernels.levels``.
#
# Specification: "Levels" in ``docs/format/levels.md``.

_CONTINUED = 0


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a column, shredded down to some layer.

    ``rep`` numbers list layers from the outside (0 starts a row). ``ended`` is 0 for entries
    that continue, else ``2 * layer + 1`` (null) or ``2 * layer + 2`` (empty), layers counted
    from the outside. ``outer`` is ``ended`` as it was inside the innermost list: the current array
    lacks a slot for entries that had ended there. ``None`` stands for zeros.
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
    """Pass a struct or leaf layer; ``valid`` has one flag per slot, ``None`` when all are valid.

    Everything below a null counts as null: pylance ignores the validity of a struct when it reads a
    member.
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
    """Return the levels of a flat column: the same as by :func:`add_items`."""
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
        The entries of the items, and which slots keep their items (``None``: all of them). The
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
    """Return which lists are valid and continue from outside."""
    kept = np.ones(slots, np.bool_) if valid is None else valid
    if entries.ended is None:
        return kept
    ended = entries.ended if entries.outer is None else entries.ended[entries.outer == _CONTINUED]
    alive: Flags = ended == _CONTINUED
    return kept & alive


def multiply(entries: Entries, size: int) -> Entries:
    """Pass into lists of ``size`` items each, in the same layer; null lists have items, too."""
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


# --- Validity of slots and sizes of lists, kept as positions ----------------------------
#
# A column of a million empty lists and a few filled ones takes a few numbers this way. Positions
# ascend; ranges and single slots are found by bisection, a batch at a time.
#
# Specification: "Sparse structure" in ``docs/format/planes.md``.

MAX_IMPLIED_LISTS = MAX_IMPLIED_BYTES // 8
"""Maximum lists of an array whose offsets take memory beyond the bytes of the file."""

_EMPTY = np.zeros(0, np.int64)
_EMPTY.setflags(write=False)


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity of ``count`` slots: the slots at ``positions`` are valid, or all others are."""

    count: int
    positions: Int64s = field(default_factory=lambda: _EMPTY)
    are_valid: bool = False

    @property
    def valid_count(self) -> int:
        """Number of valid slots."""
        listed = len(self.positions)
        return listed if self.are_valid else self.count - listed

    @property
    def all_valid(self) -> bool:
        """Whether all slots are valid."""
        return self.valid_count == self.count

    def flags(self, start: int, stop: int) -> Flags | None:
        """Return one flag per slot of a range; ``None`` when all of them are valid."""
        low, high = self.positions.searchsorted((start, stop)).tolist()
        if high - low == (stop - start if self.are_valid else 0):
            return None
        _check_count(stop - start, MAX_IMPLIED_BYTES, "values, nearly all of them null,")
        flags = np.full(stop - start, not self.are_valid)
        flags[self.positions[low:high] - start] = self.are_valid
        return flags

    def flags_at(self, slots: Int64s) -> Flags | None:
        """Return one flag per slot given; ``None`` when all of them are valid."""
        if self.all_valid:
            return None
        at = self.positions.searchsorted(slots)
        listed = np.zeros(len(slots), np.bool_)
        if len(self.positions):
            listed = self.positions[np.minimum(at, len(self.positions) - 1)] == slots
        flags = listed if self.are_valid else ~listed
        return None if flags.all() else flags

    def rank(self, slots: Int64s) -> Int64s:
        """Number of valid slots in front of each slot given."""
        before: Int64s = self.positions.searchsorted(slots)
        return before if self.are_valid else slots - before

    def repeated(self, times: int) -> Self:
        """Return the same with each slot repeated ``times`` times."""
        positions = self.positions
        if len(positions):  # only positions limit ``times``, which may be huge
            positions = np.add.outer(positions * times, np.arange(times)).reshape(-1)
        return replace(self, count=self.count * times, positions=positions)

    @classmethod
    def of_all(cls, layers: Sequence[Self], count: int) -> Self:
        """Return the slots that are valid in all layers, which have ``count`` slots each."""
        partial = [layer for layer in layers if not layer.all_valid]
        if not partial:
            return cls(count)
        if len(partial) == 1:
            return partial[0]
        if not any(layer.are_valid for layer in partial):
            return cls(count, np.unique(np.concatenate([layer.positions for layer in partial])))
        # Only positions are stored: a few bytes can describe billions of slots.
        first, *rest = sorted(partial, key=lambda layer: not layer.are_valid)
        positions = first.positions
        for layer in rest:
            listed = np.isin(positions, layer.positions)
            positions = positions[listed if layer.are_valid else ~listed]
        return cls(count, positions, are_valid=True)


@dataclass(frozen=True, slots=True)
class ListSlots:
    """Lists with items: slot ``positions[i]`` has items ``ends[i]`` to ``ends[i + 1]``."""

    positions: Int64s
    ends: Int64s

    def range_of(self, start: int, stop: int) -> tuple[Int64s, int, int]:
        """Return offsets (from 0) of the lists in a range of slots, and their range of items."""
        low, high = self.positions.searchsorted((start, stop)).tolist()
        ends = self.ends[low : high + 1]
        first, last = int(ends[0]), int(ends[-1])
        if high - low == stop - start:
            return ends - first, first, last
        _check_count(stop - start, MAX_IMPLIED_LISTS, "lists, nearly all of them empty,")
        offsets = np.zeros(stop - start + 1, np.int64)
        offsets[self.positions[low:high] - start + 1] = np.diff(ends)
        offsets.cumsum(out=offsets)
        return offsets, first, last

    def take(self, slots: Int64s) -> tuple[Int64s, Int64s]:
        """Return offsets (from 0) of the lists in given slots, and positions of their items.

        Raises
        ------
        CapacityError
            Several lists have more items than are listed at once.
        """
        count = len(self.positions)
        offsets = np.zeros(len(slots) + 1, np.int64)
        if not count:
            return offsets, _EMPTY
        at = self.positions.searchsorted(slots)
        np.minimum(at, count - 1, out=at)
        begin = self.ends[at]
        sizes = np.where(self.positions[at] == slots, self.ends[at + 1] - begin, 0)
        sizes.cumsum(out=offsets[1:])
        return offsets, spread(begin, sizes, MAX_IMPLIED_POSITIONS)


def _check_count(count: int, limit: int, items: str) -> None:
    if count > limit:
        raise UnsupportedFeatureError(
            f"{count} {items} in one array, at most {limit} are allowed. Read fewer rows at a "
            "time; if the file should not have as many, it is damaged."
        )


def bitmap_of(flags: Flags | None) -> tuple[pa.Buffer | None, int]:
    """Return the flags as a bitmap, and the number of nulls."""
    if flags is None:
        return None, 0
    return pack_flags(flags), len(flags) - int(np.count_nonzero(flags))


def place_values(block: Block, flags: Flags | None) -> Block:
    """Put the values into the flagged slots, in order; other slots hold a placeholder.

    Strings are views of the same bytes.
    """
    if flags is None:
        return block
    ranks = flags.cumsum()
    if isinstance(block, Variable):
        offsets = items_of(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1)
        placed = offsets[np.concatenate(([0], ranks))]
        return Variable(as_buffer(placed), block.offset_bits, block.data, len(flags))
    return take_block(block, np.maximum(ranks - 1, 0))
