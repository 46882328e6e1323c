"""The picture of ratios has an axis that reaches as far as its bars."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.ratio_picture import draw_ratios


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [(2.5, "1 2 5"), (89.8, "1 2 5 10 20 50 100"), (569.1, "1 2 5 10 20 50 100 200 500 1000")],
)
def test_the_axis_ends_at_the_first_tick_that_no_bar_exceeds(
    tmp_path: Path, largest: float, ticks: str
) -> None:
    draw_ratios({"scan vectors": largest, "scan table": 1.5}, tmp_path / "ratios.svg")
    drawn = (tmp_path / "ratios.svg").read_text()
    placed = re.findall(r'<text x="(\d+)" y="\d+" fill="#777" text-anchor="middle">(\d+)<', drawn)
    assert " ".join(label for _, label in placed) == ticks
    bars = re.findall(r'<rect x="(\d+)" y="\d+" width="(\d+)" height="18"', drawn)
    assert max(int(left) + int(width) for left, width in bars) <= int(placed[-1][0])
