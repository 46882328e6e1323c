"""The same column of several mapped files as one column, whose rows are theirs in order.

A take of a few rows out of each of many files costs Python for every file and column. Here
neighbouring pages of equal signatures are one run, so that it costs Python for every column.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from glaive.arrow.dictionaries import has_dictionary
from glaive.encodings.miniblock.page_run import join_files
from glaive.encodings.protocol import PageReader
from glaive.file.protocol import BoundColumn
from glaive.file.v2.reading.bound import FieldColumns
from glaive.file.v2.reading.column import Column
from glaive.file.v2.reading.columns import Node
from glaive.io.mapping import readable_size

__all__ = ["join_columns"]

_OVER_READ: Final = 512
"""Bytes that a kernel may load beyond what it uses, within the memory that it is given."""


def join_columns(columns: Sequence[BoundColumn]) -> FieldColumns | None:
    """One column out of the same field of several files.

    Returns
    -------
    FieldColumns or None
        None where they cannot be read as one: a file is not mapped, has not all of the physical
        columns, or has pages of kinds that need more than their own buffers; or where the
        dictionary of each file is part of the result.
    """
    fields = [column for column in columns if isinstance(column, FieldColumns)]
    if len(fields) != len(columns) or any(_shape(field) != _shape(fields[0]) for field in fields):
        return None
    if has_dictionary(fields[0].field.type):
        return None
    if not all(field.reader.mapped for field in fields):
        return None
    joined = []
    for parts in zip(*[field.leaf_columns for field in fields], strict=True):
        present = [part for part in parts if part is not None]
        if len(present) < len(parts):
            return None
        pages = [page for part in present for page in part.pages]
        sizes = [
            field.reader.size
            for field, part in zip(fields, present, strict=True)
            for _ in part.pages
        ]
        if not all(map(_is_whole, pages, sizes)):
            return None
        joined.append(Column(join_files(pages), present[0].where))
    rows = sum(field.num_rows for field in fields)
    return FieldColumns(fields[0].node, joined, rows, fields[0].reader)


def _shape(field: FieldColumns) -> Hashable:
    """What fields of several files must have in common: types, and where packed members lie."""

    def members(node: Node) -> Hashable:
        return node.members, tuple(map(members, node.children))

    return field.field, members(field.node)


def _is_whole(page: PageReader, file_size: int) -> bool:
    """Whether all that a page needs is mapped, and memory goes on behind it.

    A run spans several mappings, so that a load beyond the last bytes of one could hit nothing.
    """
    last = page.mapped_end
    return last is not None and last + _OVER_READ <= readable_size(file_size)
