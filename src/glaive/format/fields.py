"""Schemas: columns with field ids, and their conversion from and to Arrow.

Ids are assigned depth first. Appends use the ids of the dataset for columns with the same name;
overwrites start again at 0, unless the dataset keeps ids unique.

Specification: "Fields" and "Physical columns" in ``docs/format``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.validation import MAX_NESTING
from glaive.dataclass import dataclass
from glaive.errors import (
    ColumnNotFoundError,
    CorruptFileError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.format.blobs import MEMBERS, unfit_members
from glaive.format.extension import JSON, extended, field_metadata, fitting, storage_type
from glaive.format.field import (
    CLUSTERING_KEY_POSITION,
    PACKED,
    PRIMARY_KEY,
    PRIMARY_KEY_POSITION,
    Field,
    SchemaField,
    clustering_key,
    is_clustering_key,
    is_primary_key,
    joined_path,
    key_position,
    primary_key,
    split_path,
)
from glaive.format.logical_types import EXTENSION_NAME, check_list_size, encoding_hint, logical_type
from glaive.format.pb import file_pb2
from glaive.format.wire import MAX_FIELD_ID

# --- Convert between the flat list of fields in wire format and the tree ----------------
#
# Each field of the list has the id of its parent, -1 at the top level; parents precede their
# children. A parent that is omitted on the wire is field 0, not the top level.
#
# Specification: "Fields" in ``docs/format``.


def fields_from_wire(wire: Sequence[file_pb2.Field], where: str) -> tuple[Field, ...]:
    """Build the tree: find the parent of each field, then build from the last field backwards.

    Raises
    ------
    CorruptFileError
        An id is repeated, a parent does not precede its children, or a blob column lacks members.
    UnsupportedFeatureError
        Fields are nested deeper than :data:`MAX_NESTING`, or a field of a leaf type has children.
    """
    top, below = _find_parents(wire, where)
    built: dict[int, Field] = {}
    for position in range(len(wire) - 1, -1, -1):
        message = wire[position]
        built[position] = field = Field(
            id=message.id,
            name=message.name,
            logical_type=message.logical_type,
            nullable=message.nullable,
            children=tuple(built.pop(child) for child in below[position]),
            metadata=_wire_metadata(message),
            dictionary=(
                (message.dictionary.offset, message.dictionary.length)
                if message.dictionary.length
                else None
            ),
        )
        if field.children and not field.is_nested:
            raise UnsupportedFeatureError(
                f"field {field.name!r} of type {field.logical_type!r} has children (in {where}), "
                "which this reader does not support. The schema is damaged, or was written by a "
                "newer Lance: upgrade glaive."
            )
        unfit = unfit_members(field)
        if unfit is not None:
            raise CorruptFileError(
                f"members of blob column {field.name!r}", expected=MEMBERS, found=unfit, where=where
            )
    return tuple(built[position] for position in top)


def _find_parents(wire: Sequence[file_pb2.Field], where: str) -> tuple[list[int], list[list[int]]]:
    """Find the positions of fields at the top, and for each field the positions of its children."""
    at: dict[int, int] = {}
    below: list[list[int]] = []
    depth: list[int] = []
    top: list[int] = []
    blob = -1
    for position, message in enumerate(wire):
        field_id, parent = message.id, message.parent_id
        below.append([])
        is_part = field_id == -1 and blob >= 0
        if is_part:
            # Members of a blob descriptor lack an id and a parent id.
            owner = blob
        elif parent == -1:
            owner = -1
        elif parent in at:
            owner = at[parent]
        else:
            raise CorruptFileError(
                f"parent of field {field_id} {message.name!r}",
                expected="the id of a preceding field, or -1",
                found=f"{parent}",
                where=where,
            )
        if field_id in at or (field_id < 0 and not is_part):
            raise CorruptFileError(
                f"id of field {message.name!r}",
                expected="a new id",
                found=f"{field_id}",
                where=where,
            )
        if field_id >= 0:
            at[field_id] = position
            blob = (
                position if message.logical_type == "struct" and PACKED in message.metadata else -1
            )
        if owner < 0:
            top.append(position)
            depth.append(1)
        else:
            below[owner].append(position)
            depth.append(depth[owner] + 1)
    if depth and max(depth) > MAX_NESTING:
        raise UnsupportedFeatureError(
            f"fields are nested {max(depth)} levels deep (in {where}); this reader supports at "
            f"most {MAX_NESTING} levels."
        )
    return top, below


def _wire_metadata(field: file_pb2.Field) -> dict[str, bytes]:
    metadata = dict(field.metadata)
    if field.unenforced_primary_key and PRIMARY_KEY_POSITION not in metadata:
        metadata.setdefault(PRIMARY_KEY, b"true")
        if field.unenforced_primary_key_position:
            position = str(field.unenforced_primary_key_position).encode()
            metadata.setdefault(PRIMARY_KEY_POSITION, position)
    if field.unenforced_clustering_key:
        position = str(field.unenforced_clustering_key_position).encode()
        metadata.setdefault(CLUSTERING_KEY_POSITION, position)
    if field.extension_name:
        metadata.setdefault(EXTENSION_NAME, field.extension_name.encode())
    return metadata


def fields_to_wire(fields: Sequence[Field]) -> list[file_pb2.Field]:
    """Return the flat list, depth first."""
    out: list[file_pb2.Field] = []
    for field in fields:
        _to_wire(field, -1, out)
    return out


def _to_wire(field: Field, parent: int, out: list[file_pb2.Field]) -> None:
    wire = file_pb2.Field(
        name=field.name,
        id=field.id,
        parent_id=parent,
        logical_type=field.logical_type,
        nullable=field.nullable,
        encoding=encoding_hint(field.logical_type),  # type: ignore[arg-type]  # its number
        extension_name=field.option(EXTENSION_NAME) or "",
        metadata=field.metadata,
    )
    if field.dictionary is not None or field.logical_type.startswith("dict:"):
        offset, length = field.dictionary or (0, 0)
        wire.dictionary.offset, wire.dictionary.length = offset, length
        wire.dictionary.SetInParent()
    if is_primary_key(field):
        wire.unenforced_primary_key = True
        wire.unenforced_primary_key_position = key_position(field, PRIMARY_KEY_POSITION) or 0
    if is_clustering_key(field):
        wire.unenforced_clustering_key = True
        wire.unenforced_clustering_key_position = key_position(field, CLUSTERING_KEY_POSITION) or 0
    out.append(wire)
    for child in field.children:
        _to_wire(child, field.id if field.id >= 0 else -1, out)


class _Fields(tuple[Field, ...]):
    """The fields; to be called as well, since ``fields`` is a method in pylance."""

    __slots__ = ()

    def __call__(self) -> list[SchemaField]:
        return [SchemaField(one) for one in self]


@dataclass(frozen=True)  # derived values are cached in ``__dict__``
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
    metadata: Mapping[str, bytes] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _Fields(self.fields))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return LanceSchema, (self.fields, self.metadata)  # hashes differ between processes

    def _repr_html_(self) -> str:
        rows = [[one.id, one.name, one.logical_type, one.nullable] for one in self.walk()]
        return html_table("schema", ["id", "field", "type", "nullable"], rows, len(rows))

    @cached_property
    def _hash(self) -> int:
        return hash(self.fields)

    @cached_property
    def derived(self) -> dict[object, Any]:
        """Small values that other layers derive from the schema alone, for all its datasets."""
        return {}

    # ------------------------------------------------------------------ Arrow

    @classmethod
    def from_pyarrow(cls, schema: pa.Schema) -> LanceSchema:
        """Make a schema as :meth:`from_arrow` does, under pylance's name, with ids from 0 on."""
        if not isinstance(schema, pa.Schema):
            raise SchemaError(f"from_pyarrow: expected a pyarrow.Schema, found {schema!r:.60}")
        return cls.from_arrow(schema)

    def to_pyarrow(self) -> pa.Schema:
        """Return the schema with logical types, as in ``LanceDataset.schema``."""
        return self.logical_schema()

    @classmethod
    def from_arrow(cls, schema: pa.Schema, first_id: int = 0) -> LanceSchema:
        """Convert an Arrow schema, assigning ids from ``first_id`` on, depth first.

        Raises
        ------
        SchemaError
            Lance has no such type, a name is repeated or not UTF-8, or the ids are exhausted.
        """
        ids = new_field_ids(first_id)
        try:
            _refuse_duplicates(schema.names, "column")
            fields = tuple(_from_arrow(field, field.name, ids, 1) for field in schema)
        except UnicodeDecodeError as error:  # readers of Arrow ignore names
            raise SchemaError(
                f"the name of a column or of a member, or a time zone, is not UTF-8: {error}. "
                "Rename it before writing"
            ) from None
        return cls(fields, _text_keys(schema.metadata))

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema of storage types, with metadata; cached."""
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.Schema:
        metadata: Any = dict(self.metadata) if self.metadata else None
        fields = [field.to_arrow() for field in self.fields]
        if metadata and "pandas" in metadata:
            metadata["pandas"] = fitting(metadata["pandas"], fields)
            metadata = {key: value for key, value in metadata.items() if key != "pandas" or value}
        return pa.schema(fields, metadata)

    def logical_schema(self, *, json: bool = True) -> pa.Schema:
        """Return the Arrow schema with logical types: the extension types that pyarrow knows."""
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
        """Build the tree from the flat list of the wire format; ``where`` is for messages.

        Raises
        ------
        CorruptFileError
            An id is repeated, or a parent does not precede its children.
        UnsupportedFeatureError
            Fields are nested too deeply.
        """
        # Versions of a dataset share the schema object, which caches derived values.
        key = (
            tuple([field.SerializeToString(deterministic=True) for field in fields]),
            tuple(sorted(metadata.items())) if metadata else (),
        )
        schema = _CACHE.get(key)
        if schema is None:
            schema = cls(fields_from_wire(fields, where), dict(metadata) if metadata else {})
            if len(_CACHE) >= _CACHE_SIZE:
                _CACHE.clear()
            _CACHE[key] = schema
        return schema

    @cached_property
    def repeated_name(self) -> str | None:
        """A name that two siblings have, if there is one."""
        levels = [self.fields]
        while levels:
            siblings = levels.pop()
            names = [sibling.name for sibling in siblings]
            if len(set(names)) < len(names):
                return next(name for name, times in Counter(names).items() if times > 1)
            levels += [sibling.children for sibling in siblings if sibling.children]
        return None

    def to_wire(self) -> list[file_pb2.Field]:
        """Return the flat list of the wire format."""
        return fields_to_wire(self.fields)

    # ------------------------------------------------------------------ lookup

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields."""
        return [field.name for field in self.fields]

    def walk(self) -> Iterator[Field]:
        """Yield all fields, depth first."""
        for top in self.fields:
            yield from top.walk()

    def leaves(self) -> list[Field]:
        """Return all leaves, depth first."""
        return [leaf for field in self.fields for leaf in field.leaves()]

    def leaf_columns(self) -> list[Field]:
        """Return the fields that own a physical column from format 2.1 on, in column order."""
        return [leaf for field in self.fields for leaf in field.leaf_columns()]

    def field_ids(self) -> list[int]:
        """Return all ids, depth first."""
        return [field.id for field in self.walk()]

    @property
    def max_field_id(self) -> int:
        """Highest id; -1 in an empty schema."""
        return max(self.field_ids(), default=-1)

    def field_by_id(self, field_id: int) -> Field:
        """Return the field with this id; raise :class:`ColumnNotFoundError` if it is missing."""
        if field_id not in self._by_id:
            raise ColumnNotFoundError(f"no field with id {field_id} in the schema: {self.names}")
        return self._by_id[field_id]

    @cached_property
    def _by_id(self) -> dict[int, Field]:
        return {field.id: field for field in self.walk()}

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """Top-level fields by name."""
        return {field.name: field for field in self.fields}

    @cached_property
    def by_lower_name(self) -> dict[str, Field]:
        """Fields by name in small letters; the first of the names that differ in case only."""
        return {name.lower(): self.by_name[name] for name in reversed(self.by_name)}

    def path_of(self, field_id: int) -> str | None:
        """Return the dotted path of a field, or ``None`` if it is missing."""

        def search(siblings: tuple[Field, ...], above: tuple[str, ...]) -> str | None:
            for sibling in siblings:
                names = (*above, sibling.name)
                if sibling.id == field_id:
                    return joined_path(names)
                below = search(sibling.children, names)
                if below is not None:
                    return below
            return None

        return search(self.fields, ())

    def find(self, path: str, words: str = "No field named {name}") -> tuple[Field, ...]:
        """Return the fields from the top level down to ``path``, such as ``"meta.name"``.

        A top-level name with dots is found as it is; within a path it needs backticks. ``words``
        begin the error for a missing path.
        """
        top = self.by_name.get(path)
        if top is not None:
            return (top,)
        chain: list[Field] = []
        among: Sequence[Field] = self.fields
        for part in split_path(path):
            member = next((field for field in among if field.name == part), None)
            if member is None:
                prefix = ".".join(field.name for field in chain)
                known = [f"{prefix}.{field.name}" if prefix else field.name for field in among]
                raise ColumnNotFoundError.among(path, known, where="the dataset", words=words)
            chain.append(member)
            among = member.children
        return tuple(chain)

    def field(self, name: str) -> SchemaField | None:
        """Return the field at a path, as pylance's schemas return it; ``None`` if it is missing."""
        try:
            found = self.find(name)
        except ColumnNotFoundError:
            return None
        return SchemaField(found[-1])

    def field_case_insensitive(self, name: str) -> SchemaField | None:
        """Find a field by its exact name, else by its name in any case."""
        exact = self.field(name)
        if exact is not None:
            return exact
        among, found = self.fields, None
        for part in split_path(name):
            found = next((one for one in among if one.name.lower() == part.lower()), None)
            if found is None:
                return None
            among = found.children
        return None if found is None else SchemaField(found)

    def unenforced_primary_key(self) -> list[SchemaField]:
        """Return columns that are declared to be the primary key, in its order, at any depth."""
        return [SchemaField(one) for one in primary_key(self.walk())]

    def unenforced_clustering_key(self) -> list[SchemaField]:
        """Return columns that are declared to be the clustering key, in its order, at any depth."""
        return [SchemaField(one) for one in clustering_key(self.walk())]

    # -------------------------------------------------------------- derivation

    def project(self, paths: Sequence[str]) -> LanceSchema:
        """Return only the fields at ``paths`` and their parents, in the order of ``paths``.

        Raises
        ------
        ColumnNotFoundError
            A path is missing; the message suggests similar ones.
        """
        order: dict[int, Field] = {}
        wanted: set[int] = set()
        for path in paths:
            chain = self.find(path)
            order.setdefault(chain[0].id, chain[0])
            wanted.update(field.id for field in chain[-1].walk())
        kept = (_prune(top, wanted) for top in order.values())
        return LanceSchema(tuple(field for field in kept if field is not None), self.metadata)


