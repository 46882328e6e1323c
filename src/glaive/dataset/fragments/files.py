"""Uncommitted fragments from rows, or from an existing file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.fragments.data_files import DataFile
from glaive.dataset.fragments.described import file_of, opened_file
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.progress import FragmentWriteProgress, NumberedProgress
from glaive.dataset.writing.uncommitted import write_fragments
from glaive.errors import OptionError, SchemaError
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["create_fragment", "fragment_of_file"]

_ALL_ROWS = 2**62
"""A limit of rows and bytes that no file reaches."""


def create_fragment(
    place: str | os.PathLike[str] | OpenDataset,
    data: object,
    fragment_id: int | None,
    schema: pa.Schema | None,
    mode: Any,
    options: Mapping[str, Any],
) -> FragmentMetadata:
    """Write all rows into one file.

    The mode ``create`` is for another schema, as ``overwrite``: a dataset may be there.
    """
    number: object = fragment_id
    if number is not None and (not isinstance(number, int) or number < 0):
        raise OptionError(f"fragment_id: expected a number ≥ 0, found {number!r}")
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(progress := given.get("progress"), FragmentWriteProgress):
        given["progress"] = NumberedProgress(progress, fragment_id or 0)
    made: Any = write_fragments(
        data,
        place,
        schema,
        mode="overwrite" if mode == "create" else mode,
        max_rows_per_file=_ALL_ROWS,
        max_bytes_per_file=_ALL_ROWS,
        **given,
    )
    if not made:
        raise SchemaError("create: there are no rows for a fragment")
    first: FragmentMetadata = made[0]
    if not any(file.fields for file in first.files):
        raise SchemaError("create: the rows have no columns. Give them at least one")
    return replace(first, id=fragment_id or 0)


def fragment_of_file(snapshot: Snapshot, name: str, fragment_id: int) -> FragmentMetadata:
    """Describe a data file as a fragment; its columns are those of the same names."""
    schema = snapshot.manifest.schema
    reader = opened_file(snapshot, name, None)
    match_schema(reader.schema.to_arrow(), schema, where=snapshot.store.uri)
    file = DataFile.of(file_of(reader, name, schema, None))
    return FragmentMetadata(fragment_id, [file], reader.num_rows)
