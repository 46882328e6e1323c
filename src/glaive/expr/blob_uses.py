"""What expressions over old values may do with blob columns of the second kind.

Where rows are changed, a value that lies elsewhere is read as a reference, which means something to
the writer of a blob column and to nobody else. It must not become part of other values, nor be
compared with a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from glaive.errors import UnsupportedFeatureError
from glaive.expr import tree
from glaive.expr.tree import Node
from glaive.format.blobs import has_blobs_v2
from glaive.format.field import Field

__all__ = ["refuse_blob_uses"]


def refuse_blob_uses(expression: Node, fields: Iterable[Field], subject: str) -> None:
    """Refuse a bound expression that does more with a blob than to ask for null or for equality.

    Parameters
    ----------
    fields
        The columns whose old values it has.
    subject
        What it is for, in messages.

    Raises
    ------
    UnsupportedFeatureError
        Names the column.
    """
    whole = {part.id for field in fields for part in field.walk() if has_blobs_v2(part)}
    if not whole:
        return
    inside = {
        part.id
        for field in fields
        for blob in field.walk()
        if blob.is_blob_v2
        for part in blob.walk()
    } - whole
    for column in _used(expression, whole):
        if column.field_id in whole or column.field_id in inside:
            raise UnsupportedFeatureError(
                f"{subject}: {column.path!r} is a blob column, or lies within one; an expression "
                "can ask whether its value is null, and update sets a blob column to the value of "
                "another one. Read values with blob_handling='all_binary'"
            )


def _used(node: Node, whole: set[int]) -> Iterator[tree.Column]:
    """Columns in an expression, but for those that are tested for null or compared as a whole."""
    match node:
        case tree.Column():
            yield node
        case tree.IsNull():
            return
        case _:
            for operand in tree.children(node):
                compared = isinstance(node, tree.Compare | tree.InList)
                is_whole = isinstance(operand, tree.Column) and operand.field_id in whole
                if not (compared and is_whole):
                    yield from _used(operand, whole)
