"""One column of a schema, or one level of a nested one.

Field ids identify columns in files and fragments; names may change.

Specification: "Fields" and "Physical columns" in ``docs/format``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.logical_types import EXTENSION_NAME, leaf_type

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
        The field's own name.
    logical_type
        Name of the type in wire format; children are separate fields.
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
    metadata: Mapping[str, bytes] = dataclasses.field(default_factory=dict, hash=False)
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
        """Return the Arrow field with type, nullability and the metadata that Arrow can take."""
        data_type = self.arrow_type
        metadata: Any = dict(self.metadata) if self.metadata else None
        # Arrow's null type is always nullable, but a file may declare it non-nullable.
        nullable = self.nullable or pa.types.is_null(data_type)
        return pa.field(self.name, data_type, nullable, metadata)

    def option(self, key: str) -> str | None:
        """Return a metadata entry as a string; ``None`` if it is missing."""
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
        """Yield the field itself and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Field]:
        """Yield the leaves at or below this field, depth first."""
        return (field for field in self.walk() if not field.children)

    def leaf_columns(self) -> Iterator[Field]:
        """Yield the fields at or below this field that own a column from format 2.1 on."""
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
        # Python refuses to parse thousands of digits.
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


# --- Columns that a schema declares to be a key, in their metadata, unenforced ----------
#
# Specification: "Fields" in ``docs/format``.

PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION: Final = "lance-schema:unenforced-primary-key:position"
CLUSTERING_KEY_POSITION: Final = "lance-schema:unenforced-clustering-key:position"

_TRUE_TEXTS: Final = ("true", "1", "yes")
_MAX_POSITION: Final = (1 << 32) - 1


def _stored_position(field: Field, option: str) -> int | None:
    text = (field.option(option) or "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_POSITION))):
        return None
    return int(text) if int(text) <= _MAX_POSITION else None


def key_position(field: Field, option: str) -> int | None:
    """Return the place of a column within its key, from 1 on, or ``None``."""
    return _stored_position(field, option) or None


def is_primary_key(field: Field) -> bool:
    """Return whether the column is of the primary key: it says so, or has a place in it."""
    flagged = (field.option(PRIMARY_KEY) or "").lower() in _TRUE_TEXTS
    return flagged or _stored_position(field, PRIMARY_KEY_POSITION) is not None


def is_clustering_key(field: Field) -> bool:
    """Return whether the column has a place in the clustering key."""
    return _stored_position(field, CLUSTERING_KEY_POSITION) is not None


def primary_key(fields: Iterable[Field]) -> list[Field]:
    """Return the columns of the primary key: first by place, then the others in their order."""
    declared = [field for field in fields if is_primary_key(field)]
    return sorted(
        declared, key=lambda one: key_position(one, PRIMARY_KEY_POSITION) or _MAX_POSITION + 1
    )


def check_primary_key(fields: Iterable[Field]) -> None:
    """Refuse a schema if a column of the primary key, or a struct around it, may be null.

    Other readers refuse the whole table then.

    Raises
    ------
    SchemaError
        Such a column exists.
    """
    for field in fields:
        _check_below(field, field.name, None)


def _check_below(field: Field, path: str, outer: str | None) -> None:
    """Check a field; ``outer`` is the path of a nullable struct around it, or ``None``."""
    nullable = outer or (path if field.nullable else None)
    if nullable is not None and is_primary_key(field):
        raise SchemaError(
            f"column {nullable!r} is of the primary key, or around a column of it, and may be "
            "null, which other readers of the table refuse. Declare it with nullable=False."
        )
    for child in field.children:
        _check_below(child, f"{path}.{child.name}", nullable)


def clustering_key(fields: Iterable[Field]) -> list[Field]:
    """Return the columns of the clustering key, by place."""
    declared = [field for field in fields if is_clustering_key(field)]
    return sorted(declared, key=lambda one: _stored_position(one, CLUSTERING_KEY_POSITION) or 0)


# --- A field of a schema as pylance's callers know it: facts are methods ----------------


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field with its id; returned by :meth:`LanceSchema.field`.

    Parameters
    ----------
    field
        The field.
    """

    _field: Field

    def id(self) -> int:
        """Return its id, which data files and indices use."""
        return self._field.id

    def name(self) -> str:
        """Return its own name."""
        return self._field.name

    def children(self) -> list[SchemaField]:
        """Return its members."""
        return [SchemaField(one) for one in self._field.children]

    def is_unenforced_primary_key(self) -> bool:
        """Return whether it is declared to be of the primary key."""
        return is_primary_key(self._field)

    def unenforced_primary_key_position(self) -> int | None:
        """Return its place in the primary key, from 1 on, or ``None``."""
        return key_position(self._field, PRIMARY_KEY_POSITION)

    def is_unenforced_clustering_key(self) -> bool:
        """Return whether it is declared to be of the clustering key."""
        return is_clustering_key(self._field)

    def unenforced_clustering_key_position(self) -> int | None:
        """Return its place in the clustering key, from 1 on, or ``None``."""
        return key_position(self._field, CLUSTERING_KEY_POSITION)

    @property
    def metadata(self) -> dict[str, str]:
        """Its metadata, as strings."""
        found = self._field.metadata
        return {_text(key): _text(value) for key, value in found.items()}

    def to_arrow(self) -> pa.Field:
        """Return the field in Arrow."""
        return self._field.to_arrow()


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


# --- Paths of columns: names with dots between them, in backticks where they need them --
#
# Filters and expressions, also in Spark, quote names in the same way: a backtick within
# backticks is doubled.


def quoted_name(name: str) -> str:
    """Return a name in backticks, which every expression takes for a name."""
    return "`" + name.replace("`", "``") + "`"


def unquoted_name(name: str) -> str:
    """Return a name as it is between backticks, if it has them."""
    return name[1:-1].replace("``", "`") if re.fullmatch(r"`([^`]|``)+`", name) else name


def joined_path(names: Sequence[str]) -> str:
    """Return the path of the member that names lead to; a column's path is its plain name."""
    if len(names) == 1:
        return names[0]
    return ".".join(quoted_name(name) if "." in name or "`" in name else name for name in names)


def split_path(path: str) -> list[str]:
    """Split ``a.`b.c`.d`` at the dots outside backticks: ``["a", "b.c", "d"]``."""
    if "`" not in path:
        return path.split(".")
    parts, quoted, doubled = [""], False, False
    for at, character in enumerate(path):
        if doubled:
            doubled = False
        elif character == "`":
            doubled = quoted and path[at + 1 : at + 2] == "`"
            if doubled:
                parts[-1] += character
            else:
                quoted = not quoted
        elif character == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts
