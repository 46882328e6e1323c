"""What the layers of a page allow its levels to be, and how each is resolved."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from glaive.encodings.leaf import Layer
from glaive.errors import CorruptFileError
from glaive.named_tuple import NamedTuple
from glaive.types import UInt16s, Where

__all__ = [
    "LayerStep",
    "LevelLimits",
    "check_levels",
    "layer_steps",
    "level_limits",
    "level_plan",
    "list_layers",
    "read_layers",
]

ANY_LEVEL = 65535
"""The highest level there is."""


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


@lru_cache(maxsize=256)
def list_layers(layers: tuple[Layer, ...]) -> tuple[bool, ...]:
    """Which of ``layers`` are of lists."""
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
