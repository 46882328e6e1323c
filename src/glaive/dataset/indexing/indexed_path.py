"""Paths of the columns that indices are over."""

from __future__ import annotations

from glaive.errors import CorruptFileError
from glaive.format.column_path import joined_path
from glaive.format.field import Field
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2

__all__ = ["indexed_path", "path_of"]


def path_of(manifest: Manifest, number: int) -> str:
    """Dotted path of a field; the id of a field that does not exist."""

    def search(siblings: tuple[Field, ...], above: tuple[str, ...]) -> str | None:
        for sibling in siblings:
            names = (*above, sibling.name)
            if sibling.id == number:
                return joined_path(names)
            below = search(sibling.children, names)
            if below is not None:
                return below
        return None

    return search(manifest.schema.fields, ()) or str(number)


def indexed_path(manifest: Manifest, entry: table_pb2.IndexMetadata) -> str:
    """Dotted path of the column that an index is over.

    Raises
    ------
    CorruptFileError
        The entry names no column, or several.
    """
    if len(entry.fields) != 1:
        raise CorruptFileError(
            f"fields of index {entry.name!r}",
            expected="one; drop the index",
            found=f"{len(entry.fields)}",
            where=manifest.where,
        )
    return path_of(manifest, entry.fields[0])
