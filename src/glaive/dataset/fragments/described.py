"""Describe existing data files by the fields of a dataset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from glaive.dataset.writing.conform import match_schema
from glaive.errors import SchemaError
from glaive.format import fragment as stored
from glaive.format.fields import Field, LanceSchema
from glaive.scan.snapshot import Snapshot

__all__ = ["described_file", "file_of", "opened_file"]


def described_file(snapshot: Snapshot, name: str, base_id: int | None) -> stored.DataFile:
    """Describe a data file with some of the columns.

    Raises
    ------
    DataFileMissingError
        The file is missing.
    SchemaError
        It has columns that the dataset lacks, or columns of other types.
    """
    schema = snapshot.manifest.schema
    reader = opened_file(snapshot, name, base_id)
    names = set(reader.schema.names)
    some = replace(schema, fields=tuple(field for field in schema.fields if field.name in names))
    match_schema(reader.schema.to_arrow(), some, where=snapshot.store.uri)
    return file_of(reader, name, schema, base_id)


def opened_file(snapshot: Snapshot, name: str, base_id: int | None) -> Any:
    """Open a data file that is in no fragment."""
    unknown = stored.DataFile(
        path=name,
        fields=(),
        column_indices=(),
        version=snapshot.manifest.data_format,
        base_id=base_id,
    )
    return snapshot.open_file(unknown)


def file_of(reader: Any, name: str, schema: LanceSchema, base_id: int | None) -> stored.DataFile:
    """The manifest entry of an opened data file, with the dataset's field ids."""
    numbers = dict(_pairs(reader.schema, schema))
    # Entries of format 0.1 list all fields and no columns.
    legacy = reader.version == stored.LEGACY
    columns: dict[int, int] = (
        dict.fromkeys(reader.schema.field_ids(), 0) if legacy else reader.column_numbers()
    )
    return stored.DataFile(
        path=name,
        fields=tuple(numbers[column] for column in columns),
        column_indices=() if legacy else tuple(columns.values()),
        version=reader.version,
        size=reader.reader.size,
        base_id=base_id,
    )


def _pairs(stored: LanceSchema, wanted: LanceSchema) -> list[tuple[int, int]]:
    """Ids of fields in the file and in the dataset, matched by name at every level."""
    pairs: list[tuple[int, int]] = []

    def match(file_fields: tuple[Field, ...], dataset_fields: tuple[Field, ...]) -> None:
        known = {field.name: field for field in dataset_fields}
        for field in file_fields:
            other = known.get(field.name)
            if other is None or (other.children == ()) != (field.children == ()):
                raise SchemaError(f"column {field.name!r} of the file does not match the dataset")
            pairs.append((field.id, other.id))
            match(field.children, other.children)

    match(stored.fields, wanted.fields)
    return pairs
