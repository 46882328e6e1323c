"""Facts as small HTML tables, which notebooks show for ``_repr_html_``.

All that comes from a dataset is escaped: names and paths may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["MOST_ROWS", "Bar", "table"]

MOST_ROWS = 50
"""Rows that a table shows."""

_MOST_TEXT = 200


class Bar(float):
    """A share from 0 to 1, drawn as a bar."""

    __slots__ = ()


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]], total: int) -> str:
    """A table with a line above it.

    Parameters
    ----------
    title
        The line.
    header
        Names of the columns.
    rows
        Cells: texts, numbers, :class:`Bar`; only the first ``MOST_ROWS`` are shown.
    total
        How many rows there are, if ``rows`` are the first of them.
    """
    lines = [
        "".join(f"<td style='text-align:left'>{_cell(one)}</td>" for one in row) for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines[:MOST_ROWS])
    names = "".join(f"<th style='text-align:left'>{_text(one)}</th>" for one in header)
    hidden = total - min(len(lines), MOST_ROWS)
    more = f"<p>and {hidden:,} more</p>" if hidden > 0 else ""
    return (
        f"<div><p><b>{_text(title)}</b></p><table><thead><tr>{names}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}</div>"
    )


def _cell(value: object) -> str:
    if isinstance(value, Bar):
        width = round(100 * min(max(float(value), 0.0), 1.0))
        return f"<div style='background:#4c78a8;height:0.8em;width:{width}px'></div>"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _text(str(value))


def _text(value: str) -> str:
    shown = value if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]}…"
    return escape(shown)
