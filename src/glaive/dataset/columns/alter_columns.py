"""``drop_columns`` and ``alter_columns``: columns leave, get other names, types or nullability.

Only a change of type writes files: one per fragment with the column under a new id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.columns.add_columns import commit_columns
from glaive.dataset.columns.column_files import for_each, view_of
from glaive.dataset.columns.live_columns import write_changed
from glaive.dataset.columns.new_columns import Grown, first_new_id, renumbered
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.scanner import Scanner
from glaive.dataset.writing.conform import check_names
from glaive.errors import OptionError, SchemaError
from glaive.file.versions import profile_of
from glaive.format.fields import Field, LanceSchema, new_field_ids
from glaive.format.fragment import DataFile
from glaive.format.logical_types import EXTENSION_NAME
from glaive.format.manifest import Manifest
from glaive.scan.views import Views
from glaive.table.operations.project import Project
from glaive.types import FormatVersion

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["alter_columns", "drop_columns"]

_KEYS = ("path", "name", "nullable", "data_type")


def drop_columns(dataset: OpenedVersion, paths: Sequence[str]) -> Manifest:
    """Commit a schema without these columns or members of structs.

    Raises
    ------
    ColumnNotFoundError, SchemaError
        There is no such column, it cannot go alone, or none would be left.
    """
    if isinstance(paths, str) or not all(isinstance(one, str) for one in paths):
        raise OptionError(f"columns: expected a list of names, found {paths!r:.60}")
    schema = dataset.manifest.schema
    gone: set[int] = set()
    for path in paths:
        chain = schema.find(path)
        for parent in chain[:-1]:
            if parent.is_packed or parent.logical_type == "map":
                raise SchemaError(
                    f"column {path!r}: {parent.name!r} is kept as a whole, so no member can be "
                    "dropped. Drop all of it."
                )
        gone.add(chain[-1].id)
    kept = tuple(one for top in schema.fields if (one := _without(top, gone)) is not None)
    if not kept:
        raise SchemaError(
            f"drop_columns: no column would be left of {', '.join(schema.names)}. Keep one."
        )
    operation = Project(schema=replace(schema, fields=kept), preserves_nullability=True)
    return commit_operation(dataset, operation)


def _without(one: Field, gone: set[int]) -> Field | None:
    if one.id in gone:
        return None
    left = [_without(child, gone) for child in one.children]
    children = tuple(child for child in left if child is not None)
    if one.children and not children:
        return None
    return replace(one, children=children)


# ------------------------------------------------------------------ alter


@dataclass(slots=True)
class _Changes:
    """What is asked for, by field id; paths by id for messages."""

    names: dict[int, str] = field(default_factory=dict)
    nullable: dict[int, bool] = field(default_factory=dict)
    types: dict[int, pa.DataType] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)


def alter_columns(dataset: OpenedVersion, alterations: Sequence[Any]) -> Manifest:
    """Commit other names, types or nullability; see ``LanceDataset.alter_columns``."""
    schema = dataset.manifest.schema
    changes = _changes(schema, alterations)
    strict = [
        number
        for number, nullable in changes.nullable.items()
        if not nullable and schema.field_by_id(number).nullable
    ]
    if strict and changes.types:
        raise OptionError(
            f"column {changes.paths[strict[0]]!r}: it cannot be made never null in the same call "
            "that changes types. Change the types first, then the nullability."
        )
    for number in strict:
        _refuse_nulls(dataset, changes.paths[number])
    if not changes.types:
        fields = tuple(_renamed(one, changes) for one in schema.fields)
        _check_siblings(fields)
        operation = Project(schema=replace(schema, fields=fields), preserves_nullability=not strict)
        return commit_operation(dataset, operation)
    return _cast(dataset, changes)


def _changes(schema: LanceSchema, alterations: Sequence[Any]) -> _Changes:
    changes = _Changes()
    for alteration in alterations:
        if not isinstance(alteration, Mapping) or not isinstance(alteration.get("path"), str):
            raise OptionError(
                "alter_columns: expected dictionaries such as {'path': 'a', 'name': 'b'}, found "
                f"{alteration!r:.60}"
            )
        path = alteration["path"]
        unknown = set(alteration) - set(_KEYS)
        given = {key: alteration[key] for key in _KEYS[1:] if alteration.get(key) is not None}
        if unknown or not given:
            raise OptionError(
                f"alter_columns: column {path!r}: expected one or more of name, nullable and "
                f"data_type, found {', '.join(map(repr, sorted(unknown))) or 'none'}"
            )
        number = schema.find(path)[-1].id
        changes.paths[number] = path
        if "name" in given:
            if not isinstance(given["name"], str) or not given["name"]:
                raise OptionError(f"name of column {path!r}: expected text, found {given['name']}")
            changes.names[number] = given["name"]
        if "nullable" in given:
            changes.nullable[number] = bool(given["nullable"])
        if "data_type" in given:
            if not isinstance(given["data_type"], pa.DataType):
                raise OptionError(
                    f"data_type of column {path!r}: expected a pyarrow type, found "
                    f"{given['data_type']!r}"
                )
            changes.types[number] = given["data_type"]
    return changes


def _renamed(one: Field, changes: _Changes) -> Field:
    return replace(
        one,
        name=changes.names.get(one.id, one.name),
        nullable=changes.nullable.get(one.id, one.nullable),
        children=tuple(_renamed(child, changes) for child in one.children),
    )


def _check_siblings(fields: Sequence[Field], prefix: str = "") -> None:
    seen: set[str] = set()
    if not prefix:
        check_names([one.name for one in fields])
    for one in fields:
        if one.name in seen:
            raise SchemaError(
                f"column {prefix + one.name!r}: two would have this name. Choose another one."
            )
        seen.add(one.name)
        _check_siblings(one.children, f"{prefix}{one.name}.")


def _refuse_nulls(dataset: OpenedVersion, path: str) -> None:
    """Refuse to make a column never null that has nulls; reads the column."""
    chain = dataset.manifest.schema.find(path)
    if any(one.logical_type != "struct" for one in chain[:-1]):
        raise SchemaError(
            f"column {path!r}: items of lists cannot be made never null; rewrite the column"
        )
    name = ".".join(f"`{one.name}`" for one in chain)
    scanner = Scanner.of(Views(dataset.snapshot), columns=[], filter=f"{name} IS NULL")
    found = scanner.count_rows()
    if found:
        raise SchemaError(
            f"column {path!r} cannot be made never null: it is null in {found} rows. Update or "
            "delete them first."
        )


# ------------------------------------------------------------------ types


def _cast(dataset: OpenedVersion, changes: _Changes) -> Manifest:
    snapshot = dataset.snapshot
    manifest = snapshot.manifest
    schema = manifest.schema
    ids = new_field_ids(first_new_id(manifest))
    made = {number: _field(schema, changes, number, ids) for number in changes.types}
    # Files get the names of before: they are the same for whoever reads by id.
    fields, parts = [], []
    for top in schema.fields:
        cast = _replaced(top, made)
        if cast == top:
            fields.append(top)
            continue
        part = _only(cast, {one.id for field in made.values() for one in field.walk()})
        if not _stands_alone(manifest.data_format, top, cast, part):
            cast = part = renumbered(cast, ids)
        fields.append(cast)
        parts.append(part)
    renamed = {made[number].id: name for number, name in changes.names.items() if number in made}
    changes.names.update(renamed)
    cast_schema = tuple(_renamed(one, changes) for one in fields)
    _check_siblings(cast_schema)
    _refuse_indices(manifest, {below.id for one in cast_schema for below in one.walk()})
    added = LanceSchema(tuple(parts))
    view = view_of(snapshot, [path for one in parts for path in _paths_of(schema, one)])
    kinds = added.to_arrow()

    def write(position: int) -> DataFile | None:
        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            arrays = [_values(batch.column(kind.name), kind) for kind in kinds]
            return pa.RecordBatch.from_arrays(arrays, schema=kinds)

        return write_changed(snapshot, position, added, view, values)

    files = for_each(snapshot, write)
    return commit_columns(dataset, Grown(replace(schema, fields=cast_schema), added), files)


def _refuse_indices(manifest: Manifest, left: set[int]) -> None:
    """Refuse to give columns new ids that indices know by their old ones."""
    for index in manifest.indices:
        gone = [one for one in (*index.fields, *index.covering_fields) if one not in left]
        if gone and gone[0] in manifest.schema.field_ids():
            name = manifest.schema.field_by_id(gone[0]).name
            raise SchemaError(
                f"column {name!r} cannot be cast: it has the index {index.name!r}, which its new "
                "values would not be in. Drop the index first, and build it again."
            )


def _field(schema: LanceSchema, changes: _Changes, number: int, ids: Iterator[int]) -> Field:
    """The field with its new type, under a new id."""
    old, kind, path = schema.field_by_id(number), changes.types[number], changes.paths[number]
    if EXTENSION_NAME in old.metadata or isinstance(kind, pa.BaseExtensionType):
        raise SchemaError(f"column {path!r}: extension types cannot be cast to or from others")
    if not _castable(old.arrow_type, kind):
        raise SchemaError(
            f"column {path!r} cannot be cast from {old.arrow_type} to {kind}. Types can be "
            "changed among integers, floats, texts, bytes, dates, times, durations, decimals, or "
            "lists of such; for others add a column with an expression and drop this one."
        )
    metadata: Any = dict(old.metadata)
    arrow = pa.field(old.name, kind, changes.nullable.get(number, old.nullable), metadata)
    return renumbered(LanceSchema.from_arrow(pa.schema([arrow])).fields[0], ids)


def _replaced(one: Field, made: Mapping[int, Field]) -> Field:
    if one.id in made:
        return made[one.id]
    return replace(one, children=tuple(_replaced(child, made) for child in one.children))


def _only(one: Field, wanted: set[int]) -> Field:
    """The field with nothing below it but what is wanted."""
    if one.id in wanted:
        return one
    kept = tuple(
        _only(child, wanted)
        for child in one.children
        if any(below.id in wanted for below in child.walk())
    )
    return replace(one, children=kept)


def _stands_alone(version: FormatVersion, old: Field, cast: Field, part: Field) -> bool:
    """Whether a file can have the changed part of a column while another has the rest."""
    if cast.id != old.id:
        return True
    apart = profile_of(version).leaf_columns
    if not apart or any(one.is_packed for one in part.walk()):
        return False
    return cast == part or all(one.logical_type == "struct" for one in part.walk() if one.children)


def _paths_of(schema: LanceSchema, part: Field) -> list[str]:
    """Paths that the values of a part of a column are read by."""
    return list(_struct_paths(part, schema.find(f"`{part.name}`")[0], ()))


def _struct_paths(part: Field, old: Field, above: tuple[str, ...]) -> Iterator[str]:
    here = (*above, f"`{part.name}`")
    if part.logical_type != "struct" or len(part.children) == len(old.children):
        yield ".".join(here)
        return
    for child in part.children:
        before = next(one for one in old.children if one.name == child.name)
        yield from _struct_paths(child, before, here)


def _values(array: Any, wanted: pa.Field) -> Any:
    try:
        return array.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {wanted.name!r} cannot be cast from {array.type} to {wanted.type}: {error}. "
            "Change these values first, or choose another type."
        ) from None


def _castable(old: Any, new: Any) -> bool:
    types = pa.types
    families: tuple[Callable[[Any], bool], ...] = (
        types.is_integer,
        types.is_floating,
        _is_text,
        lambda kind: bool(types.is_binary(kind) or types.is_large_binary(kind)),
        lambda kind: bool(types.is_date(kind) or types.is_timestamp(kind)),
        types.is_time,
        types.is_duration,
        types.is_decimal,
    )
    if any(family(old) and family(new) for family in families):
        return True
    if old.equals(new) and not types.is_nested(old):
        return True
    if types.is_timestamp(old) and types.is_time(new):
        return True
    return _is_list(old) and _is_list(new) and _castable(old.value_type, new.value_type)


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
