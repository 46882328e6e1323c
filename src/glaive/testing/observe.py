"""The state of a dataset as read by a library, for comparisons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from glaive.testing.model import sorted_rows

__all__ = ["Observed", "coverage", "observed"]

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
        (
            index.name,
            tuple(index.field_names),
            tuple(sorted(segment.fragment_ids)),
        )
        for index in library.dataset(uri).describe_indices()
        if index.field_names
        for segment in index.segments
    )
