"""Versions, schemas and commits as texts for people who look for a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.errors import OptionError
from glaive.format.fields import Field, LanceSchema
from glaive.format.flags import Feature

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["format_fragment", "format_manifest", "format_schema", "list_transactions"]

_INDENT = "    "
_LONGEST = 500


def format_schema(dataset: LanceDataset) -> str:
    """The schema with field ids, logical types and metadata."""
    return _block("Schema", _schema(dataset.lance_schema))


def format_manifest(dataset: LanceDataset) -> str:
    """What the manifest of this version says, with all fragments; grows with their number."""
    manifest = dataset.manifest
    wire = manifest.wire
    content = {
        "version": manifest.version,
        "branch": wire.branch or None,
        "writer_version": f"{wire.writer_version.library} {wire.writer_version.version}",
        "timestamp": manifest.timestamp.isoformat(),
        "data_storage_format": str(manifest.data_format),
        "reader_feature_flags": [one.name for one in Feature if wire.reader_feature_flags & one],
        "writer_feature_flags": [one.name for one in Feature if wire.writer_feature_flags & one],
        "max_fragment_id": wire.max_fragment_id,
        "next_row_id": wire.next_row_id,
        "transaction_file": wire.transaction_file or None,
        "schema": _Named("Schema", _schema(manifest.schema)),
        "fragments": [one.metadata for one in dataset.get_fragments()],
        "indices": [str(one.name) for one in manifest.indices],
        "config": dict(manifest.config),
        "table_metadata": dict(manifest.table_metadata),
        "base_paths": {str(key): str(base) for key, base in dataset.base_paths().items()},
    }
    return _block("Manifest", content)


def format_fragment(fragment: FragmentMetadata, dataset: LanceDataset) -> str:
    """The metadata of a fragment; its data files with the names of their columns.

    Raises
    ------
    OptionError
        It is no metadata of a fragment.
    """
    if not isinstance(fragment, FragmentMetadata):
        raise OptionError(
            f"fragment: expected a FragmentMetadata, found {type(fragment).__name__}; "
            "a LanceFragment has it as metadata"
        )
    names = {field.id: path for path, field in _paths(dataset.lance_schema.fields, "")}
    files = [
        _Named("DataFile", {**_values(one), "columns": [names.get(id) for id in one.fields]})
        for one in fragment.files
    ]
    return _block("Fragment", {**_values(fragment), "files": files})


def list_transactions(dataset: LanceDataset, max_transactions: int = 10) -> list[str]:
    """The newest commits, the newest first, as texts; one request each.

    Raises
    ------
    OptionError
        ``max_transactions`` is negative.
    """
    if max_transactions < 0:
        raise OptionError(f"max_transactions: expected 0 or more, found {max_transactions}")
    found = dataset.get_transactions(max_transactions) if max_transactions else []
    return [_text(one, 0) for one in found if one is not None]


class _Named:
    """Values under the name of their type."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name, self.values = name, values


def _schema(schema: LanceSchema) -> dict[str, Any]:
    metadata = {key: value.decode("utf-8", "replace") for key, value in schema.metadata.items()}
    return {"fields": [_field(one, -1) for one in schema.fields], "metadata": metadata}


def _field(field: Field, parent: int) -> _Named:
    values = {
        "name": field.name,
        "id": field.id,
        "parent_id": parent,
        "logical_type": field.logical_type,
        "nullable": field.nullable,
        "metadata": {
            key: value.decode("utf-8", "replace") for key, value in field.metadata.items()
        },
        "children": [_field(child, field.id) for child in field.children],
    }
    return _Named("Field", values)


def _paths(below: tuple[Field, ...], prefix: str) -> list[tuple[str, Field]]:
    found = []
    for field in below:
        found += [
            (f"{prefix}{field.name}", field),
            *_paths(field.children, f"{prefix}{field.name}."),
        ]
    return found


def _values(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _block(name: str, values: Mapping[str, Any], depth: int = 0) -> str:
    inside = _INDENT * (depth + 1)
    lines = [f"{inside}{key}: {_text(value, depth + 1)}," for key, value in values.items()]
    return "\n".join([f"{name} {{", *lines, f"{_INDENT * depth}}}"]) if lines else f"{name} {{}}"


def _text(value: Any, depth: int) -> str:
    if isinstance(value, _Named):
        return _block(value.name, value.values, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return _block(type(value).__name__, _values(value), depth)
    if isinstance(value, pa.Schema):
        return _text(LanceSchema.from_arrow(value), depth)
    if isinstance(value, LanceSchema):
        return _block("Schema", _schema(value), depth)
    if isinstance(value, Mapping):
        return _block("", value, depth).lstrip()
    if isinstance(value, list | tuple):
        nested = [_text(one, depth + 1) for one in value]
        if not any("\n" in one for one in nested):
            return f"[{', '.join(nested)}]"
        inside = _INDENT * (depth + 1)
        return "\n".join(["[", *[f"{inside}{one}," for one in nested], f"{_INDENT * depth}]"])
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
