"""What the layers of a page allow its levels to be."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from glaive.encodings.leaf import Layer
from glaive.errors import CorruptFileError
from glaive.types import UInt16s, Where

__all__ = ["LevelLimits", "check_levels", "level_limits", "read_layers"]


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
