"""Hypothesis strategies for the random walk: filters and merges over the rows of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.kit.model import Model, Predicate

from glaive.dataclass import dataclass

__all__ = ["Merge", "merges", "predicates"]


def predicates(model: Model) -> st.SearchStrategy[Predicate]:
    """Filters over the columns of a model; some match no rows, some all."""
    choices = [
        st.builds(_remainder, st.integers(2, 6), st.integers(0, 5)),
        st.builds(_between, st.integers(0, 60), st.integers(0, 30)),
        st.just(Predicate("true", lambda _: True)),
    ]
    if "number" in model.names:
        choices.append(st.builds(_below, st.integers(0, 60)))
    if "text" in model.names:
        choices.append(st.builds(_equal, st.sampled_from(["t1", "t2", "changed", "absent"])))
        choices.append(st.just(Predicate("text IS NULL", lambda row: row["text"] is None)))
    return st.one_of(choices)


def _remainder(divisor: int, rest: int) -> Predicate:
    return Predicate(f"id % {divisor} = {rest}", lambda row: row["id"] % divisor == rest)


def _between(low: int, size: int) -> Predicate:
    text = f"id >= {low} AND id < {low + size}"
    return Predicate(text, lambda row: low <= row["id"] < low + size)


def _below(limit: int) -> Predicate:
    return Predicate(
        f"number < {limit}", lambda row: row["number"] is not None and row["number"] < limit
    )


def _equal(text: str) -> Predicate:
    return Predicate(f"text = '{text}'", lambda row: row["text"] == text)


@dataclass(frozen=True, slots=True)
class Merge:
    """Clauses of a merge by ``id``."""

    matched: str
    """``"update"``, ``"delete"`` or ``"keep"``."""
    insert: bool
    prune: bool
    """Whether rows that the source lacks are deleted."""

    def build(self, builder: Any) -> Any:
        """Add the clauses to a merge builder."""
        clauses: list[tuple[bool, Callable[[], Any]]] = [
            (self.matched == "update", builder.when_matched_update_all),
            (self.matched == "delete", builder.when_matched_delete),
            (self.insert, builder.when_not_matched_insert_all),
            (self.prune, builder.when_not_matched_by_source_delete),
        ]
        for enabled, add_clause in clauses:
            if enabled:
                add_clause()
        return builder

    def expected(self, model: Model, source: pa.Table) -> Model:
        """The model after the merge."""
        source_rows = {row["id"]: row for row in source.to_pylist()}
        rows = {}
        for row_id, row in model.rows.items():
            if row_id not in source_rows:
                if not self.prune:
                    rows[row_id] = row
            elif self.matched != "delete":
                rows[row_id] = source_rows[row_id] if self.matched == "update" else row
        if self.insert:
            rows |= {k: row for k, row in source_rows.items() if k not in model.rows}
        return Model(model.names, rows)


def merges() -> st.SearchStrategy[Merge]:
    """Combinations of clauses that have an effect.

    Excludes the one that deletes all rows, which some libraries reject.
    """
    return st.builds(
        Merge, st.sampled_from(["update", "delete", "keep"]), st.booleans(), st.booleans()
    ).filter(
        lambda merge: (
            (merge.matched, merge.insert, merge.prune)
            not in {("keep", False, False), ("delete", False, True)}
        )
    )
