"""The report of a run: one HTML page without anything from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

from glaive.pipeline.graph import render_graph
from glaive.pipeline.pipeline import Pipeline
from glaive.pipeline.runs import RunRecord, StepRecord

__all__ = ["render_report"]

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
