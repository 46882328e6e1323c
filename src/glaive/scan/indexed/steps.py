"""Steps of plans, and what plans say of the indices that answer a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.arrow.conditions import HasText, InRange, IsNull, IsOneOf
from glaive.arrow.python_values import python_values
from glaive.index.queries import HasLabels, HasTokens, IndexQuery, MatchesPattern
from glaive.named_tuple import NamedTuple
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.expr.filters import Filter
    from glaive.scan.indexed.answers import Searched
    from glaive.scan.indexed.predicates import Leaf, Predicate

__all__ = ["PlanStep", "filter_text", "index_steps", "listed", "projection_step", "read_step"]

_ALTERNATIVES = 3
"""Values up to which a set of them is written as so many comparisons, as by DataFusion."""


class PlanStep(NamedTuple):
    """A line of a plan, which begins as pylance's: programs look for its words.

    Parameters
    ----------
    name
        Of pylance's step.
    said
        What it does, pylance's details first.
    part
        The steps of a meter that measure it; empty: the result's figures.
    """

    name: str
    said: str = ""
    part: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.said}" if self.said else self.name


def listed(names: Iterable[object]) -> str:
    """Names in brackets."""
    return f"[{', '.join(map(str, names))}]"


def read_step(
    snapshot: Snapshot,
    names: Iterable[str],
    said: str = "source=stream(_rowid)",
    part: str = "columns",
) -> PlanStep:
    """A step that reads columns; by default of the rows that were found."""
    place = snapshot.store.full("data").removeprefix("/")
    return PlanStep("LanceRead", f"uri={place}, projection={listed(names)}, {said}", part)


def projection_step(options: ScanOptions) -> list[PlanStep]:
    """The step that computes columns; none where all are stored."""
    named = [one for one in options.columns or () if not isinstance(one, str)]
    said = listed(f"{expression} as {name}" for name, expression in named)
    return [PlanStep("ProjectionExec", f"expr={said}")] if named else []


def filter_text(snapshot: Snapshot, options: ScanOptions, condition: Filter | None) -> str:
    """The filter of a step that reads, and what of it no index answers."""
    if condition is None:
        return "full_filter=--, refine_filter=--"
    from glaive.expr.render import render
    from glaive.scan.indexed.choice import choose

    used = {term.number for term in choose(snapshot, options, condition.terms, Meter())}
    left = [term for at, term in enumerate(condition.terms) if at not in used]
    refine = " AND ".join(render(term.expression) for term in left)
    whole = len(left) == len(condition.terms)
    return (
        f"full_filter={condition.text}, refine_filter={condition.text if whole else refine or '--'}"
    )


def index_steps(snapshot: Snapshot, options: ScanOptions, condition: Filter) -> list[PlanStep]:
    """The question for the indices of a filter; and which of them are searched, or not, and why."""
    if condition.never or snapshot.manifest.index_section is None:
        return []
    from glaive.scan.indexed.choice import choose, weigh

    weighed = list(weigh(snapshot, options, condition.terms, Meter()))
    if not weighed:
        return []
    used = {term.number: term for term in choose(snapshot, options, condition.terms, Meter())}
    rest = "left out" if options.fast_search else "scanned"
    said = []
    for term in weighed:
        searched = used.get(term.number)
        known = replace(term, indices=term.all[1]) if searched is None else searched
        names = ", ".join(known.names)
        covered = len(term.fragments)
        found = f"index {names}: about {term.estimate} rows of {covered} fragments"
        if searched is None:
            said.append(f"not used: {found}, looking at the values is quicker")
        else:
            scanned = snapshot.manifest.num_fragments - covered
            said.append(f"by {found}; {scanned} fragments {rest}")
    question = reduce(
        lambda left, right: f"AND({left},{right})", (_asked(*one.all) for one in weighed)
    )
    return [PlanStep("ScalarIndexQuery", f"query={question}, {'; '.join(said)}", "index")]


def _asked(predicate: Predicate, indices: Mapping[Leaf, Searched]) -> str:
    """A question as pylance writes it: ``AND([a = 7]@a_idx(BTree),[b > 2]@b_idx(Bitmap))``."""
    from glaive.scan.indexed.predicates import AllOf, AnyOf, Leaf, Negated

    match predicate:
        case Leaf(path, query):
            index = indices[predicate]
            kind = index.segments[0].segment.entry.index_details.type_url.rpartition(".")[2]
            by = f"@{index.name}({kind.removesuffix('IndexDetails')})"
            tests = [f"[{test}]{by}" for test in _tests(path, query)]
            known = reduce(lambda left, right: f"OR({left},{right})", tests)
            return f"NOT({known})" if getattr(query, "negated", False) else known
        case Negated(operand):
            return f"NOT({_asked(operand, indices)})"
        case AllOf(operands) | AnyOf(operands):
            word = "AND" if isinstance(predicate, AllOf) else "OR"
            parts = [_asked(operand, indices) for operand in operands]
            return reduce(lambda left, right: f"{word}({left},{right})", parts)


def _tests(path: str, query: IndexQuery) -> list[str]:
    """The tests of a column that a query stands for: one has to pass."""
    match query:
        case InRange(low=low, high=high):
            if low is not None and low == high:
                return [f"{path} = {_value(low)}"]
            bounds = ((low, ">", query.low_included), (high, "<", query.high_included))
            tests = [
                f"{path} {sign}{'=' * included} {_value(bound)}"
                for bound, sign, included in bounds
                if bound is not None
            ]
            return [" && ".join(tests)]
        case IsOneOf(values):
            texts = [_value(value) for value in values]
            if len(texts) > _ALTERNATIVES:
                return [f"{path} IN [{','.join(texts)}]"]
            return [f"{path} = {text}" for text in texts]
        case IsNull():
            return [f"{path} IS NULL"]
        case HasText(word=word, begins=begins, ends=ends):
            like = f"{path} LIKE '{word}%'" if begins else f'ends_with({path}, Utf8("{word}"))'
            return [like if begins or ends else f'contains({path}, Utf8("{word}"))']
        case HasLabels(values, every):
            name = "array_has_all" if every else "array_has_any"
            return [f"{name}({path}, List({listed(map(_value, values))}))"]
        case HasTokens(text):
            return [f'contains_tokens({path}, Utf8("{text}"))']
        case MatchesPattern(pattern):
            return [f'regexp_like({path}, Utf8("{pattern}"))']
    return [f"{path} meets {query}"]


def _value(scalar: Any) -> str:
    """A value as pylance writes it."""
    value = python_values(pa.array([scalar]))[0]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.removesuffix(".0") if isinstance(value, float) else text
