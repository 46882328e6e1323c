"""Draw ten ratios of a run: ``make bench ARGS="--ratio-picture docs/ratios.svg"``."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import log10
from pathlib import Path

__all__ = ["PICTURED", "draw_ratios"]

PICTURED = (
    "scan vectors",
    "scan table",
    "filter int64 = k",
    "take 1 table",
    "take 100 table",
    "take 100 of 1,000 fragments",
    "write table",
    "nearest IVF_PQ",
    "BTREE int64 range of 1,000",
    "process: scan table",
)
"""Workloads of the picture: common workloads of every kind."""

_WIDTH, _LEFT, _BAR, _STEP = 720, 230, 18, 28


def draw_ratios(ratios: Mapping[str, float], path: Path) -> None:
    """Draw the ratios of CPU time, pylance to glaive, on a logarithmic scale."""
    shown = {name: ratios[name] for name in PICTURED if name in ratios}
    path.write_text(_svg(shown))


def _svg(ratios: Mapping[str, float]) -> str:
    ticks = _ticks(max(ratios.values(), default=1))
    height = _STEP * len(ratios) + 70

    def across(ratio: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 70) * log10(max(1.0, ratio)) / log10(ticks[-1])

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="sans-serif" font-size="13">'
        ),
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" fill="#444">times less CPU time than pylance 14</text>',
    ]
    bottom = 30 + _STEP * len(ratios)
    for tick in ticks:
        x = across(tick)
        parts.append(f'<path d="M{x:.0f} 28V{bottom}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x:.0f}" y="{bottom + 18}" fill="#777" text-anchor="middle">{tick}</text>'
        )
    for at, (name, ratio) in enumerate(ratios.items()):
        y = 34 + _STEP * at
        width = max(1.0, across(ratio) - _LEFT)
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_BAR}" fill="#2a6f97"/>',
            f'<text x="{_LEFT + width + 6:.0f}" y="{y + 14}">{ratio:.1f}×</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _ticks(largest: float) -> list[int]:
    """Return 1, 2, 5, 10, 20, … up to the first number at or above all ratios."""
    ticks = [1, 2]
    while ticks[-1] < largest:
        ticks.append((1, 2, 5)[len(ticks) % 3] * 10 ** (len(ticks) // 3))
    return ticks