def new_field_ids(first: int) -> Iterator[int]:
    """Yield the ids for new fields, from ``first`` on.

    Raises
    ------
    SchemaError
        The ids are exhausted.
    """
    yield from range(first, MAX_FIELD_ID + 1)
    raise SchemaError(
        f"new columns: field ids go up to {MAX_FIELD_ID}, and those up to {first - 1} are used "
        "already. The manifest may be damaged; write the rows into a new dataset."
    )


def _prune(field: Field, wanted: set[int]) -> Field | None:
    pruned = [_prune(child, wanted) for child in field.children]
    kept = tuple(child for child in pruned if child is not None)
    if field.id in wanted or kept:
        return replace(field, children=kept)
    return None


def _from_arrow(arrow: pa.Field[Any], path: str, ids: Iterator[int], depth: int) -> Field:
    if depth > MAX_NESTING:
        raise SchemaError(f"column {path!r}: nested deeper than {MAX_NESTING} levels. Flatten it.")
    metadata = field_metadata(arrow)
    data_type = storage_type(arrow.type)
    extension = metadata.get(EXTENSION_NAME, b"").decode("utf-8", "replace")
    if extension == "arrow.json":
        raise SchemaError(
            f"column {path!r}: its metadata declares JSON, but its type is {arrow.type}. Use type "
            "pyarrow.json_(), or remove the metadata."
        )
    field_id = next(ids)
    name, children = _children(data_type, path)
    if extension == JSON and pa.types.is_large_binary(data_type):
        name = "json"
    field = Field(
        id=field_id,
        name=arrow.name,
        logical_type=name,
        nullable=arrow.nullable,
        children=tuple(
            _from_arrow(child, f"{path}.{child.name}", ids, depth + 1) for child in children
        ),
        metadata=metadata,
    )
    unfit = unfit_members(field)
    if unfit is not None:
        raise SchemaError(
            f"column {path!r}: blobs have the members {MEMBERS}; found {unfit}. Create the column "
            "with blob_field, and its values with blob_array."
        )
    return field


