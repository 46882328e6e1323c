"""Write the layout of files as one HTML page, drawn to scale.

The page is the template beside this module with the layout embedded as JSON. It is
self-contained: its content security policy forbids external scripts, styles, fonts and images.
Names of encodings and buffers are stored once and referred to by number, so that the page of a
file with 10,000 columns has only a few megabytes.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.dataset.layout import DatasetLayout
    from glaive.file.layout_values import BufferLocation, FileLayout, PageInfo

__all__ = ["GROUPS", "page_data", "render_page", "write_page"]

GROUPS = {
    "values": "values",
    "offsets": "offsets",
    "levels": "levels and validity",
    "index": "chunk tables and indices",
    "dictionary": "dictionaries",
    "statistics": "statistics",
    "schema": "schema and global buffers",
    "metadata": "metadata and footer",
    "padding": "padding",
    "other": "not displayed or unlisted",
}
"""Groups of buffers that share a colour: key in the style sheet, and name in the legend."""

_GROUP_OF = {
    "chunks": "values",
    "values": "values",
    "value": "values",
    "bytes": "values",
    "indices": "values",
    "blobs": "values",
    "offsets": "offsets",
    "validity": "levels",
    "structure": "levels",
    "repetition levels": "levels",
    "definition levels": "levels",
    "chunk table": "index",
    "row index": "index",
    "repetition index": "index",
    "dictionary": "dictionary",
    "statistics": "statistics",
    "page table of statistics": "statistics",
    "column buffer": "statistics",
    "schema": "schema",
    "global buffer": "schema",
    "column metadata": "metadata",
    "page table": "metadata",
    "tables and footer": "metadata",
    "metadata and footer": "metadata",
    "padding": "padding",
    "other columns": "other",
    "unlisted": "other",
}
"""Group by kind of buffer; other kinds belong to "values"."""


class _Numbering:
    """Numbers distinct strings in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def page_data(layout: FileLayout | DatasetLayout) -> dict[str, Any]:
    """Return the JSON data of the page.

    Lists of buffers are flat: number of the kind, position and size of each. A page is its
    rows, values, bytes in memory (or null), number of its encoding, and its buffers.
    """
    from glaive.file.layout_values import FileLayout

    kinds, encodings = _Numbering(), _Numbering()
    dataset: dict[str, Any] | None = None
    if isinstance(layout, FileLayout):
        entries = [_file(layout, None, kinds, encodings)]
        title = layout.path
    else:
        title = layout.uri
        entries = [
            _file(file.layout, fragment.id, kinds, encodings)
            for fragment in layout.fragments
            for file in fragment.files
            if file.layout is not None
        ]
        dataset = {
            "version": layout.version,
            "timestamp": layout.timestamp,
            "format": layout.data_storage_version,
            "rows": layout.rows,
            "size": layout.size,
            "columns": len(layout.schema),
            "files": layout.num_files,
            "fragments": [
                [fragment.id, fragment.rows, fragment.deletions.rows if fragment.deletions else 0]
                for fragment in layout.fragments
            ],
        }
    groups = list(GROUPS)
    return {
        "title": title,
        "dataset": dataset,
        "groups": [[key, name] for key, name in GROUPS.items()],
        "kinds": [[kind, groups.index(_GROUP_OF.get(kind, "values"))] for kind in kinds.numbers],
        "encodings": [json.loads(encoding) for encoding in encodings.numbers],
        "files": entries,
    }


def _file(
    layout: FileLayout, fragment: int | None, kinds: _Numbering, encodings: _Numbering
) -> dict[str, Any]:
    def buffers(locations: Iterable[BufferLocation]) -> list[int]:
        flat = []
        for buffer in locations:
            flat += [kinds[buffer.kind], buffer.position, buffer.size]
        return flat

    def page_values(page: PageInfo) -> list[Any]:
        described = json.dumps([page.encoding.brief, page.encoding.to_dict()], ensure_ascii=False)
        number = encodings[described]
        return [page.rows, page.values, page.raw_bytes, number, buffers(page.buffers)]

    return {
        "path": layout.path,
        "fragment": fragment,
        "size": layout.size,
        "rows": layout.num_rows,
        "version": str(layout.version),
        "sections": buffers(layout.sections),
        "gaps": buffers(layout.gaps()),
        "columns": [
            [
                column.path,
                column.type,
                [page_values(page) for page in column.pages],
                buffers(column.buffers),
            ]
            for column in layout.columns
        ],
    }


def render_page(
    layout: FileLayout | DatasetLayout, versions: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return the HTML of the page; ``versions`` are those of a dataset, which gets a view."""
    data = page_data(layout)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Escaped so that names cannot end the script element.
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    template = files("glaive.cli").joinpath("inspect_page.html").read_text("utf-8")
    before, _, after = template.partition("{{data}}")
    name = html.escape(data["title"].rstrip("/").rpartition("/")[2])
    view = ""
    if data["dataset"] is not None:
        from glaive.cli.inspect_dataset import dataset_view

        whole: Any = layout
        view = dataset_view(whole, versions)
    head, _, body = before.partition("{{dataset}}")
    return head.replace("{{title}}", name) + view + body + text + after  # names may be any text


def write_page(
    layout: FileLayout | DatasetLayout, path: Path, versions: Sequence[Mapping[str, Any]] = ()
) -> int:
    """Write the page and return its size in bytes."""
    data = render_page(layout, versions).encode("utf-8", "backslashreplace")
    path.write_bytes(data)
    return len(data)
