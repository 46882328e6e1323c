"""The physical columns of a field, depth first, from format 2.1 on.

Only leaves own columns: structs and lists are stored in the levels of the leaves below them. A
leaf is a primitive, a string or binary, a fixed-size list of a primitive, a packed struct, or
a struct without fields.

Specification: "Columns" in ``docs/format/schema.md``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Literal

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.blobs import is_described
from glaive.format.fields import Field

__all__ = ["Kind", "Members", "Node", "column_tree", "number_columns"]

Kind = Literal["leaf", "struct", "list", "map", "fixed", "empty"]

Members = tuple[tuple[int, "Members | None"], ...]
"""Wanted members of a packed struct: their positions, and the members of nested structs."""


@dataclass(frozen=True, slots=True)
class Node:
    """One field with the shape that matters for reading and writing it.

    ``layers`` flags the lists on the path from here to the row, inner-most first; ``wide`` flags
    those with 64-bit offsets, outer-most first. ``sizes``, in the order of ``layers``, are the
    dimensions of fixed-size lists of structs, and 1 for other layers. ``column`` is the
    physical column of a leaf, None when the file lacks it. ``members`` are the wanted members
    of a packed struct, None for all. ``leaf_count`` leaves are below this node, or it is one.
    """

    kind: Kind
    name: str
    type: pa.DataType
    nullable: bool
    field: Field
    children: tuple[Node, ...]
    layers: tuple[bool, ...]
    wide: tuple[bool, ...]
    sizes: tuple[int, ...]
    column: int | None
    members: Members | None = None
    leaf_count: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        below = sum(child.leaf_count for child in self.children)
        object.__setattr__(self, "leaf_count", below or 1)

    @property
    def entries_per_row(self) -> int:
        """Entries of each row in the column of this leaf, lists not counted."""
        return prod(self.sizes)

    def leaves(self) -> Iterator[Node]:
        """Leaves below this node (or itself), depth first."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def number_columns(fields: Sequence[Field]) -> dict[int, int]:
    """Column index by field id when a file numbers the leaves of its own schema."""
    leaves = (leaf for field in fields for leaf in field.leaf_columns())
    return {leaf.id: column for column, leaf in enumerate(leaves)}


def column_tree(
    field: Field, column_of: Mapping[int, int], stored: Callable[[int], Field] | None = None
) -> Node:
    """The node of a top-level field.

    ``stored`` returns a field of the file's schema by id: a reader that wants some members of a
    packed struct must know all of them.

    Raises
    ------
    CorruptFileError
        A fixed-size list has no items.
    UnsupportedFeatureError
        A packed struct of the file lacks a wanted member.
    """
    return _node(field, column_of, stored, (), (), ())


def _kind(field: Field) -> Kind:
    logical = field.logical_type
    if logical == "struct":
        if field.is_packed:
            return "leaf"
        return "struct" if field.children else "empty"
    if logical in ("list", "list.struct", "large_list", "large_list.struct"):
        return "list"
    if logical == "map":
        return "map"
    return "fixed" if field.children else "leaf"


def _node(
    field: Field,
    column_of: Mapping[int, int],
    stored: Callable[[int], Field] | None,
    outside: tuple[bool, ...],
    wide_outside: tuple[bool, ...],
    sizes_outside: tuple[int, ...],
) -> Node:
    kind = _kind(field)
    arrow = field.to_arrow()
    is_list = kind in ("list", "map")
    layers = (is_list, *outside)
    wide = (*wide_outside, field.logical_type.startswith("large_list"))
    sizes = (_size(field, arrow.type) if kind == "fixed" else 1, *sizes_outside)
    children: tuple[Node, ...] = ()
    column = None
    if kind in ("leaf", "empty"):
        column = column_of.get(field.id)
        if column is not None and column < 0:
            column = None
    else:
        children = tuple(
            _node(child, column_of, stored, layers, wide, sizes) for child in field.children
        )
    if kind == "map":
        children = (_as_entries(children[0], arrow.type),)
    members = None
    if field.is_packed and not is_described(field) and column is not None and stored is not None:
        members = _wanted_members(field, stored(field.id))
    return Node(
        kind,
        field.name,
        arrow.type,
        field.nullable,
        field,
        children,
        layers,
        wide,
        sizes,
        column,
        members,
    )


def _as_entries(node: Node, kind: Any) -> Node:
    """The entries of a map with the names that Arrow has for their parts, and keys never null.

    With those of the fields they are not what the map's type says: Arrow ends the process where it
    meets such a value.
    """
    return dataclasses.replace(node, type=pa.struct([kind.key_field, kind.item_field]))


def _wanted_members(field: Field, stored: Field) -> Members | None:
    positions = {child.id: at for at, child in enumerate(stored.children)}
    missing = [child.name for child in field.children if child.id not in positions]
    if missing:
        raise UnsupportedFeatureError(
            f"packed struct {field.name!r} of a file has no member {missing[0]!r}: a packed struct "
            "gets another member only when all of its files are rewritten"
        )
    wanted = tuple(
        (positions[child.id], _wanted_members(child, stored.children[positions[child.id]]))
        for child in field.children
    )
    whole = tuple((at, None) for at in range(len(positions)))
    return None if wanted == whole else wanted


def _size(field: Field, arrow: Any) -> int:
    if not pa.types.is_fixed_size_list(arrow):
        raise CorruptFileError(
            f"type of field {field.name!r}",
            expected="one that has fields below, as it does",
            found=str(arrow),
            where="schema",
        )
    size: int = arrow.list_size
    if size < 1:
        raise CorruptFileError(
            f"size of field {field.name!r}", expected="1 or more", found=str(size), where="schema"
        )
    return size
