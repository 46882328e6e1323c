"""Steps as a graph: a drawing in SVG, and lines of text."""

from __future__ import annotations

from collections import Counter
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

Place = tuple[int, int]
"""The upper left corner of a box."""


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
    depth = levels(after)
    rows: Counter[int] = Counter()

    def place(level: int) -> Place:
        rows[level] += 1
        return (
            _MARGIN + level * (_WIDTH + _GAP_X),
            _MARGIN + (rows[level] - 1) * (_HEIGHT + _GAP_Y),
        )

    placed = {name: place(level) for name, level in depth.items()}
    # Lines past other steps have places of their own among them, so that they cross none.
    furthest: dict[str, int] = {}
    for name, others in after.items():
        for other in others:
            furthest[other] = max(furthest.get(other, 0), depth[name])
    lanes = {
        (other, level): place(level)
        for other, end in furthest.items()
        if other in placed
        for level in range(depth[other] + 1, end)
    }
    parts: dict[str, None] = {}
    for name, others in after.items():
        for other in others:
            if other in placed:
                between = range(depth[other] + 1, depth[name])
                stops = [placed[other], *(lanes[other, at] for at in between), placed[name]]
                parts.update(dict.fromkeys(map(_line, stops, stops[1:])))
                parts.update(dict.fromkeys(map(_straight, stops[1:-1])))
    places = [*placed.values(), *lanes.values()]
    width = max((x for x, _ in places), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in places), default=0) + _HEIGHT + _MARGIN
    boxes = [_box(name, states.get(name, ""), *at) for name, at in placed.items()]
    return (
        f'<svg role="img" aria-label="steps" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join([*parts, *boxes])}</svg>'
    )


def _line(start: Place, end: Place) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0], end[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return f'<path d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>'


def _straight(lane: Place) -> str:
    x, y = lane[0], lane[1] + _HEIGHT // 2
    return f'<path d="M{x} {y} H{x + _WIDTH}"/>'


def _box(name: str, state: str, x: int, y: int) -> str:
    shown = name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    return (
        f'<a href="#step-{escape(name)}"><title>{escape(name)}: {escape(state)}</title>'
        f'<rect class="{escape(state)}" x="{x}" y="{y}" {size} rx="6"/>'
        f'<text x="{x + _WIDTH // 2}" y="{y + _HEIGHT // 2 + 4}">{escape(shown)}</text></a>'
    )
