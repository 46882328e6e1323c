"""Restrict a layout to some columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.errors import ColumnNotFoundError

if TYPE_CHECKING:
    from glaive.dataset.layout import DatasetLayout
    from glaive.file.layout_values import BufferLocation, FileLayout

__all__ = ["with_columns"]


def with_columns(
    layout: FileLayout | DatasetLayout, names: Sequence[str] | None
) -> FileLayout | DatasetLayout:
    """Return the layout with only the columns ``names`` and those below them.

    Raises
    ------
    ColumnNotFoundError
        No file has a column of this name; the message suggests close names.
    """
    from glaive.file.layout_values import FileLayout

    if names is None:
        return layout
    files = [layout] if isinstance(layout, FileLayout) else list(layout.files())
    paths = {column.path for file in files for column in file.columns}
    for name in names:
        if not any(_is_below(path, name) for path in paths):
            where = files[0].path if files else "no file was read"
            raise ColumnNotFoundError.among(name, sorted(paths), where=where)
    if isinstance(layout, FileLayout):
        return _of_file(layout, names)
    fragments = []
    for fragment in layout.fragments:
        entries = tuple(
            entry if entry.layout is None else replace(entry, layout=_of_file(entry.layout, names))
            for entry in fragment.files
        )
        fragments.append(replace(fragment, files=entries))
    return replace(layout, fragments=tuple(fragments))


def _of_file(layout: FileLayout, names: Sequence[str]) -> FileLayout:
    chosen = [
        column for column in layout.columns if any(_is_below(column.path, name) for name in names)
    ]
    omitted = [column for column in layout.columns if column not in chosen]
    buffers = (buffer for column in omitted for buffer in column.all_buffers())
    return replace(layout, columns=tuple(chosen), others=(*layout.others, *_extents(buffers)))


def _extents(buffers: Iterable[BufferLocation]) -> Iterator[BufferLocation]:
    """Merge adjacent buffers."""
    from glaive.file.layout_values import MAX_PADDING, BufferLocation

    start = end = -1
    for buffer in sorted(buffers, key=lambda buffer: buffer.position):
        if start >= 0 and buffer.position <= end + MAX_PADDING:
            end = max(end, buffer.end)
            continue
        if start >= 0:
            yield BufferLocation("other columns", start, end - start)
        start, end = buffer.position, buffer.end
    if start >= 0:
        yield BufferLocation("other columns", start, end - start)


def _is_below(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name} "))
