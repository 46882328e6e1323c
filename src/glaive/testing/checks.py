"""The checks of a dataset after each step of a random walk."""

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
"""Searches that use an index, by its column."""

_FULL_TEXT_SEARCH = {"full_text_query": "changed"}
"""A search that needs a full-text index."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected newest version, version numbers, tags and branches."""

    newest: Model
    versions: tuple[int, ...]
    tags: Mapping[str, int]
    branches: Mapping[str, Model]


def check_library(library: Any, uri: str, expected: Expected) -> Observed:
    """Check what a library (a module) reads against the expected state, and return it."""
    state = observed(library, uri, expected.branches)
    expect_equal(state.rows, expected.newest.sorted())
    expect_equal(state.count, len(expected.newest.rows))
    expect_equal(state.names, expected.newest.names)
    expect_equal(state.versions, tuple(sorted(expected.versions)))
    expect_equal(state.tags, expected.tags)
    expect_equal(
        state.branches, {name: model.sorted() for name, model in expected.branches.items()}
    )
    return state


def check_indices(library: Any, uri: str, reference_uri: str | None) -> None:
    """Check that searches with and without an index have the same result.

    Or the same result as in the reference dataset, as the library itself may leave an index
    stale.
    """
    described = library.dataset(uri).describe_indices()
    for name in sorted({name for index in described for name in index.field_names}):
        for search in _SEARCHES.get(name, ()):
            result = _search(library, uri, search, use_index=True)
            if result == _search(library, uri, search, use_index=False):
                continue
            expect(reference_uri is not None, search)
            expect_equal(result, _search(library, reference_uri, search, use_index=True))
    if reference_uri is not None and any(index.index_type == "Inverted" for index in described):
        result = _search(library, uri, _FULL_TEXT_SEARCH, use_index=True)
        expect_equal(result, _search(library, reference_uri, _FULL_TEXT_SEARCH, use_index=True))


def _search(library: Any, uri: str | None, search: dict[str, Any], *, use_index: bool) -> list[Any]:
    opened = library.dataset(uri)
    if "nearest" in search:
        nearest = {**search["nearest"], "use_index": use_index}
        table = opened.to_table(columns=["id"], nearest=nearest)
        return sorted(table["_distance"].to_pylist())
    table = opened.scanner(columns=["id"], use_scalar_index=use_index, **search).to_table()
    return sorted(table["id"].to_pylist())


def expect(condition: object, message: object) -> None:
    """Fail with the message if the condition is false."""
    if not condition:
        raise AssertionError(message)


def expect_equal(found: object, expected: object) -> None:
    """Fail if the values are not equal."""
    expect(found == expected, f"found {found!r}, expected {expected!r}")
