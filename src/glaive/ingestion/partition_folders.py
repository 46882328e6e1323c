"""Columns whose values are in the names of folders, as Spark writes them: ``day=3/a.parquet``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from glaive.errors import SchemaError

__all__ = ["completed", "folder_columns", "folder_texts", "folder_values"]

_NULL: Final = ("", "__HIVE_DEFAULT_PARTITION__")

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,39}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DOUBLE: Final = re.compile(rf"\s*({_NUMBER.pattern}[fFdD]?|[+-]?(NaN|Infinity))\s*", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?", re.ASCII)

_INFERRED: Final[tuple[tuple[frozenset[str], Any], ...]] = (
    (frozenset(), pa.string()),
    (frozenset({"int"}), pa.int32()),
    (frozenset({"int", "long"}), pa.int64()),
    (frozenset({"int", "long", "decimal"}), pa.decimal128(38, 0)),
    (frozenset({"int", "double"}), pa.float64()),
    (frozenset({"date"}), pa.date32()),
    (frozenset({"date", "timestamp"}), pa.timestamp("us", "UTC")),
)
"""The type of a column by the kinds of its values; a text for all others, as in Spark."""


def folder_texts(folder: str, path: str) -> dict[str, str | None]:
    """Return the names and values of columns in the names of the folders of a file.

    Parameters
    ----------
    folder
        The place that was given. Its own name counts, and the names of folders directly above it,
        as long as they have values.
    path
        Of the file, relative to the folder.
    """
    if "://" in folder:
        path = path.partition("?")[0]  # behind it is the signature of a URL
    parts = path.split("/")[:-1]
    for part in reversed(folder.rstrip("/").split("/")):
        if "=" not in part:
            break
        parts.insert(0, part)
    named = (part.partition("=") for part in parts if "=" in part[1:])
    return {
        _unescaped(name): None if text in _NULL else _unescaped(text) for name, _, text in named
    }


def folder_columns(
    files: Iterable[tuple[str, str]], own: Iterable[str] = ()
) -> list[pa.Field[Any]]:
    """Return the columns in the names of folders.

    Parameters
    ----------
    files
        As for :func:`folder_texts`.
    own
        Names of columns that the files have.
    """
    known = {name.lower() for name in own}
    names: dict[str, str] = {}
    kinds: dict[str, set[str]] = {}
    for folder, path in files:
        for name, text in folder_texts(folder, path).items():
            names.setdefault(name.lower(), name)
            kinds.setdefault(name.lower(), set()).update(() if text is None else [_kind(text)])
    return [
        pa.field(name, next((made for of, made in _INFERRED if kinds[key] <= of), pa.string()))
        for key, name in names.items()
        if key not in known
    ]


def folder_values(
    folder: str, path: str, columns: Iterable[pa.Field[Any]], own: Collection[str]
) -> dict[str, Any]:
    """Return the values of columns that the names of the folders of a file have, as scalars.

    Parameters
    ----------
    folder, path
        As for :func:`folder_texts`.
    columns
        All columns.
    own
        Names of columns that the file has; their values stay.

    Raises
    ------
    SchemaError
        A value is not of the type of its column.
    """
    texts = {name.lower(): text for name, text in folder_texts(folder, path).items()}
    return {
        column.name: _scalar(texts[key], column, f"{folder}{path}")
        for column in columns
        if column.name not in own and (key := column.name.lower()) in texts
    }


def completed(
    rows: pa.RecordBatch | pa.Table, schema: pa.Schema, values: Mapping[str, Any]
) -> pa.Table:
    """Return rows with the columns of a schema: their own as they are, others null.

    Values are those of columns that the rows lack.
    """
    columns: list[Any] = []
    for field in schema:
        if field.name in values:
            columns.append(pa.repeat(values[field.name], len(rows)))
            continue
        at = rows.schema.get_field_index(field.name)
        columns.append(pa.nulls(len(rows), field.type) if at < 0 else rows.column(at))
    return pa.table(columns, names=schema.names)


def _scalar(text: str | None, column: pa.Field[Any], where: str) -> Any:
    kind: Any = column.type
    if text is not None and pa.types.is_integer(kind):
        text = text.removeprefix("+")
    elif text is not None and pa.types.is_floating(kind):
        text = text.strip()
        text = text[:-1] if text[-1:] in "fFdD" and _NUMBER.fullmatch(text[:-1]) else text
    values: Any = pa.array([text], pa.string())
    try:
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            values = values.cast(pa.timestamp(kind.unit))
        return values.cast(kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"{where}: the value {text!r} in the name of a folder is not {kind}, the type of the "
            f"column {column.name!r}. Name another type in schema= for a new dataset, pass "
            "schema_drift='widen' for a wider type of the same kind, or rename the folder"
        ) from error


def _kind(text: str) -> str:
    """The kind of value that Spark takes a text for."""
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return "int" if -(2**31) <= int(text) < 2**31 else "long"
    if (number := _NUMBER.fullmatch(text)) and len(number[2] or "") < 6:
        exponent: Any
        _, digits, exponent = Decimal(text).as_tuple()
        if exponent >= 0 and len(digits) + exponent <= 38:
            return "decimal"
    if _DOUBLE.fullmatch(text):
        return "double"
    if found := _TIME.fullmatch(text):
        try:
            datetime.fromisoformat(text)
        except ValueError:  # such as 2026-02-30
            return "text"
        return "timestamp" if found[1] else "date"
    return "text"


def _unescaped(text: str) -> str:
    """Resolve ``%3A`` and its like.

    Raises
    ------
    SchemaError
        The name of the folder is not text.
    """
    try:
        text.encode()
        return unquote(text, errors="strict")
    except UnicodeDecodeError:  # Spark escapes characters, not bytes
        return unquote(text, encoding="latin-1")
    except UnicodeEncodeError:
        raise SchemaError(
            f"{text!a}, in the name of a folder, is not UTF-8. Rename the folder"
        ) from None
