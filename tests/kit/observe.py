"""The state of a dataset as read by a library, and the checks after each step of a random walk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from tests.kit.model import Model, sorted_rows

from glaive.dataclass import dataclass

__all__ = [
    "Expected",
    "Observed",
    "check_indices",
    "check_library",
    "coverage",
    "expect",
    "expect_equal",
    "observed",
]

_SEARCHES: dict[str, list[dict[str, Any]]] = {
    "number": [{"filter": "number = 7"}, {"filter": "number < 20"}],
    "text": [{"filter": "text IN ('t1', 'changed')"}, {"filter": "contains(text, 'chan')"}],
    "words": [{"filter": "array_has_any(words, ['w1', 'w3'])"}],
    "vector": [{"nearest": {"column": "vector", "q": [4.0, 2.0], "k": 5}}],
}
"""Searches that use an index, by its column."""

_FULL_TEXT_SEARCH = {"full_text_query": "changed"}
"""A search that needs a full-text index."""

_LINEAGE = ("_row_created_at_version", "_row_last_updated_at_version")


@dataclass(frozen=True, slots=True)
class Observed:
    """The state that two libraries, or two datasets with the same history, must agree on.

    Rows are sorted by id; ``fragments`` are ids, rows and deleted rows.
    """

    version: int
    versions: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[dict[str, Any]]
    row_ids: list[dict[str, Any]]
    count: int
    fragments: list[tuple[int, int, int]]
    config: dict[str, str]
    schema_metadata: dict[str, str]
    tags: dict[str, int]
    branches: dict[str, list[dict[str, Any]]]

    def differences(self, other: Observed) -> dict[str, tuple[Any, Any]]:
        """The attributes that differ, with both values."""
        pairs = {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def observed(library: Any, uri: str, branches: Iterable[str] = ()) -> Observed:
    """Read the state of a dataset with a library (a module)."""
    opened = library.dataset(uri)
    names = tuple(opened.schema.names)
    system = ["_rowid", *(_LINEAGE if opened.has_stable_row_ids else ())]
    rows = sorted_rows(opened.to_table(columns=[*names, *system]))
    return Observed(
        version=opened.version,
        versions=tuple(sorted(version["version"] for version in opened.versions())),
        names=names,
        types=tuple(f"{field.type} {field.nullable}" for field in opened.schema),
        rows=[{name: row[name] for name in names} for row in rows],
        row_ids=[{name: row[name] for name in ("id", *system)} for row in rows],
        count=opened.count_rows(),
        fragments=[
            (fragment.fragment_id, fragment.physical_rows, fragment.num_deletions)
            for fragment in opened.get_fragments()
        ],
        config=dict(opened.config()),
        schema_metadata=_decoded(opened.schema.metadata),
        tags={name: tag["version"] for name, tag in opened.tags.list().items()},
        branches={
            name: sorted_rows(opened.checkout_version((name, None)).to_table()) for name in branches
        },
    )


def _decoded(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


def coverage(library: Any, uri: str) -> list[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """Names, columns and covered fragments of the indices, as read by a library.

    Indices without a column, such as the fragment reuse index, are omitted.
    """
    return sorted(
        (index.name, tuple(index.field_names), tuple(sorted(segment.fragment_ids)))
        for index in library.dataset(uri).describe_indices()
        if index.field_names
        for segment in index.segments
    )


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
    """Fail with the message, or what a function makes of it, if the condition is false."""
    if not condition:
        raise AssertionError(message() if callable(message) else message)


def expect_equal(found: object, expected: object) -> None:
    """Fail if the values are not equal."""
    expect(found == expected, f"found {found!r}, expected {expected!r}")
