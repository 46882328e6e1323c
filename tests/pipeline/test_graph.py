"""The drawing of steps: boxes, and lines that pass none of them but their own."""

from __future__ import annotations

import re

import pytest

from glaive.pipeline.runs import levels, render_graph

STEPS = {
    "load": [],
    "more": [],
    "merge": ["load"],
    "double": ["merge"],
    "totals": ["load", "double"],
    "search": ["more", "merge", "totals"],
}


def test_steps_stand_behind_those_that_they_wait_for() -> None:
    assert levels(STEPS) == {
        "load": 0, "more": 0, "merge": 1, "double": 2, "totals": 3, "search": 4,
    }  # fmt: skip


@pytest.mark.parametrize("steps", [STEPS, {"one": []}, {}], ids=["several", "one", "none"])
def test_no_line_crosses_a_step(steps: dict[str, list[str]]) -> None:
    drawing = render_graph(steps, {})
    numbers = r'x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" rx'
    boxes = [tuple(map(int, found)) for found in re.findall(numbers, drawing)]
    assert len(boxes) == len(set(boxes)) == len(steps)
    points = []
    for path in re.findall(r'<path d="([^"]+)"', drawing):
        at = [int(number) for number in re.findall(r"\d+", path)]
        if "C" in path:
            x1, y1, xa, ya, xb, yb, x2, y2 = at
            for step in range(101):
                t = step / 100
                weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
                points.append(
                    (
                        sum(w * x for w, x in zip(weights, (x1, xa, xb, x2), strict=True)),
                        sum(w * y for w, y in zip(weights, (y1, ya, yb, y2), strict=True)),
                    )
                )
        else:
            x1, y1, x2 = at
            points += [(x1 + (x2 - x1) * step / 100, y1) for step in range(101)]
    inside = [
        (x, y)
        for x, y in points
        for left, top, width, height in boxes
        if left + 1 < x < left + width - 1 and top < y < top + height
    ]
    assert inside == []
    ends = {(left, top + height // 2) for left, top, width, height in boxes}
    waits = sum(bool(others) for others in steps.values())
    assert len(ends.intersection(points)) == waits
