"""Leave columns out of a layout that were not asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.errors import ColumnNotFoundError

if TYPE_CHECKING:
    from glaive.dataset.layout import DatasetLayout
    from glaive.file.layout_values import BufferPlace, FileLayout

__all__ = ["with_columns"]


def with_columns(
    layout: FileLayout | DatasetLayout, names: Sequence[str] | None
) -> FileLayout | DatasetLayout:
    """The same layout with those columns alone that are, or are below, one of ``names``.

    Raises
    ------
    ColumnNotFoundError
        A name is that of no column in any of the files; the message names close ones.
    """
    from glaive.file.layout_values import FileLayout

    if names is None:
        return layout
    files = [layout] if isinstance(layout, FileLayout) else list(layout.files())
    paths = {column.path for file in files for column in file.columns}
    for name in names:
        if not any(_is_below(path, name) for path in paths):
            where = files[0].path if files else "no file was looked into"
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
    kept = [
        column for column in layout.columns if any(_is_below(column.path, name) for name in names)
    ]
    left = [column for column in layout.columns if column not in kept]
    others = (*layout.others, *_extents(place for one in left for place in one.places()))
    return replace(layout, columns=tuple(kept), others=others)


def _extents(places: Iterable[BufferPlace]) -> Iterator[BufferPlace]:
    """Neighbouring buffers as one place each."""
    from glaive.file.layout_values import MOST_PADDING, BufferPlace

    start = end = -1
    for place in sorted(places, key=lambda one: one.position):
        if start >= 0 and place.position <= end + MOST_PADDING:
            end = max(end, place.end)
            continue
        if start >= 0:
            yield BufferPlace("other columns", start, end - start)
        start, end = place.position, place.end
    if start >= 0:
        yield BufferPlace("other columns", start, end - start)


def _is_below(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name} "))
