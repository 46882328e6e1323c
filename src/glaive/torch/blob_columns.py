"""Which columns of a dataset are blob columns: their values are read apart from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glaive.dataset.dataset import LanceDataset
from glaive.format.blobs import is_blob

__all__ = ["blob_columns"]


def blob_columns(
    dataset: LanceDataset, columns: Sequence[str] | Mapping[str, str] | None
) -> list[str]:
    """The blob columns among ``columns``; expressions have none."""
    if isinstance(columns, Mapping):
        return []
    return [
        field.name
        for field in dataset.lance_schema.fields
        if (is_blob(field) or field.is_blob_v2) and (columns is None or field.name in columns)
    ]
