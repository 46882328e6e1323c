"""Fragments made of rows, or of a file that is there, without a commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.fragments.metadata import DataFile, FragmentMetadata
from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.uncommitted import write_fragments
from glaive.errors import OptionError, SchemaError
from glaive.format import fragment as stored
from glaive.format.fields import Field, LanceSchema
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.dataset.opened import OpenedVersion

__all__ = ["create_fragment", "described_file", "fragment_of_file"]

_ALL_ROWS = 2**62
"""Rows and bytes that no file reaches."""


def create_fragment(
    place: str | os.PathLike[str] | OpenedVersion,
    data: object,
    fragment_id: int | None,
    schema: pa.Schema | None,
    mode: str,
    options: Mapping[str, Any],
) -> FragmentMetadata:
    """Write all rows into one file.

    Raises
    ------
    SchemaError
        The rows do not fit the dataset, or there are none.
    OptionError
        The id cannot be one.
    """
    number: object = fragment_id
    if number is not None and (not isinstance(number, int) or number < 0):
        raise OptionError(f"fragment_id: expected a number ≥ 0, found {number!r}")
    given = {key: value for key, value in options.items() if value is not None}
    made: Any = write_fragments(
        data,
        place,
        schema,
        mode=mode,
        max_rows_per_file=_ALL_ROWS,
        max_bytes_per_file=_ALL_ROWS,
        **given,
    )
    if not made:
        raise SchemaError("create: there are no rows to make a fragment of")
    first: FragmentMetadata = made[0]
    return replace(first, id=fragment_id or 0)


def fragment_of_file(snapshot: Snapshot, name: str, fragment_id: int) -> FragmentMetadata:
    """Describe a data file as a fragment; its columns are those of the same names.

    Raises
    ------
    DataFileMissingError
        It is not there.
    SchemaError
        It has other columns than the dataset, or other types.
    """
    schema = snapshot.manifest.schema
    reader = _opened(snapshot, name, None)
    match_schema(reader.schema.to_arrow(), schema, where=snapshot.store.uri)
    file = _described(reader, name, schema, None)
    return FragmentMetadata(fragment_id, [file], reader.num_rows)


def described_file(snapshot: Snapshot, name: str, base_id: int | None) -> DataFile:
    """Describe a data file with some of the columns.

    Raises
    ------
    DataFileMissingError
        It is not there.
    SchemaError
        It has columns that the dataset has not, or of other types.
    """
    schema = snapshot.manifest.schema
    reader = _opened(snapshot, name, base_id)
    names = set(reader.schema.names)
    some = replace(schema, fields=tuple(one for one in schema.fields if one.name in names))
    match_schema(reader.schema.to_arrow(), some, where=snapshot.store.uri)
    return _described(reader, name, schema, base_id)


def _opened(snapshot: Snapshot, name: str, base_id: int | None) -> Any:
    unknown = stored.DataFile(
        path=name,
        fields=(),
        column_indices=(),
        version=snapshot.manifest.data_format,
        base_id=base_id,
    )
    return snapshot.open_file(unknown)


def _described(reader: Any, name: str, schema: LanceSchema, base_id: int | None) -> DataFile:
    numbers = dict(_pairs(reader.schema, schema))
    # Files of format 0.1 list all fields and say nothing of columns.
    legacy = reader.version == stored.LEGACY
    columns: dict[int, int] = (
        dict.fromkeys(reader.schema.field_ids(), 0) if legacy else reader.column_numbers()
    )
    return DataFile.of(
        stored.DataFile(
            path=name,
            fields=tuple(numbers[one] for one in columns),
            column_indices=() if legacy else tuple(columns.values()),
            version=reader.version,
            size=reader.reader.size,
            base_id=base_id,
        )
    )


def _pairs(stored: LanceSchema, wanted: LanceSchema) -> list[tuple[int, int]]:
    """Ids of fields in the file and in the dataset, matched by name at every level."""
    found: list[tuple[int, int]] = []

    def match(some: tuple[Field, ...], others: tuple[Field, ...]) -> None:
        known = {one.name: one for one in others}
        for one in some:
            other = known.get(one.name)
            if other is None or (other.children == ()) != (one.children == ()):
                raise SchemaError(f"column {one.name!r} of the file is not in the dataset so")
            found.append((one.id, other.id))
            match(one.children, other.children)

    match(stored.fields, wanted.fields)
    return found
