"""What must hold of a dataset after each step of a random walk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glaive.testing.model import Model
from glaive.testing.observe import Observed, observed

__all__ = ["Expected", "check_indices", "check_library", "expect", "expect_equal"]

_SEARCHES: dict[str, list[dict[str, Any]]] = {
    "number": [{"filter": "number = 7"}, {"filter": "number < 20"}],
    "text": [
        {"filter": "text IN ('t1', 'changed')"},
        {"filter": "contains(text, 'chan')"},
    ],
    "words": [{"filter": "array_has_any(words, ['w1', 'w3'])"}],
    "vector": [{"nearest": {"column": "vector", "q": [4.0, 2.0], "k": 5}}],
}
"""What is asked of an index, by its column."""

_WORDS = {"full_text_query": "changed"}
"""What is asked of an index over words; without it nothing answers."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows of the newest version, numbers of all versions, tags, and rows of the branches."""

    newest: Model
    versions: tuple[int, ...]
    tags: Mapping[str, int]
    branches: Mapping[str, Model]


def check_library(library: Any, place: str, expected: Expected) -> Observed:
    """Fail unless a library (a module) reads what is expected; returns all that it says."""
    seen = observed(library, place, expected.branches)
    expect_equal(seen.rows, expected.newest.sorted())
    expect_equal(seen.count, len(expected.newest.rows))
    expect_equal(seen.names, expected.newest.names)
    expect_equal(seen.versions, tuple(sorted(expected.versions)))
    expect_equal(seen.tags, expected.tags)
    expect_equal(seen.branches, {k: rows.sorted() for k, rows in expected.branches.items()})
    return seen


def check_indices(library: Any, place: str, twin: str | None) -> None:
    """Fail unless searches with an index find what those without one find.

    Or what they find in the twin: an index that the library itself leaves stale is its own.
    """
    described = library.dataset(place).describe_indices()
    for name in sorted({name for one in described for name in one.field_names}):
        for search in _SEARCHES.get(name, ()):
            found = _found(library, place, search, use_index=True)
            if found == _found(library, place, search, use_index=False):
                continue
            expect(twin is not None, search)
            expect_equal(found, _found(library, twin, search, use_index=True))
    if twin is not None and any(one.index_type == "Inverted" for one in described):
        found = _found(library, place, _WORDS, use_index=True)
        expect_equal(found, _found(library, twin, _WORDS, use_index=True))


def _found(
    library: Any, place: str | None, search: dict[str, Any], *, use_index: bool
) -> list[Any]:
    opened = library.dataset(place)
    if "nearest" in search:
        nearest = {**search["nearest"], "use_index": use_index}
        table = opened.to_table(columns=["id"], nearest=nearest)
        return sorted(table["_distance"].to_pylist())
    table = opened.scanner(columns=["id"], use_scalar_index=use_index, **search).to_table()
    return sorted(table["id"].to_pylist())


def expect(holds: object, told: object) -> None:
    """Fail with the facts if something does not hold."""
    if not holds:
        raise AssertionError(told)


def expect_equal(found: object, expected: object) -> None:
    """Fail with both if they are not equal."""
    expect(found == expected, f"found {found!r}, expected {expected!r}")
