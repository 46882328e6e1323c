"""Make rows fit a schema: columns by name, types that only differ in form cast.

A text is a text whether its offsets are 32 or 64 bits wide or it is a view or a dictionary;
numbers are not silently widened or narrowed: a different number type is a mistake more often
than not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from glaive.arrow.capacity import array_part, in_parts, too_large
from glaive.arrow.extensions import is_json, to_type
from glaive.dataset.blobs.columns import as_blobs, can_become_blobs
from glaive.dataset.writing.source import Rows
from glaive.errors import CapacityError, SchemaError
from glaive.format.fields import Field, LanceSchema

__all__ = ["check_names", "check_same_columns", "conform", "match_schema"]

_RESERVED = (
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
)


def match_schema(source: pa.Schema, target: LanceSchema, *, where: str) -> LanceSchema:
    """The columns of ``target``, and the members of structs, that rows of ``source`` fill.

    Columns and members are matched by name at every level; those that may be null may be
    missing.

    Raises
    ------
    SchemaError
        A column or member is not in ``target``, one that is never null is missing, or types
        differ in more than form; the message names all of them.
    """
    if source.equals(target.to_arrow()):
        return target
    faults: list[str] = []
    fields = _match_fields(target.fields, list(source), "", faults)
    if not fields and target.fields and not faults:
        faults.append("none of the dataset's columns is there")
    if faults:
        raise SchemaError(
            f"the rows do not fit {where}: {'; '.join(faults)}. Columns of the dataset: "
            f"{', '.join(target.names)}. Rename, cast or drop columns first."
        )
    return replace(target, fields=fields)


def _match_fields(
    wanted: Sequence[Field], found: Sequence[pa.Field], prefix: str, faults: list[str]
) -> tuple[Field, ...]:
    """Those of ``wanted`` that ``found`` has, in the order wanted; notes what is at fault."""
    what = "member" if prefix else "column"
    known = {field.name for field in wanted}
    for one in found:
        if one.name not in known:
            close = get_close_matches(one.name, known, n=1)
            hint = f" (did you mean {prefix + close[0]!r}?)" if close else ""
            faults.append(f"{prefix + one.name!r} is no {what} of the dataset{hint}")
    kept = []
    for field in wanted:
        path = prefix + field.name
        given = [one for one in found if one.name == field.name]
        if len(given) == 1:
            kept.append(_match(field, given[0].type, path, faults))
        elif given or not field.nullable:
            faults.append(f"{path!r} is {'there twice' if given else 'missing'}")
    return tuple(kept)


def _match(field: Field, found: Any, path: str, faults: list[str]) -> Field:
    """The field, without the members that ``found`` does not have."""
    wanted = field.arrow_type
    if is_json(found) and field.logical_type == "json":
        return field
    if field.is_blob_v2 and can_become_blobs(found):
        return field
    if isinstance(found, pa.BaseExtensionType):
        return _match(field, found.storage_type, path, faults)
    if not found.equals(wanted) and not pa.types.is_null(found):
        family = _family(found)
        if family == "struct" == _family(wanted) and not field.is_packed:
            members = _match_fields(field.children, list(found), f"{path}.", faults)
            if members or not field.children:
                return replace(field, children=members)
        elif family == "list" == _family(wanted):
            (item,) = field.children
            matched = _match(item, found.value_type, f"{path}.{item.name}", faults)
            return replace(field, children=(matched,))
        if not _compatible(found, wanted):
            faults.append(f"{path!r} should be {wanted}, found {found}")
    return field


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


_REFUSALS = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowTypeError,
    pa.ArrowCapacityError,
)


def conform(rows: Rows, schema: pa.Schema) -> Rows:
    """The columns of ``schema``, by name, in its order and with its types.

    Without a copy where the types are equal.

    Raises
    ------
    SchemaError
        There are other columns, or values that do not go with the type.
    """
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    check_same_columns(rows.schema.names, schema.names)
    arrays = [_cast(rows.column(field.name), field) for field in schema]
    kind: Any = type(rows)
    if any(isinstance(array, pa.ChunkedArray) for array in arrays):
        kind = pa.Table
    made: Rows = kind.from_arrays(arrays, schema=schema)
    return made


def check_same_columns(found: Collection[str], wanted: Collection[str]) -> None:
    """Refuse rows that have other columns than expected; their order does not matter.

    Raises
    ------
    SchemaError
        Names both.
    """
    if sorted(found) != sorted(wanted):
        raise SchemaError(
            f"rows have the columns {', '.join(found)}, expected {', '.join(wanted)}. All pieces "
            "of the rows need the same columns, those of the schema if one is given: rename, add "
            "or drop columns first."
        )


def _cast(array: Any, field: pa.Field) -> Any:
    """The values in the type of a field; in several chunks where one does not hold them."""
    whole = isinstance(array, pa.ChunkedArray)
    chunks = array.chunks if whole else [array]
    cast = [cast_part for chunk in chunks for cast_part in _cast_parts(chunk, field)]
    if whole or len(cast) > 1:
        return pa.chunked_array(cast, field.type)
    return cast[0]


def _cast_parts(array: Any, field: pa.Field) -> Iterable[Any]:
    def cast(start: int, stop: int) -> Any:
        return _cast_array(array_part(array, start, stop), field)

    return in_parts(cast, 0, len(array))


def _cast_array(array: Any, field: pa.Field) -> Any:
    wanted = field.type
    try:
        array = as_blobs(array, field)
        return to_type(array, wanted, f"column {field.name!r}")
    except _REFUSALS as error:
        if too_large(error):
            raise CapacityError(
                f"column {field.name!r}: {len(array)} values of {array.type} do not fit one array "
                f"of {wanted}: {error}"
            ) from None
        raise SchemaError(
            f"column {field.name!r} cannot be cast from {array.type} to {wanted}: {error}. "
            "Cast it first."
        ) from None


def _compatible(found: Any, wanted: Any) -> bool:
    """Whether two types are the same but for the form in which values are kept."""
    if found.equals(wanted) or pa.types.is_null(found):
        return True
    if is_json(found) and pa.types.is_large_binary(wanted):
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
