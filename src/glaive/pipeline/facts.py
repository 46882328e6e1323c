"""Facts about datasets for plans and reports: version, rows, bytes, and a sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from glaive.arrow.python_values import python_values
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.errors import DatasetNotFoundError, RefNotFoundError
from glaive.expr.coerce import is_list
from glaive.table.named_jobs import made_version

__all__ = ["dataset_facts", "has_made", "sample_of"]

SAMPLE_ROWS: Final = 5
SAMPLE_COLUMNS: Final = 12
CELL_CHARACTERS: Final = 60
SHOWN_ITEMS: Final = 4


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
    columns = list(map(_cells, rows.columns))
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


def _cells(values: Any) -> list[str]:
    """Values as short texts; of a list, only the items that are shown become Python's."""
    if is_list(values.type, fixed=True):
        return [_list_cell(value.values) if value.is_valid else "null" for value in values]
    return list(map(_short, python_values(values)))


def _list_cell(items: Any) -> str:
    return _in_brackets(_cells(items[:SHOWN_ITEMS]), len(items))


def _in_brackets(shown: Iterable[str], count: int) -> str:
    more = f", … {count:,}" if count > SHOWN_ITEMS else ""
    return f"[{', '.join(shown)}{more}]"


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):  # of an extension type
        return _in_brackets(map(_short, value[:SHOWN_ITEMS]), len(value))
    text = "null" if value is None else str(value)
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"
