"""Facts about datasets for plans and reports: version, rows, bytes, and a sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.dataset.short_texts import short_texts
from glaive.errors import DatasetNotFoundError, RefNotFoundError
from glaive.table.named_jobs import made_version

__all__ = ["dataset_facts", "has_made", "sample_of"]

SAMPLE_ROWS: Final = 5
SAMPLE_COLUMNS: Final = 12


def dataset_facts(
    uri: str, storage: Mapping[str, str], branch: str | None = None
) -> dict[str, int] | None:
    """``version``, ``rows`` and ``bytes`` of the newest version; None if there is no dataset.

    One or two requests.
    """
    opened = _opened(uri, storage, branch)
    if opened is None:
        return None
    return {
        "version": opened.version,
        "rows": opened.count_rows(),
        "bytes": opened.manifest.columns.file_bytes,
    }


def sample_of(
    uri: str, storage: Mapping[str, str], branch: str | None = None
) -> dict[str, list[Any]] | None:
    """``columns`` and ``rows`` with a few values, as short texts; None if there is no dataset."""
    opened = _opened(uri, storage, branch)
    if opened is None:
        return None
    names = opened.schema.names[:SAMPLE_COLUMNS]
    rows = opened.to_table(columns=names, limit=SAMPLE_ROWS)
    columns = list(map(short_texts, rows.columns))
    return {"columns": names, "rows": [list(row) for row in zip(*columns, strict=True)]}


def has_made(
    uri: str, storage: Mapping[str, str], jobs: Iterable[str], branch: str | None = None
) -> bool:
    """Whether one of these jobs made a version of a dataset, as far as its newest version knows."""
    opened = _opened(uri, storage, branch)
    return opened is not None and any(made_version(opened.manifest, job) for job in jobs)


def _opened(uri: str, storage: Mapping[str, str], branch: str | None) -> LanceDataset | None:
    try:
        version = None if branch is None else (branch, None)
        return dataset(uri, version=version, storage_options=dict(storage) or None)
    except (DatasetNotFoundError, RefNotFoundError):
        return None
