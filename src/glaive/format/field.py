"""One column of a schema, or one level of a nested one.

Field ids are the identity of columns: files and fragments speak of ids, names may change.

Specification: "Fields" and "Physical columns" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.format.logical_types import EXTENSION_NAME, leaf_type

__all__ = ["BLOB", "BLOB_V2", "PACKED", "Field"]

PACKED = "lance-encoding:packed"
BLOB = "lance-encoding:blob"
BLOB_V2 = "lance.blob.v2"
_LEGACY_PACKED = "packed"
_TRUE = frozenset({"true", "1", "yes"})

_FIXED_LISTS = "fixed_size_list:struct:"
_LISTS = frozenset({"list", "list.struct", "large_list", "large_list.struct", "map"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column, or one level of a nested one.

    Parameters
    ----------
    id
        Identity within the dataset; -1 for the parts of a blob descriptor.
    name
        The field's own name, not qualified by its parents.
    logical_type
        The wire's name of the type, without children.
    nullable
        Whether values may be null.
    children
        Members of a struct; the one item field of a list; the entries of a map.
    metadata
        Arrow's field metadata.
    dictionary
        Position and length of the values of a dictionary column, in 0.1 datasets.
    """

    id: int
    name: str
    logical_type: str
    nullable: bool = True
    children: tuple[Field, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    dictionary: tuple[int, int] | None = None

    @property
    def is_nested(self) -> bool:
        """Whether the type is one of those that have fields below them."""
        kind = self.logical_type
        return kind == "struct" or kind in _LISTS or kind.startswith(_FIXED_LISTS)

    @property
    def arrow_type(self) -> pa.DataType:
        """Arrow storage type with children; extension types are told by ``metadata`` only."""
        kind = self.logical_type
        if kind == "struct":
            return pa.struct([child.to_arrow() for child in self.children])
        if kind in _LISTS:
            item = self._only_child().to_arrow()
            if kind == "map":
                return _map_type(item.type, self.name)
            return pa.list_(item) if kind.startswith("list") else pa.large_list(item)
        if kind.startswith(_FIXED_LISTS):
            return pa.list_(self._only_child().to_arrow(), self._list_size())
        leaf: pa.DataType = leaf_type(kind)
        return leaf

    def to_arrow(self) -> pa.Field[Any]:
        """Arrow field with type, nullability and metadata."""
        metadata: Any = dict(self.metadata) if self.metadata else None
        kind = self.arrow_type
        # Arrow knows no other nulls; a file may say so all the same.
        nullable = self.nullable or pa.types.is_null(kind)
        return pa.field(self.name, kind, nullable, metadata)

    def option(self, key: str) -> str | None:
        """Text of a metadata entry, ``None`` when it is absent."""
        value = self.metadata.get(key)
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def is_packed(self) -> bool:
        """Whether a struct is kept as one column of rows instead of one column per member."""
        if self.logical_type != "struct":
            return False
        if any((self.option(key) or "").lower() in _TRUE for key in (PACKED, _LEGACY_PACKED)):
            return True
        return BLOB in self.metadata or self.is_blob_v2

    @property
    def is_blob_v2(self) -> bool:
        """Whether this is a blob column of the second kind, kept as one column of descriptors."""
        return self.logical_type == "struct" and self.option(EXTENSION_NAME) == BLOB_V2

    def walk(self) -> Iterator[Field]:
        """The field itself and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Field]:
        """Fields at or below this one that have no children, depth first."""
        return (one for one in self.walk() if not one.children)

    def leaf_columns(self) -> Iterator[Field]:
        """Fields at or below this one that own a physical column from format 2.1 on."""
        if not self.children or self.is_packed:
            yield self
            return
        for child in self.children:
            yield from child.leaf_columns()

    def _only_child(self) -> Field:
        if len(self.children) != 1:
            raise CorruptFileError(
                f"children of {self.logical_type} field {self.name!r}",
                expected="1",
                found=f"{len(self.children)}",
                where="schema",
            )
        return self.children[0]

    def _list_size(self) -> int:
        size = self.logical_type.rsplit(":", 1)[1]
        if not size.isdecimal() or int(size) > 2**31 - 1:
            raise CorruptFileError(
                f"size of field {self.name!r}",
                expected="a number of items",
                found=repr(self.logical_type),
                where="schema",
            )
        return int(size)


def _map_type(entries: Any, name: str) -> pa.DataType:
    if not pa.types.is_struct(entries) or entries.num_fields != 2:
        raise CorruptFileError(
            f"entries of map field {name!r}",
            expected="a struct of key and value",
            found=str(entries),
            where="schema",
        )
    # Maps have one name each for their parts in Arrow, whatever the fields are called.
    key, value = entries.field(0).with_name("key"), entries.field(1).with_name("value")
    made: Any = pa.map_(key.with_nullable(False), value)
    return made  # type: ignore[no-any-return]  # the stubs know maps of types, not of fields