def _children(data_type: Any, path: str) -> tuple[str, list[pa.Field[Any]]]:
    """Return logical type and child fields of an Arrow storage type."""
    types = pa.types
    if types.is_struct(data_type):
        members = [data_type.field(i) for i in range(data_type.num_fields)]
        _refuse_duplicates((member.name for member in members), f"member of {path!r}")
        return "struct", members
    if types.is_map(data_type):
        if data_type.keys_sorted:
            raise SchemaError(
                f"column {path!r}: Lance has no maps with sorted keys. Cast it to an unsorted "
                f"map<{data_type.key_type}, {data_type.item_type}>."
            )
        entries = pa.struct([data_type.key_field, data_type.item_field])
        return "map", [pa.field("entries", entries, nullable=False)]
    if types.is_list(data_type) or types.is_large_list(data_type):
        name = "list" if types.is_list(data_type) else "large_list"
        item = data_type.value_field
        return (f"{name}.struct" if types.is_struct(storage_type(item.type)) else name), [item]
    if types.is_fixed_size_list(data_type) and types.is_struct(data_type.value_type):
        check_list_size(data_type, path)
        return f"fixed_size_list:struct:{data_type.list_size}", [data_type.value_field]
    return logical_type(data_type, path), []


_CACHE_SIZE = 64
_CACHE: dict[object, LanceSchema] = {}
"""Schemas by their wire format."""


