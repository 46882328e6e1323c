"""Make rows fit a schema: columns by name, types that only differ in form cast.

A text is a text whether its offsets are 32 or 64 bits wide or it is a view or a dictionary;
numbers are not silently widened or narrowed: a different number type is a mistake more often
than not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pyarrow as pa

from glaive.dataset.source import Rows
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema

__all__ = ["check_names", "conform", "match_schema"]

_RESERVED = ("_rowid", "_rowaddr", "_rowoffset")


def match_schema(source: pa.Schema, target: LanceSchema, *, where: str) -> LanceSchema:
    """The columns of ``target`` that rows of ``source`` fill.

    Raises
    ------
    SchemaError
        A column is not in ``target``, one that is never null is missing, or types differ in
        more than form; the message names all such columns.
    """
    known = {field.name: field for field in target.fields}
    wrong = [f"{name!r} is no column of the dataset" for name in source.names if name not in known]
    kept = []
    for field in target.fields:
        at = source.get_all_field_indices(field.name)
        if not at and field.nullable:
            continue
        if len(at) != 1:
            wrong.append(f"{field.name!r} is {'missing' if not at else 'there twice'}")
            continue
        found, wanted = source.field(at[0]).type, field.arrow_type
        if not _compatible(found, wanted):
            wrong.append(f"{field.name!r} should be {wanted}, found {found}")
        kept.append(field)
    if not kept and target.fields and not wrong:
        wrong.append("none of the dataset's columns is there")
    if wrong:
        raise SchemaError(
            f"the rows do not fit {where}: {'; '.join(wrong)}. Columns of the dataset: "
            f"{', '.join(known)}. Rename, cast or drop columns first."
        )
    return replace(target, fields=tuple(kept))


def check_names(names: Collection[str]) -> None:
    """Refuse column names that a dataset cannot have.

    Raises
    ------
    SchemaError
        A name is empty, reserved for row ids, or has a dot, which paths of members use.
    """
    for name in names:
        if name in _RESERVED:
            raise SchemaError(f"column {name!r}: the name is reserved for row ids. Rename it.")
        if not name or "." in name:
            raise SchemaError(
                f"column {name!r}: expected a name without dots, as dots lead to members of "
                "structs. Rename it."
            )


def conform(rows: Rows, schema: pa.Schema) -> Rows:
    """The columns of ``schema``, by name, in its order and with its types.

    Without a copy where the types are equal.
    """
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    arrays = [_cast(rows.column(field.name), field) for field in schema]
    kind: Any = type(rows)
    made: Rows = kind.from_arrays(arrays, schema=schema)
    return made


def _cast(array: Any, field: pa.Field) -> Any:
    wanted = field.type
    if array.type.equals(wanted):
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        storage: Any = array.type.storage_type
        if isinstance(array, pa.ChunkedArray):
            chunks: list[Any] = array.chunks
            array = pa.chunked_array([chunk.storage for chunk in chunks], storage)
        else:
            array = array.storage
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"column {field.name!r} cannot be cast from {array.type} to {wanted}: {error}. "
            "Cast it first."
        ) from None


def _compatible(found: Any, wanted: Any) -> bool:
    """Whether two types are the same but for the form in which values are kept."""
    if found.equals(wanted) or pa.types.is_null(found):
        return True
    if isinstance(found, pa.BaseExtensionType):
        return _compatible(found.storage_type, wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        return _compatible(found, wanted.storage_type)
    if pa.types.is_dictionary(found):
        plain = wanted.value_type if pa.types.is_dictionary(wanted) else wanted
        return _compatible(found.value_type, plain)
    family = _family(found)
    if family is None or family != _family(wanted):
        return False
    if family == "struct":
        members = {member.name: member.type for member in wanted}
        return len(members) == found.num_fields and all(
            member.name in members and _compatible(member.type, members[member.name])
            for member in found
        )
    if family == "map":
        return _compatible(found.key_type, wanted.key_type) and _compatible(
            found.item_type, wanted.item_type
        )
    if family == "fixed list" and found.list_size != wanted.list_size:
        return False
    return "list" not in family or _compatible(found.value_type, wanted.value_type)


def _family(kind: Any) -> str | None:
    """Types between which a cast loses nothing; ``None`` for types that stand alone."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "bytes"
    if types.is_fixed_size_list(kind):
        return "fixed list"
    if types.is_map(kind):
        return "map"
    if types.is_list(kind) or types.is_large_list(kind):
        return "list"
    if types.is_struct(kind):
        return "struct"
    return None
