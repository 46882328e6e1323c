"""The report of a run: one HTML page without anything from elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

from glaive.pipeline.runs import Pipeline, RunRecord, StepRecord

# --- Steps as a graph: a drawing in SVG, and lines of text ------------------------------

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


_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")


def render_report(pipeline: Pipeline, record: RunRecord) -> str:
    """The page of a run: the steps as a graph, then each with its figures and a sample.

    Parameters
    ----------
    pipeline
        Its name and description head the page.
    record
        Of the run, finished or not.
    """
    states = {name: step.state for name, step in record.steps.items()}
    after = {name: step.after for name, step in record.steps.items()}
    replaced = {
        "title": escape(f"{pipeline.name}, run {record.id}"),
        "description": escape(pipeline.description),
        "facts": _facts(record),
        "graph": render_graph(after, states),
        "steps": "\n".join(_step(name, step) for name, step in record.steps.items()),
    }
    page = files("glaive.pipeline").joinpath("report.html").read_text("utf-8")
    text = _PLACEHOLDER.sub(lambda found: replaced[found[1]], page)
    return text.encode(errors="backslashreplace").decode()  # names of files may be no text


def _facts(record: RunRecord) -> str:
    seconds = sum(step.seconds for step in record.steps.values())
    facts = {
        "state": record.state,
        "started": record.started,
        "ended": record.ended,
        "seconds in steps": f"{seconds:.1f}",
        **{f"parameter {name}": value for name, value in record.parameters.items()},
    }
    return _table(["", ""], [[name, value] for name, value in facts.items() if value is not None])


def _step(name: str, step: StepRecord) -> str:
    state = escape(step.state)
    parts = [
        f'<section id="step-{escape(name)}"><h2>{escape(name)} ',
        f'<small class="{state}">{escape(step.kind)}, {state}</small></h2>',
        f"<p>{escape(step.summary)}</p>",
    ]
    if step.error is not None:
        parts.append(f'<pre class="error">{escape(step.error)}</pre>')
    rows = list(_dataset_rows(step))
    if rows:
        titles = ["dataset", "version", "rows", "bytes"]
        parts.append(_table(titles, rows))
    counts = {"seconds": f"{step.seconds:.1f}", **step.counts}
    if step.attempts > 1:
        counts["attempts"] = step.attempts
    parts.append(_table(list(counts), [list(counts.values())]))
    if step.sample is not None and step.sample["rows"]:
        parts.append(
            f"<details><summary>sample</summary>{_table(**_titled(step.sample))}</details>"
        )
    return "".join([*parts, "</section>"])


def _titled(sample: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {"titles": sample["columns"], "rows": sample["rows"]}


def _dataset_rows(step: StepRecord) -> Iterator[list[str]]:
    """Before and after, for each dataset."""
    for name, before in step.before.items():
        after = step.after_it.get(name)
        yield [name, *(_change(key, before, after) for key in ("version", "rows", "bytes"))]


def _change(key: str, before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> str:
    old = "–" if before is None else f"{before[key]:,}"
    new = "–" if after is None else f"{after[key]:,}"
    return old if old == new else f"{old} → {new}"


def _table(titles: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return escape(f"{value:,}" if type(value) is int else str(value))
