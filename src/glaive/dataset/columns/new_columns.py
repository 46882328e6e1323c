"""The columns that a schema change adds: names, ids and types.

Specification: "Building the manifest" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from glaive.arrow.nesting import check_schema
from glaive.dataclass import dataclass
from glaive.dataset.blobs.columns import with_blob_type
from glaive.dataset.writing.conform import check_names
from glaive.errors import SchemaError, UnsupportedFeatureError
from glaive.file.versions import PROFILES, Profile, profile_of
from glaive.format.declared_keys import check_primary_key
from glaive.format.fields import Field, LanceSchema, new_field_ids
from glaive.format.manifest import Manifest

__all__ = ["Grown", "first_new_id", "grow", "renumbered"]


@dataclass(frozen=True, slots=True)
class Grown:
    """The columns after a change, and the new ones with their enclosing structs."""

    schema: LanceSchema
    added: LanceSchema

    @property
    def preserves_nullability(self) -> bool:
        """Whether existing rows need no values for the new columns."""
        return all(field.nullable for field in self.added.fields)


def first_new_id(manifest: Manifest) -> int:
    """The lowest id above those of the schema and of the fields in data files.

    If ids must not be reused, above all ids ever assigned.
    """
    highest = max(manifest.schema.max_field_id, manifest.first_field_id - 1)
    for at in range(manifest.num_fragments):
        for file in manifest.fragment_wire(at).files:
            highest = max(highest, max(file.fields, default=-1))
    return highest + 1


def grow(manifest: Manifest, new: pa.Schema) -> Grown:
    """Add columns to a version's schema, or members to an existing struct.

    Raises
    ------
    SchemaError
        A name is taken or invalid, Lance has no such type, it is nested too deeply, the ids are
        exhausted, or a column of the primary key may be null.
    UnsupportedFeatureError
        Files of this format cannot add members to a struct.
    """
    old = manifest.schema
    check_schema(new)
    profile = profile_of(manifest.data_format)
    if profile.blob_type:
        new = with_blob_type(new)
    check_names([name for name in new.names if name not in old.by_name])
    ids = new_field_ids(first_new_id(manifest))
    wanted = {field.name: field for field in LanceSchema.from_arrow(new).fields}
    fields, added = [], []
    for field in old.fields:
        more = wanted.pop(field.name, None)
        if more is None:
            fields.append(field)
            continue
        whole, part = _merged(field, more, field.name, profile, ids)
        fields.append(whole)
        added.append(part)
    for more in wanted.values():
        fresh = renumbered(more, ids)
        fields.append(fresh)
        added.append(fresh)
    order = {name: at for at, name in enumerate(new.names)}
    added.sort(key=lambda field: order[field.name])
    check_primary_key(fields)  # before values are made
    return Grown(replace(old, fields=tuple(fields)), LanceSchema(tuple(added)))


def renumbered(field: Field, ids: Iterator[int]) -> Field:
    """The field with new ids, depth first."""
    number = next(ids)
    children = tuple(renumbered(child, ids) for child in field.children)
    return replace(field, id=number, children=children)


def _merged(
    old: Field, new: Field, path: str, profile: Profile, ids: Iterator[int]
) -> tuple[Field, Field]:
    """A struct with the members of both, and one with the new members."""
    if old.logical_type != "struct" or new.logical_type != "struct" or old.is_packed:
        raise SchemaError(
            f"Column {path} already exists in the dataset. Choose another name, or drop it first; "
            "to change its type, use alter_columns."
        )
    if not profile.grows_structs:
        first = next(name for name, profile in PROFILES.items() if profile.grows_structs)
        raise UnsupportedFeatureError(
            f"column {path!r}: files of format {profile.version} cannot add members to a struct; "
            f"those of {first} and later can"
        )
    known = {child.name: child for child in old.children}
    children: list[Field] = list(old.children)
    added = []
    for member in new.children:
        before = known.get(member.name)
        if before is None:
            fresh = renumbered(member, ids)
            children.append(fresh)
            added.append(fresh)
            continue
        whole, part = _merged(before, member, f"{path}.{member.name}", profile, ids)
        children[children.index(before)] = whole
        added.append(part)
    return replace(old, children=tuple(children)), replace(old, children=tuple(added))
