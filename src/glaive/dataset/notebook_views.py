"""What notebooks show of datasets, scans, fragments and versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive import notebook
from glaive.errors import GlaiveError

if TYPE_CHECKING:
    from glaive.format.fields import LanceSchema
    from glaive.scan.snapshot import Snapshot

__all__ = ["VersionList", "dataset_html", "fragment_html", "scanner_html"]

_MOST_FILES = 64
"""Data files whose metadata are read for the bytes of columns."""


def dataset_html(snapshot: Snapshot, uri: str) -> str:
    """Version, rows and columns; bytes by column where there are few data files."""
    from glaive.dataset.stats import LanceStats

    manifest = snapshot.manifest
    title = (
        f"{GlaiveError.without_secrets(uri)}, version {manifest.version}: {snapshot.num_rows:,} "
        f"rows in {manifest.num_fragments:,} fragment{'s' * (manifest.num_fragments != 1)}, "
        f"format {manifest.data_format}"
    )
    sizes: dict[int, int] = {}
    if manifest.num_fragments <= _MOST_FILES:
        stats = LanceStats(snapshot).data_stats()
        sizes = {one.id: one.bytes_on_disk for one in stats.fields}
    return _columns(title, manifest.schema, sizes)


def _columns(title: str, schema: LanceSchema, sizes: Mapping[int, int]) -> str:
    fields = schema.fields[: notebook.MOST_ROWS]
    arrow = schema.logical_schema()
    header = ["column", "type", *(["bytes", ""] if sizes else [])]
    total = max(1, sum(sizes.values()))
    rows: list[list[object]] = []
    for at, field in enumerate(fields):
        row: list[object] = [field.name, arrow.field(at).type]
        if sizes:
            size = sum(sizes.get(part.id, 0) for part in field.walk())
            row += [size, notebook.Bar(size / total)]
        rows.append(row)
    return notebook.table(title, header, rows, len(schema.fields))


def fragment_html(fragment: Any) -> str:
    """The data files of a fragment."""
    rows = [[one.path, len(one.fields), one.file_size_bytes or ""] for one in fragment.data_files()]
    title = (
        f"fragment {fragment.fragment_id}: {fragment.count_rows():,} rows, "
        f"{fragment.num_deletions:,} deleted"
    )
    return notebook.table(title, ["file", "fields", "bytes"], rows, len(rows))


def scanner_html(schema: pa.Schema, plan: str) -> str:
    """The columns of a scan and its plan."""
    rows = [[field.name, field.type] for field in list(schema)[: notebook.MOST_ROWS]]
    columns = notebook.table("scan", ["column", "type"], rows, len(schema))
    steps = plan.splitlines()
    return columns + notebook.table("plan", ["step"], [[one] for one in steps], len(steps))


class VersionList(list[dict[str, Any]]):
    """The versions of a dataset, oldest first; a notebook shows the newest as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        newest = self[: -notebook.MOST_ROWS - 1 : -1]
        rows = [
            [
                one["version"],
                one["timestamp"].isoformat(sep=" ", timespec="seconds"),
                ", ".join(f"{key}: {value}" for key, value in one["metadata"].items()),
            ]
            for one in newest
        ]
        return notebook.table("versions", ["version", "time", "totals"], rows, len(self))
