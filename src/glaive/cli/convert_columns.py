"""The columns of several files that ``glaive convert`` reads as one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from glaive.dataset.writing.lost_values import lost_values
from glaive.errors import FormatError

__all__ = ["columns_of", "places_of"]

_TYPED = ("arrow", "parquet")
"""Formats that state types: in others, values are parsed as those of the first file, or refused."""


def columns_of(found: list[str], kind: Any, wanted: list[str] | None) -> pa.Schema:
    """The columns of the first file, then those that only others have.

    Parameters
    ----------
    found
        The files.
    kind
        Their format.
    wanted
        Columns that are converted; None for all.

    Raises
    ------
    FormatError
        Values of a file would lose something as those of the type that a column has.
    """
    files: Any = pads.dataset
    first: pa.Schema = files(found[:1], format=kind).schema
    fields = list(first)
    places = {field.name: at for at, field in enumerate(fields)}
    for path in found[1:]:
        known = len(fields)
        for field in files([path], format=kind).schema:
            at = places.get(field.name)
            if at is None:
                fields.append(field.with_nullable(True))
                continue
            joined = _joined(fields[at], field)
            if kind in _TYPED and (wanted is None or field.name in wanted):
                _refuse_losses(path, field, joined)
                _refuse_losses(f"a file before {path}", fields[at], joined)
            fields[at] = joined
        places |= {fields[at].name: at for at in range(known, len(fields))}
    metadata: Any = first.metadata
    return pa.schema(fields, metadata)


def places_of(source: str, found: list[str]) -> list[tuple[str, str]]:
    """The folder that was given, or that of the file, and the path of each file below it."""
    folder = source if Path(source).is_dir() else str(Path(source).parent)
    below = (Path(os.path.relpath(path, folder)).as_posix() for path in found)
    return [(f"{Path(folder).absolute().as_posix()}/", path) for path in below]


def _refuse_losses(path: str, field: pa.Field, joined: pa.Field) -> None:
    lost = lost_values(field.type, joined.type)
    if lost is not None:
        raise FormatError(f"{path}: column {field.name} has {lost}. Convert such files separately")


def _joined(first: pa.Field, other: pa.Field) -> pa.Field:
    """A column with the members that its structs have in either of two files."""
    kind = first.type
    if kind == other.type or not (pa.types.is_null(kind) or pa.types.is_nested(kind)):
        return first
    unify: Any = pa.unify_schemas
    try:
        both = unify(
            [pa.schema([one.with_type(_may_lack(one.type))]) for one in (first, other)],
            promote_options="permissive",
        )
    except pa.ArrowException:  # values are cast to the first type, or refused
        return first
    found: pa.Field = both.field(0)
    return found


def _may_lack(kind: Any) -> Any:
    """A type whose structs have members that may be null, as those are that a file lacks."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [member.with_type(_may_lack(member.type)).with_nullable(True) for member in kind]
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_may_lack(kind.value_type)))
    return kind
