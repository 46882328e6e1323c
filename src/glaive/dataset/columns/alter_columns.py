"""Drop columns; change names, types, nullability and rules of columns; constraints.

Only a change of type writes files: one per fragment, with the column under a new id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.clustering import cluster_keys
from glaive.dataset.columns.add_columns import AddedFiles, commit_columns
from glaive.dataset.columns.column_files import (
    Grown,
    first_new_id,
    for_each,
    renumbered,
    view_of,
    write_changed,
)
from glaive.dataset.rows import with_retries
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import commit_operation, refuse_for_logged_rows, set_entries
from glaive.dataset.validate import check_rows
from glaive.dataset.writing.conform import check_names
from glaive.dataset.writing.rules import check_values, refuse_ruled
from glaive.errors import OptionError, SchemaError
from glaive.expr.bind import check_column_texts
from glaive.expr.coerce import is_list
from glaive.expr.filters import bind_filter, is_volatile, refuse_blob_uses
from glaive.file.versions import profile_of
from glaive.format.extension import JSON
from glaive.format.field import Field, is_primary_key, joined_path, quoted_name
from glaive.format.fields import LanceSchema, new_field_ids
from glaive.format.fragment import DataFile
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME
from glaive.format.manifest import Manifest
from glaive.options import SWITCH
from glaive.process import DATASETS, emit
from glaive.scan.views import Views
from glaive.table.configuration import CLUSTER_KEYS, CONSTRAINT, DEFAULT, GENERATED, IDENTITY, Rules
from glaive.table.index_coverage import parts_of
from glaive.table.operations.merge import Project
from glaive.types import FormatVersion

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


_KEYS = ("path", "name", "nullable", "data_type", "default", "generated")
_EXPRESSIONS = {"default": DEFAULT, "generated": GENERATED}


def drop_columns(dataset: OpenedVersion, paths: Sequence[str]) -> Manifest:
    """Commit a schema that lacks these columns or struct members."""
    if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise OptionError(f"columns: expected a list of names, found {paths!r:.60}. Pass strings.")
    emit(DATASETS, event="dropping_column", uri=dataset.uri, columns=", ".join(paths))
    schema = dataset.manifest.schema
    dropped: set[int] = set()
    for path in paths:
        chain = schema.find(path, "Column {name} does not exist in {where}")
        for parent in chain[:-1]:
            if parent.is_packed or parent.logical_type == "map":
                raise SchemaError(
                    f"column {path!r}: {parent.name!r} is stored as a unit, so its members cannot "
                    "be dropped. Drop the whole column."
                )
        dropped.add(chain[-1].id)
    kept = tuple(field for top in schema.fields if (field := _without(top, dropped)) is not None)
    if not kept:
        raise SchemaError(
            "Cannot drop all columns from a dataset: drop_columns: this would drop all columns "
            f"({', '.join(schema.names)}). Keep one."
        )
    lost = [field.name for field in schema.fields if field not in kept]
    refuse_ruled(dataset.manifest, lost, "dropped", own=False)
    if keys := sorted(set(cluster_keys(dataset.manifest)).intersection(lost)):
        raise SchemaError(
            f"columns {', '.join(keys)} cannot be dropped: rows are clustered by them. Name other "
            f"columns in {CLUSTER_KEYS} (ALTER TABLE … CLUSTER BY) first, or remove it."
        )
    operation = Project(schema=replace(schema, fields=kept), preserves_nullability=True)
    return commit_operation(dataset, operation)


def _without(field: Field, dropped: set[int]) -> Field | None:
    if field.id in dropped:
        return None
    remaining = [_without(child, dropped) for child in field.children]
    children = tuple(child for child in remaining if child is not None)
    if field.children and not children:
        return None
    return replace(field, children=children)


# ------------------------------------------------------------------ alter


@dataclass(slots=True)
class _Changes:
    """The requested changes by field id, and paths by field id for messages."""

    names: dict[int, str] = field(default_factory=dict)
    nullable: dict[int, bool] = field(default_factory=dict)
    types: dict[int, pa.DataType] = field(default_factory=dict)
    rules: dict[int, dict[str, str | None]] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)


def alter_columns(dataset: OpenedVersion, alterations: Sequence[Any]) -> Manifest:
    """Commit new names, types or nullability; see ``LanceDataset.alter_columns``."""
    schema = dataset.manifest.schema
    changes = _changes(schema, alterations)
    strict = [
        number
        for number, nullable in changes.nullable.items()
        if not nullable and schema.field_by_id(number).nullable
    ]
    keys = any(is_primary_key(schema.field_by_id(one)) for one in changes.names)
    if changes.types or strict or keys:
        what = "types of columns and names of primary keys cannot be changed, nor nulls refused"
        refuse_for_logged_rows(dataset.manifest, what)
    if strict and changes.types:
        raise OptionError(
            f"column {changes.paths[strict[0]]!r} cannot be made non-nullable in the same call "
            "that changes types. Change the types first, then the nullability."
        )
    used = [schema.find(changes.paths[one])[0].name for one in (*changes.names, *changes.types)]
    refuse_ruled(dataset.manifest, used, "renamed or cast", own=False)
    for number in changes.types:
        if (at := schema.field_by_id(number)).metadata.keys() & {IDENTITY}:
            raise SchemaError(f"identity column {at.name!r} cannot be cast. Keep its type bigint.")
    if changes.rules and (changes.names or changes.types):
        raise OptionError(
            "alter_columns: default and generated cannot be set in the same call as name and "
            "data_type. Change these first."
        )
    names = {top.name: changes.names.get(top.id, top.name) for top in schema.fields}
    clustered = cluster_keys(dataset.manifest) if changes.names else []
    renamed = [names.get(key, key) for key in clustered]
    for number in strict:
        _refuse_nulls(dataset, changes.paths[number])
    if not changes.types:
        fields = tuple(_renamed(field, changes) for field in schema.fields)
        _check_siblings(fields)
        altered = replace(schema, fields=fields)
        computes = any(rules.get(GENERATED) for rules in changes.rules.values())
        if changes.rules:
            check_values(altered)
        if computes:
            check_rows(Views(dataset.snapshot), Rules(altered))
        safe = not strict and not computes
        operation = Project(schema=altered, preserves_nullability=safe)
        manifest = commit_operation(dataset, operation)
    else:
        manifest = _cast(dataset, changes)
    if renamed != clustered:
        entry = {CLUSTER_KEYS: json.dumps(renamed)}
        manifest = set_entries(dataset.at(manifest), "config", entry)
    return manifest


def _changes(schema: LanceSchema, alterations: Sequence[Any]) -> _Changes:
    changes = _Changes()
    for alteration in alterations:
        if not isinstance(alteration, Mapping) or not isinstance(alteration.get("path"), str):
            raise OptionError(
                "alter_columns: path is required: expected dictionaries such as "
                "{'path': 'a', 'name': 'b'}, found "
                f"{alteration!r:.60}"
            )
        path = alteration["path"]
        unknown = set(alteration) - set(_KEYS)
        given = {
            key: alteration[key]
            for key in _KEYS[1:]
            if alteration.get(key) is not None or (key in _EXPRESSIONS and key in alteration)
        }
        if unknown:
            raise OptionError(
                f"alter_columns: column {path!r}: Unknown key: {', '.join(map(str, unknown))}. "
                "Valid keys are name, nullable, and data_type; also default and generated."
            )
        if not given:
            raise OptionError(
                f"alter_columns: column {path!r}: At least one of name, nullable, or data_type "
                "must be specified. Add what to change, such as 'name': 'b'."
            )
        number = schema.find(path, 'Column "{name}" does not exist in {where}')[-1].id
        changes.paths[number] = path
        if "name" in given:
            if not isinstance(given["name"], str) or not given["name"]:
                raise OptionError(
                    f"name of column {path!r}: expected a string, found {given['name']}"
                )
            changes.names[number] = given["name"]
        if "nullable" in given:
            changes.nullable[number] = SWITCH.check("nullable", given["nullable"])
        if "data_type" in given:
            if not isinstance(given["data_type"], pa.DataType):
                raise OptionError(
                    f"data_type of column {path!r}: expected a pyarrow type, found "
                    f"{given['data_type']!r}. Pass a type such as pa.int32()."
                )
            changes.types[number] = given["data_type"]
        rules = {_EXPRESSIONS[key]: given[key] for key in given if key in _EXPRESSIONS}
        if rules:
            if number not in {one.id for one in schema.fields}:
                raise OptionError(f"column {path!r}: a member of a struct cannot have a rule.")
            changes.rules[number] = rules
    return changes


def _renamed(field: Field, changes: _Changes) -> Field:
    metadata: dict[str, Any] = dict(field.metadata)
    for key, text in changes.rules.get(field.id, {}).items():
        metadata.pop(key, None)
        if text is not None:
            metadata[key] = text.encode()
    return replace(
        field,
        metadata=metadata,
        name=changes.names.get(field.id, field.name),
        nullable=changes.nullable.get(field.id, field.nullable),
        children=tuple(_renamed(child, changes) for child in field.children),
    )


def _check_siblings(fields: Sequence[Field], prefix: str = "") -> None:
    seen: set[str] = set()
    if not prefix:
        check_names([member.name for member in fields])
    for member in fields:
        if member.name in seen:
            raise SchemaError(
                f"Duplicate field name {prefix + member.name!r}: the name is already taken. Choose "
                "another one."
            )
        seen.add(member.name)
        _check_siblings(member.children, f"{prefix}{member.name}.")


def _refuse_nulls(dataset: OpenedVersion, path: str) -> None:
    """Read a column to be made non-nullable, and check that all its values are valid."""
    chain = dataset.manifest.schema.find(path)
    if any(field.logical_type != "struct" for field in chain[:-1]):
        raise SchemaError(
            f"column {path!r}: list items cannot be made non-nullable; rewrite the column"
        )
    name = ".".join(quoted_name(field.name) for field in chain)
    scanner = Scanner.of(Views(dataset.snapshot), columns=[], filter=f"{name} IS NULL")
    nulls = scanner.count_rows()
    if nulls:
        raise SchemaError(
            f"column {path!r} contains NULL values and cannot be made non-nullable: it is null in "
            f"{nulls} rows. Update or delete them first."
        )


# ------------------------------------------------------------------ types


def _cast(dataset: OpenedVersion, changes: _Changes) -> Manifest:
    snapshot = dataset.snapshot
    manifest = snapshot.manifest
    schema = manifest.schema
    ids = new_field_ids(first_new_id(manifest))
    cast_fields = {number: _field(schema, changes, number, ids) for number in changes.types}
    cast_ids = {descendant.id for field in cast_fields.values() for descendant in field.walk()}
    # Files keep the old names: readers match by id.
    fields, parts = [], []
    for top in schema.fields:
        cast = _replaced(top, cast_fields)
        if cast == top:
            fields.append(top)
            continue
        part = _pruned(cast, cast_ids)
        if not _is_separable(manifest.data_format, top, cast, part):
            cast = part = renumbered(cast, ids)
        fields.append(cast)
        parts.append(part)
    changes.names |= {
        cast_fields[number].id: name
        for number, name in changes.names.items()
        if number in cast_fields
    }
    cast_schema = tuple(_renamed(field, changes) for field in fields)
    _check_siblings(cast_schema)
    _refuse_indices(manifest, {part.id for field in cast_schema for part in field.walk()})
    added = LanceSchema(tuple(parts))
    tops = ((part, schema.find(part.name)[0]) for part in parts)
    view = view_of(snapshot, [path for part, top in tops for path in _struct_paths(part, top, ())])
    new_schema = added.to_arrow()

    def write(position: int) -> DataFile | None:
        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            arrays = [_values(batch.column(field.name), field) for field in new_schema]
            return pa.RecordBatch.from_arrays(arrays, schema=new_schema)

        return write_changed(snapshot, position, added, view, values)

    files = for_each(snapshot, write)
    grown = Grown(replace(schema, fields=cast_schema), added)
    return commit_columns(dataset, grown, AddedFiles.of(files))


def _refuse_indices(manifest: Manifest, remaining: set[int]) -> None:
    """Refuse new ids for indexed columns or their parts: indices have the old ids."""
    schema = manifest.schema
    for index in manifest.indices:
        indexed = (*index.fields, *index.covering_fields)
        replaced = [one for one in indexed if not remaining.issuperset(parts_of(schema, [one]))]
        if replaced and replaced[0] in schema.field_ids():
            name = schema.field_by_id(replaced[0]).name
            raise SchemaError(
                f"column {name!r} cannot be cast: it has the index {index.name!r}, which would "
                "not contain the new values. Drop the index first and rebuild it afterwards."
            )


def _field(schema: LanceSchema, changes: _Changes, number: int, ids: Iterator[int]) -> Field:
    """Return the field with its new type, under a new id."""
    old, data_type, path = schema.field_by_id(number), changes.types[number], changes.paths[number]
    if old.metadata.get(EXTENSION_NAME) == JSON.encode() or isinstance(
        data_type, pa.BaseExtensionType
    ):
        raise SchemaError(
            f"Cannot cast column {path!r}: it cannot be cast from {old.to_arrow().type} to "
            f"{data_type}. Extension types other than JSON are cast to plain types, as their "
            "storage is; otherwise add a column with an expression and drop this one."
        )
    if not _castable(old.arrow_type, data_type):
        raise SchemaError(
            f"Cannot cast column {path!r}: it cannot be cast from {old.arrow_type} to {data_type}. "
            "Casts are possible within integers, floats, strings, binary, dates, times, durations "
            "and decimals, or lists of these. For another cast, add a column with an expression "
            "and drop this one."
        )
    metadata: Any = {
        key: value
        for key, value in old.metadata.items()
        if key not in (EXTENSION_NAME, EXTENSION_METADATA)
    }
    arrow = pa.field(old.name, data_type, changes.nullable.get(number, old.nullable), metadata)
    return renumbered(LanceSchema.from_arrow(pa.schema([arrow])).fields[0], ids)


def _replaced(field: Field, new: Mapping[int, Field]) -> Field:
    if field.id in new:
        return new[field.id]
    return replace(field, children=tuple(_replaced(child, new) for child in field.children))


def _pruned(field: Field, wanted: set[int]) -> Field:
    """Return the field with only the wanted descendants."""
    if field.id in wanted:
        return field
    kept = tuple(
        _pruned(child, wanted)
        for child in field.children
        if any(descendant.id in wanted for descendant in child.walk())
    )
    return replace(field, children=kept)


def _is_separable(version: FormatVersion, old: Field, cast: Field, part: Field) -> bool:
    """Return whether one file can hold the changed part of a column and another file the rest."""
    if cast.id != old.id:
        return True
    leaf_columns = profile_of(version).leaf_columns
    if not leaf_columns or any(field.is_packed for field in part.walk()):
        return False
    return cast == part or all(
        field.logical_type == "struct" for field in part.walk() if field.children
    )


def _struct_paths(part: Field, old: Field, above: tuple[str, ...]) -> Iterator[str]:
    path = (*above, part.name)
    if part.logical_type != "struct" or len(part.children) == len(old.children):
        yield joined_path(path)
        return
    for child in part.children:
        before = next(candidate for candidate in old.children if candidate.name == child.name)
        yield from _struct_paths(child, before, path)


def _values(array: Any, wanted: pa.Field) -> Any:
    try:
        return (array.storage if isinstance(array, pa.ExtensionArray) else array).cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"column {wanted.name!r} cannot be cast from {array.type} to {wanted.type}: {error}. "
            "Change these values first, or choose another type."
        ) from None


def _castable(old: Any, new: Any) -> bool:
    types = pa.types
    if types.is_dictionary(old) and not types.is_dictionary(new):
        old = old.value_type
    families: tuple[Callable[[Any], bool], ...] = (
        types.is_integer,
        types.is_floating,
        _is_text,
        lambda data_type: bool(types.is_binary(data_type) or types.is_large_binary(data_type)),
        lambda data_type: bool(types.is_date(data_type) or types.is_timestamp(data_type)),
        types.is_time,
        types.is_duration,
    )
    if any(family(old) and family(new) for family in families):
        return True
    if old.equals(new) and not types.is_nested(old):
        return True
    if types.is_decimal(old) and types.is_decimal(new):
        # Arrow supports these powers of 10 and multiplies by garbage beyond them.
        max_digits = 76 if 256 in (old.bit_width, new.bit_width) else 38
        return bool(abs(old.scale - new.scale) <= max_digits)
    if types.is_timestamp(old) and types.is_time(new):
        return True
    lists = is_list(old, fixed=True) and is_list(new, fixed=True)
    return lists and _castable(old.value_type, new.value_type)


def _is_text(data_type: Any) -> bool:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


# ------------------------------------------------------------------ constraints


def constraint(
    schema: LanceSchema, config: Mapping[str, str], name: str, expression: str
) -> dict[str, str]:
    """Return the entry of the configuration for a new constraint.

    Parameters
    ----------
    config
        The configuration, with the constraints that the table has.

    Raises
    ------
    FilterError, OptionError
        The expression is invalid or does not depend on columns alone. The name is taken or empty.
    """
    given: Any = name
    if not isinstance(given, str) or not given.strip():
        raise OptionError(f"name of a constraint: expected a string, found {name!r:.60}. Name it.")
    if CONSTRAINT + name in config:
        raise OptionError(
            f"constraint {name!r} exists: {config[CONSTRAINT + name]}. Drop it first, or choose "
            "another name."
        )
    check_column_texts(schema, expression)
    test = bind_filter(expression, schema)
    subject = f"constraint {name!r}"
    refuse_blob_uses(test.expression, schema.fields, subject)
    if is_volatile(test.expression) or not test.columns:
        raise OptionError(
            f"{subject}: {expression!r:.80} does not depend on the columns of a row alone. "
            "Compare columns, such as 'price > 0'."
        )
    return {CONSTRAINT + name: expression}


def add_constraint(dataset: OpenDataset, name: str, expression: str) -> None:
    """Commit a constraint that all rows meet; see ``LanceDataset.add_constraint``."""

    def change(at: OpenedVersion) -> tuple[Manifest, None]:
        schema = at.manifest.schema
        entry = constraint(schema, at.manifest.wire.config, name, expression)
        check_rows(at.views, Rules(schema, ((name, expression),)))
        return set_entries(at, "config", entry), None

    with_retries(dataset, change)


def drop_constraint(dataset: OpenedVersion, name: str) -> Manifest:
    """Commit the removal of a constraint; see ``LanceDataset.drop_constraint``."""
    known = dataset.manifest.wire.config
    if CONSTRAINT + name not in known:
        found = [key.removeprefix(CONSTRAINT) for key in known if key.startswith(CONSTRAINT)]
        raise OptionError(
            f"constraint {name!r}: {dataset.uri} has the constraints "
            f"{', '.join(found) or 'none'}. Choose one of these."
        )
    return set_entries(dataset, "config", {CONSTRAINT + name: None})