def _refuse_duplicates(names: Iterable[str], kind: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise SchemaError(
                f"Duplicate field name {name!r}: {kind} {name!r} exists twice. Rename one."
            )


def _text_keys(metadata: Mapping[bytes, bytes] | None) -> dict[str, bytes]:
    if not metadata:
        return {}
    return {key.decode("utf-8", "replace"): value for key, value in metadata.items()}


# --- Names that columns of a dataset cannot have ----------------------------------------
#
# Specification: "Fields" in ``docs/format``.

_ROW_COLUMNS: Final = frozenset(
    ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")
)
"""Names of facts of each row, which changes of rows read by these names."""

RESERVED: Final = _ROW_COLUMNS | {"_rowoffset"}
"""Names that no new column can have."""

_NO_PARENT: Final = -1


def refuse_reserved(fields: Iterable[file_pb2.Field], where: str) -> None:
    """Refuse to make a version with a column that has the name of a fact of each row.

    Other writers rename columns to these names. Values of a column of addresses would pass for the
    addresses of rows, and a merge would change other rows than it found.

    Raises
    ------
    SchemaError
        Such a column exists; the message says how to get rid of it.
    """
    for field in fields:
        if field.parent_id == _NO_PARENT and field.name in _ROW_COLUMNS:
            raise SchemaError(
                f"column {field.name!r} of {where}: the name is reserved for row ids, and changes "
                "would take its values for those. Nothing was changed. Rename the column "
                "(alter_columns), drop it (drop_columns), or restore a version without it"
            )


# --- Facts as small HTML tables, which notebooks show for ``_repr_html_`` ---------------
#
# All that comes from a dataset is escaped: names and paths may be anything.

MAX_SHOWN_ROWS = 50
"""Rows that a table shows."""

_MAX_SHOWN_CHARACTERS = 200


class HtmlBar(float):
    """A share from 0 to 1, drawn as a bar."""

    __slots__ = ()


def html_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[object]], total: int
) -> str:
    """Return a table with a line above it.

    Parameters
    ----------
    title
        The line.
    header
        Names of the columns.
    rows
        Cells: texts, numbers, :class:`HtmlBar`; only the first ``MAX_SHOWN_ROWS`` are shown.
    total
        Number of all rows, if ``rows`` are the first of them.
    """
    lines = [
        "".join(f"<td style='text-align:left'>{_html_cell(one)}</td>" for one in row)
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines[:MAX_SHOWN_ROWS])
    names = "".join(f"<th style='text-align:left'>{_html_text(one)}</th>" for one in header)
    hidden = total - min(len(lines), MAX_SHOWN_ROWS)
    more = f"<p>and {hidden:,} more</p>" if hidden > 0 else ""
    return (
        f"<div><p><b>{_html_text(title)}</b></p><table><thead><tr>{names}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}</div>"
    )


def _html_cell(value: object) -> str:
    if isinstance(value, HtmlBar):
        width = round(100 * min(max(float(value), 0.0), 1.0))
        return f"<div style='background:#4c78a8;height:0.8em;width:{width}px'></div>"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _html_text(str(value))


def _html_text(value: str) -> str:
    from html import escape

    shown = value if len(value) <= _MAX_SHOWN_CHARACTERS else f"{value[:_MAX_SHOWN_CHARACTERS]}…"
    return escape(shown)
