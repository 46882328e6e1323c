"""Steps as a graph: a drawing in SVG, and lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

__all__ = ["levels", "render_graph"]

_WIDTH: Final = 150
_HEIGHT: Final = 34
_GAP_X: Final = 50
_GAP_Y: Final = 18
_MARGIN: Final = 8
_LABEL: Final = 20


def levels(after: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many steps at least come one after the other before each; in the order given.

    Parameters
    ----------
    after
        The steps in an order in which they can run, and those that each waits for.
    """
    found: dict[str, int] = {}
    for name, others in after.items():
        found[name] = 1 + max((found.get(other, 0) for other in others), default=-1)
    return found


def render_graph(after: Mapping[str, Sequence[str]], states: Mapping[str, str]) -> str:
    """The steps from left to right, with lines between those that wait for each other.

    Parameters
    ----------
    after
        As for :func:`levels`.
    states
        For each step: the class of its box.
    """
    placed: dict[str, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for name, level in levels(after).items():
        row = filled.get(level, 0)
        filled[level] = row + 1
        placed[name] = (
            _MARGIN + level * (_WIDTH + _GAP_X),
            _MARGIN + row * (_HEIGHT + _GAP_Y),
        )
    width = max((x for x, _ in placed.values()), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in placed.values()), default=0) + _HEIGHT + _MARGIN
    lines = [
        _line(placed[other], placed[name])
        for name, others in after.items()
        for other in others
        if other in placed
    ]
    boxes = [_box(name, states.get(name, ""), *place) for name, place in placed.items()]
    return (
        f'<svg role="img" aria-label="steps" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join([*lines, *boxes])}</svg>'
    )


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0], end[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return f'<path d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>'


def _box(name: str, state: str, x: int, y: int) -> str:
    shown = name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    return (
        f'<a href="#step-{escape(name)}"><title>{escape(name)}: {escape(state)}</title>'
        f'<rect class="{escape(state)}" x="{x}" y="{y}" {size} rx="6"/>'
        f'<text x="{x + _WIDTH // 2}" y="{y + _HEIGHT // 2 + 4}">{escape(shown)}</text></a>'
    )
