"""Schemas: columns with ids, and how they come from and go to Arrow.

Ids are given depth first. Whoever appends takes the ids of the dataset for columns of the
same name; whoever overwrites starts again at 0, unless the dataset never uses an id twice.

Specification: "Fields" and "Physical columns" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from glaive.arrow.nesting import MAX_NESTING
from glaive.errors import ColumnNotFoundError, SchemaError
from glaive.format.blobs import MEMBERS, unfit_members
from glaive.format.extension import JSON, extended, field_metadata, storage_type
from glaive.format.field import Field
from glaive.format.field_wire import fields_from_wire, fields_to_wire
from glaive.format.limits import MAX_FIELD_ID
from glaive.format.logical_types import EXTENSION_NAME, check_list_size, logical_type
from glaive.format.pb import file_pb2

__all__ = ["Field", "LanceSchema", "new_field_ids", "split_path"]


@dataclass(frozen=True)  # no slots: derived values are cached on the instance
class LanceSchema:
    """The columns of a dataset or file, with ids.

    Parameters
    ----------
    fields
        Top-level fields in order.
    metadata
        Arrow's schema metadata.
    """

    fields: tuple[Field, ...]
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return LanceSchema, (self.fields, self.metadata)  # hashes differ between processes

    @cached_property
    def _hash(self) -> int:
        return hash(self.fields)

    # ------------------------------------------------------------------ Arrow

    @classmethod
    def from_pyarrow(cls, schema: pa.Schema) -> LanceSchema:
        """The same under pylance's name, with ids from 0 on."""
        return cls.from_arrow(schema)

    def to_pyarrow(self) -> pa.Schema:
        """Columns as users see them, as ``LanceDataset.schema`` has them."""
        return self.presented()

    @classmethod
    def from_arrow(cls, schema: pa.Schema, first_id: int = 0) -> LanceSchema:
        """Give ids from ``first_id`` on, depth first.

        Raises
        ------
        SchemaError
            Lance has no such type, two columns have one name, or the ids are used up.
        """
        ids = new_field_ids(first_id)
        _refuse_twins(schema.names, "column")
        fields = tuple(_from_arrow(one, one.name, ids, 1) for one in schema)
        return cls(fields, _text_keys(schema.metadata))

    def to_arrow(self) -> pa.Schema:
        """Arrow schema with metadata; made once."""
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.Schema:
        metadata: Any = dict(self.metadata) if self.metadata else None
        return pa.schema([one.to_arrow() for one in self.fields], metadata)

    def presented(self, *, json: bool = True) -> pa.Schema:
        """Arrow schema with the extension types that pyarrow knows; see ``extended``."""
        return extended(self.to_arrow(), json=json)

    # ------------------------------------------------------------------- wire

    @classmethod
    def from_wire(
        cls,
        fields: Sequence[file_pb2.Field],
        metadata: Mapping[str, bytes] | None = None,
        *,
        where: str = "schema",
    ) -> LanceSchema:
        """Put the wire's flat list together; ``where`` is named in errors.

        Raises
        ------
        CorruptFileError
            Two fields have one id, or a parent does not stand before its children.
        UnsupportedFeatureError
            Fields are nested too deeply.
        """
        # Versions of a dataset have the same schema, and much is remembered by schema.
        key = (
            tuple([one.SerializeToString(deterministic=True) for one in fields]),
            tuple(sorted(metadata.items())) if metadata else (),
        )
        found = _KNOWN.get(key)
        if found is None:
            found = cls(fields_from_wire(fields, where), dict(metadata) if metadata else {})
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = found
        return found

    @cached_property
    def repeated_name(self) -> str | None:
        """A name that two fields beside each other have, if there is one."""
        levels = [self.fields]
        while levels:
            beside = levels.pop()
            names = [one.name for one in beside]
            if len(set(names)) < len(names):
                return next(name for name in names if names.count(name) > 1)
            levels += [one.children for one in beside if one.children]
        return None

    def to_wire(self) -> list[file_pb2.Field]:
        """The flat list as files and manifests hold it."""
        return fields_to_wire(self.fields)

    # ------------------------------------------------------------------ lookup

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields."""
        return [one.name for one in self.fields]

    def walk(self) -> Iterator[Field]:
        """All fields, depth first."""
        for one in self.fields:
            yield from one.walk()

    def leaves(self) -> list[Field]:
        """All fields without children, depth first."""
        return [leaf for one in self.fields for leaf in one.leaves()]

    def leaf_columns(self) -> list[Field]:
        """Fields that own a physical column from format 2.1 on, in column order."""
        return [leaf for one in self.fields for leaf in one.leaf_columns()]

    def field_ids(self) -> list[int]:
        """All ids, depth first."""
        return [one.id for one in self.walk()]

    @property
    def max_field_id(self) -> int:
        """Highest id; -1 without fields."""
        return max(self.field_ids(), default=-1)

    def field_by_id(self, field_id: int) -> Field:
        """The field with this id; :class:`ColumnNotFoundError` when there is none."""
        found = self._by_id.get(field_id)
        if found is None:
            raise ColumnNotFoundError(f"no field with id {field_id} in the schema: {self.names}")
        return found

    @cached_property
    def _by_id(self) -> dict[int, Field]:
        return {one.id: one for one in self.walk()}

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {one.name: one for one in self.fields}

    def find(self, path: str) -> tuple[Field, ...]:
        """The fields from the top level down to ``path``, such as ``"meta.name"``.

        A name that contains dots is found as it is, or put in backticks within a path.
        """
        top = self._by_name.get(path)
        if top is not None:
            return (top,)
        chain: list[Field] = []
        among: Sequence[Field] = self.fields
        for part in split_path(path):
            found = next((one for one in among if one.name == part), None)
            if found is None:
                prefix = ".".join(one.name for one in chain)
                known = [f"{prefix}.{one.name}" if prefix else one.name for one in among]
                raise ColumnNotFoundError.among(path, known, where="schema")
            chain.append(found)
            among = found.children
        return tuple(chain)

    # -------------------------------------------------------------- derivation

    def project(self, paths: Sequence[str]) -> LanceSchema:
        """Only the fields at ``paths`` and their parents, in the order asked for.

        Raises
        ------
        ColumnNotFoundError
            A path does not exist; the message names the closest ones.
        """
        order: dict[int, Field] = {}
        wanted: set[int] = set()
        for path in paths:
            chain = self.find(path)
            order.setdefault(chain[0].id, chain[0])
            wanted.update(one.id for one in chain[-1].walk())
        kept = (_prune(top, wanted) for top in order.values())
        return LanceSchema(tuple(one for one in kept if one is not None), self.metadata)


def new_field_ids(first: int) -> Iterator[int]:
    """Ids for new fields, from ``first`` on.

    Raises
    ------
    SchemaError
        When asked for more than there are.
    """
    yield from range(first, MAX_FIELD_ID + 1)
    raise SchemaError(
        f"new columns: field ids go up to {MAX_FIELD_ID}, and those up to {first - 1} are used "
        "already. The manifest may be damaged; write the rows into a new dataset."
    )


def split_path(path: str) -> list[str]:
    """Split ``a.`b.c`.d`` at the dots outside backticks: ``["a", "b.c", "d"]``."""
    if "`" not in path:
        return path.split(".")
    parts, quoted = [""], False
    for character in path:
        if character == "`":
            quoted = not quoted
        elif character == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _prune(one: Field, wanted: set[int]) -> Field | None:
    pruned = [_prune(child, wanted) for child in one.children]
    kept = tuple(child for child in pruned if child is not None)
    if one.id in wanted or kept:
        return replace(one, children=kept)
    return None


def _from_arrow(arrow: pa.Field[Any], path: str, ids: Iterator[int], depth: int) -> Field:
    if depth > MAX_NESTING:
        raise SchemaError(f"column {path!r}: nested deeper than {MAX_NESTING} levels. Flatten it.")
    metadata = field_metadata(arrow)
    kind = storage_type(arrow.type)
    extension = metadata.get(EXTENSION_NAME, b"").decode("utf-8", "replace")
    if extension == "arrow.json":
        raise SchemaError(
            f"column {path!r}: its metadata says JSON, its type is {arrow.type}. Make it of type "
            "pyarrow.json_(), or remove the metadata."
        )
    field_id = next(ids)
    name, children = _children(kind, path)
    if extension == JSON and pa.types.is_large_binary(kind):
        name = "json"
    made = Field(
        id=field_id,
        name=arrow.name,
        logical_type=name,
        nullable=arrow.nullable,
        children=tuple(
            _from_arrow(child, f"{path}.{child.name}", ids, depth + 1) for child in children
        ),
        metadata=metadata,
    )
    unfit = unfit_members(made)
    if unfit is not None:
        raise SchemaError(
            f"column {path!r}: blobs have the members {MEMBERS}; found {unfit}. Make the column "
            "with blob_field, and its values with blob_array."
        )
    return made


def _children(kind: Any, path: str) -> tuple[str, list[pa.Field[Any]]]:
    """Logical type and child fields of an Arrow storage type."""
    types = pa.types
    if types.is_struct(kind):
        members = [kind.field(i) for i in range(kind.num_fields)]
        _refuse_twins((member.name for member in members), f"member of {path!r}")
        return "struct", members
    if types.is_map(kind):
        if kind.keys_sorted:
            raise SchemaError(
                f"column {path!r}: Lance has no maps with sorted keys. Cast it to "
                f"map<{kind.key_type}, {kind.item_type}> without the order."
            )
        entries = pa.struct([kind.key_field, kind.item_field])
        return "map", [pa.field("entries", entries, nullable=False)]
    if types.is_list(kind) or types.is_large_list(kind):
        name = "list" if types.is_list(kind) else "large_list"
        item = kind.value_field
        return (f"{name}.struct" if types.is_struct(storage_type(item.type)) else name), [item]
    if types.is_fixed_size_list(kind) and types.is_struct(kind.value_type):
        check_list_size(kind, path)
        return f"fixed_size_list:struct:{kind.list_size}", [kind.value_field]
    return logical_type(kind, path), []


_MOST_KNOWN = 64
_KNOWN: dict[object, LanceSchema] = {}
"""Schemas by their bytes on the wire."""


def _refuse_twins(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"{what} {name!r} is there twice. Rename one of the two.")
        seen.add(name)


def _text_keys(metadata: Mapping[bytes, bytes] | None) -> dict[str, bytes]:
    if not metadata:
        return {}
    return {key.decode("utf-8", "replace"): value for key, value in metadata.items()}
