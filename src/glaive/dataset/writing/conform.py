"""Convert rows to a schema: match columns by name, cast types that only differ physically.

Strings may have 32- or 64-bit offsets, or be views or dictionary-encoded. glaive refuses
to widen or narrow numbers, because another number type is usually a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.chunked import array_part, check_views, in_parts, too_large
from glaive.arrow.extensions import is_json, to_type
from glaive.dataset.blobs import as_blobs, can_become_blobs
from glaive.dataset.writing.source import Rows, lost_member
from glaive.errors import CapacityError, SchemaError
from glaive.expr.coerce import is_binary, is_list, is_string
from glaive.format.field import Field
from glaive.format.fields import RESERVED, LanceSchema
from glaive.format.logical_types import EXTENSION_NAME
from glaive.table.configuration import has_value

_MAX_HINTS: Final = 10
"""Maximum number of unknown columns that get a hint: each is compared with all known columns."""


def match_schema(
    source: pa.Schema, target: LanceSchema, *, where: str, ruled: bool = False
) -> LanceSchema:
    """Return the columns of ``target``, and the struct members, that rows of ``source`` have.

    Columns and members are matched by name at every level; nullable columns may be missing. With
    ``ruled``, the result also has missing columns whose values a rule gives.

    Raises
    ------
    SchemaError
        ``target`` lacks a column or member, a non-nullable column is missing, or logical types
        differ. The message lists all mismatches.
    """
    has_json = "json" in (field.logical_type for field in target.fields)
    if not has_json and source.equals(target.to_arrow()):
        return target
    faults: list[str] = []
    fields = _match_fields(target.fields, list(source), "", faults, ruled=ruled)
    if not fields and target.fields and not faults:
        faults.append("they have none of the dataset's columns")
    if faults:
        known = f"Columns of the dataset: {', '.join(target.names)}. " if target.names else ""
        raise SchemaError(
            f"Append with different schema: the rows do not match {where}: {'; '.join(faults)}. "
            f"{known}Rename, cast or drop columns first."
        )
    return replace(target, fields=fields)


def _match_fields(
    wanted: Sequence[Field],
    given: Sequence[pa.Field],
    prefix: str,
    faults: list[str],
    *,
    ruled: bool = False,
) -> tuple[Field, ...]:
    """Return the fields of ``wanted`` that are in ``given``; add mismatches to ``faults``."""
    kind = "member" if prefix else "column"
    known = {field.name for field in wanted}
    unknown = [field.name for field in given if field.name not in known]
    for at, name in enumerate(unknown):
        close = get_close_matches(name, known, n=1) if at < _MAX_HINTS else ()
        hint = f" (did you mean {prefix + close[0]!r}?)" if close else ""
        faults.append(f"{prefix + name!r} is not a {kind} of the dataset{hint}")
    by_name: dict[str, list[pa.Field]] = {}
    for one in given:
        by_name.setdefault(one.name, []).append(one)
    matched = []
    for field in wanted:
        path = prefix + field.name
        candidates = by_name.get(field.name, ())
        if len(candidates) == 1:
            (one,) = candidates
            matched.append(_match(field, one.type, path, faults))
            declared = EXTENSION_NAME.encode() in (one.metadata or {})  # as JSONB
            if field.logical_type == "json" and is_binary(one.type) and not declared:
                faults.append(f"{path!r} should be pa.json_(), found {one.type}")
        elif ruled and not candidates and has_value(field):
            matched.append(field)
        elif candidates or not field.nullable:
            faults.append(f"{path!r} is {'given twice' if candidates else 'missing'}")
    return tuple(matched)


def _match(field: Field, given: Any, path: str, faults: list[str]) -> Field:
    """Return the field; leave out members that the type ``given`` lacks."""
    wanted = field.arrow_type
    if is_json(given) and field.logical_type == "json":
        return field
    if field.is_blob_v2 and can_become_blobs(given):
        return field
    if isinstance(given, pa.BaseExtensionType):
        return _match(field, given.storage_type, path, faults)
    if not given.equals(wanted) and not pa.types.is_null(given):
        family = _family(given)
        if family == "struct" == _family(wanted) and not field.is_packed:
            members = _match_fields(field.children, list(given), f"{path}.", faults)
            if members or not field.children:
                return replace(field, children=members)
        elif family == "list" == _family(wanted):
            (item,) = field.children
            matched = _match(item, given.value_type, f"{path}.{item.name}", faults)
            return replace(field, children=(matched,))
        if not compatible(given, wanted):
            faults.append(f"{path!r} should be {wanted}, found {given}")
    return field


def check_names(names: Collection[str]) -> None:
    """Refuse invalid column names.

    Raises
    ------
    SchemaError
        A name is empty, reserved for row ids, or has a dot, which separates struct members.
    """
    for name in names:
        if name in RESERVED:
            raise SchemaError(
                f"column {name!r}: the name is reserved for row ids and cannot be used. Rename it."
            )
        if not name:
            raise SchemaError("a column has an empty name, so nobody could select it. Rename it.")
        if "." in name:
            raise SchemaError(
                f"column {name!r}: a top level field cannot contain `.`, which separates members "
                "of structs. Rename it."
            )


_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowCapacityError)


def conform(rows: Rows, schema: pa.Schema, *, keep_dictionaries: bool = False) -> Rows:
    """Reorder and cast columns to a schema; share columns of equal type.

    Parameters
    ----------
    keep_dictionaries
        Leave strings dictionary-encoded, if the writer supports it.

    Raises
    ------
    SchemaError
        The columns differ, or a value cannot be cast.
    """
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    check_same_columns(rows.schema.names, schema.names)
    passes: Callable[[Any, pa.DataType], bool] | None = None
    if keep_dictionaries:
        from glaive.file.v2.writer import passes_through as passes
    fields, arrays = [], []
    for field in schema:
        column: Any = rows.column(field.name)
        kept = passes is not None and passes(column, field.type)
        fields.append(field.with_type(column.type) if kept else field)
        arrays.append(column if kept else _cast(column, field))
    row_type: Any = type(rows)
    if any(isinstance(array, pa.ChunkedArray) for array in arrays):
        row_type = pa.Table
    converted: Rows = row_type.from_arrays(arrays, schema=pa.schema(fields))
    return converted


def check_same_columns(given: Collection[str], wanted: Collection[str]) -> None:
    """Check column names, in any order.

    Raises
    ------
    SchemaError
        The names differ.
    """
    if sorted(given) != sorted(wanted):
        raise SchemaError(
            f"rows have the columns {', '.join(given)}, expected {', '.join(wanted)}. All batches "
            "need the same columns, or the columns of the schema if you give one. Rename, add or "
            "drop columns first."
        )


def _cast(array: Any, field: pa.Field) -> Any:
    """Cast the values to the type of a field; use several chunks where one is too small."""
    chunked = isinstance(array, pa.ChunkedArray)
    chunks = array.chunks if chunked else [array]
    cast = [cast_part for chunk in chunks for cast_part in _cast_parts(chunk, field)]
    if chunked or len(cast) > 1:
        return pa.chunked_array(cast, field.type)
    return cast[0]


def _cast_parts(array: Any, field: pa.Field) -> Iterable[Any]:
    def cast(start: int, stop: int) -> Any:
        return _cast_array(array_part(array, start, stop), field)

    return in_parts(cast, 0, len(array))


def _cast_array(array: Any, field: pa.Field) -> Any:
    wanted = field.type
    check_views(array, f"column {field.name!r}")
    try:
        array = as_blobs(array, field)
        lost = lost_member(array.type, wanted)
        if lost is not None:
            raise SchemaError(
                f"column {field.name!r}: the values have a member {lost!r}, which {wanted} lacks. "
                "All batches need the same members, or the members of the schema if you give one."
            )
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


def compatible(given: Any, wanted: Any) -> bool:
    """Return whether two types differ only in their physical representation."""
    if given.equals(wanted) or pa.types.is_null(given):
        return True
    if is_json(given) and pa.types.is_large_binary(wanted):
        return True
    if isinstance(given, pa.BaseExtensionType):
        return compatible(given.storage_type, wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        return compatible(given, wanted.storage_type)
    if pa.types.is_dictionary(given):
        plain = wanted.value_type if pa.types.is_dictionary(wanted) else wanted
        return compatible(given.value_type, plain)
    family = _family(given)
    if family is None or family != _family(wanted):
        return False
    if family == "struct":
        members = {member.name: member.type for member in wanted}
        return len(members) == given.num_fields and all(
            member.name in members and compatible(member.type, members[member.name])
            for member in given
        )
    if family == "map":
        return compatible(given.key_type, wanted.key_type) and compatible(
            given.item_type, wanted.item_type
        )
    if family == "fixed list" and given.list_size != wanted.list_size:
        return False
    return "list" not in family or compatible(given.value_type, wanted.value_type)


def _family(data_type: Any) -> str | None:
    """Return the group of types that cast losslessly to each other; ``None`` for other types."""
    types = pa.types
    if is_string(data_type):
        return "text"
    if is_binary(data_type):
        return "bytes"
    if types.is_fixed_size_list(data_type):
        return "fixed list"
    if types.is_map(data_type):
        return "map"
    if is_list(data_type):
        return "list"
    if types.is_struct(data_type):
        return "struct"
    return None
