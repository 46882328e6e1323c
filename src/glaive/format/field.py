"""One column of a schema, or one level of a nested one.

Field ids identify columns in files and fragments; names may change.

Specification: "Fields" and "Physical columns" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.format.logical_types import ACTED_ON, EXTENSION_NAME, leaf_type

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
        Identity within the dataset; -1 for members of a blob descriptor.
    name
        The field's own name, without its parents.
    logical_type
        Name of the type in wire format, without children.
    nullable
        Whether values may be null.
    children
        Members of a struct; the item field of a list; the entries of a map.
    metadata
        Arrow's field metadata.
    dictionary
        Position and length of the dictionary in the manifest, in format 0.1.
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
        """Whether the type has children."""
        type_name = self.logical_type
        return type_name == "struct" or type_name in _LISTS or type_name.startswith(_FIXED_LISTS)

    @property
    def arrow_type(self) -> pa.DataType:
        """Arrow storage type with children; extension types are only in ``metadata``."""
        type_name = self.logical_type
        if type_name == "struct":
            return pa.struct([child.to_arrow() for child in self.children])
        if type_name in _LISTS:
            item = self._only_child().to_arrow()
            if type_name == "map":
                return _map_type(item.type, self.name)
            return pa.list_(item) if type_name.startswith("list") else pa.large_list(item)
        if type_name.startswith(_FIXED_LISTS):
            return pa.list_(self._only_child().to_arrow(), self._list_size())
        leaf: pa.DataType = leaf_type(type_name)
        return leaf

    def to_arrow(self) -> pa.Field[Any]:
        """Arrow field with type, nullability and the metadata that Arrow can take."""
        data_type = self.arrow_type
        metadata: Any = dict(self.metadata) if self.metadata else None
        if metadata and not ACTED_ON.isdisjoint(metadata):
            from glaive.format.extension_metadata import without_unfit

            metadata = without_unfit(metadata, data_type)
        # Arrow's null type is always nullable, but a file may declare it non-nullable.
        nullable = self.nullable or pa.types.is_null(data_type)
        return pa.field(self.name, data_type, nullable, metadata)

    def option(self, key: str) -> str | None:
        """A metadata entry as a string; ``None`` if it is missing."""
        value = self.metadata.get(key)
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def is_packed(self) -> bool:
        """Whether a struct is stored as one column of rows instead of one column per member."""
        if self.logical_type != "struct":
            return False
        if any((self.option(key) or "").lower() in _TRUE for key in (PACKED, _LEGACY_PACKED)):
            return True
        return BLOB in self.metadata or self.is_blob_v2

    @property
    def is_blob_v2(self) -> bool:
        """Whether this is a blob column of the second kind, a column of descriptors in files."""
        return self.logical_type == "struct" and self.option(EXTENSION_NAME) == BLOB_V2

    def walk(self) -> Iterator[Field]:
        """The field itself and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Field]:
        """Fields at or below this one that have no children, depth first."""
        return (field for field in self.walk() if not field.children)

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
        # Python makes no number of thousands of digits.
        if not size.isdecimal() or len(size) > 10 or int(size) > 2**31 - 1:
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
    # Arrow has fixed names for the children of maps.
    key, value = entries.field(0).with_name("key"), entries.field(1).with_name("value")
    made: Any = pa.map_(key.with_nullable(False), value)
    return made  # type: ignore[no-any-return]  # the stubs know maps of types, not of fields
