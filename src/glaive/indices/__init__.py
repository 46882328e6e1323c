"""Building vector indices step by step, under the names of ``lance.indices``."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Any

from glaive.dataset.indexing.builder import IndicesBuilder
from glaive.dataset.indexing.create import IndexConfig, SupportedDistributedIndices
from glaive.dataset.indexing.describe import IndexSegmentDescription
from glaive.dataset.indexing.vector_models import IvfModel, PqModel
from glaive.dataset.lance_operation import Index as IndexSegment

__all__ = [
    "IndexConfig",
    "IndexFileVersion",
    "IndexSegment",
    "IndexSegmentDescription",
    "IndicesBuilder",
    "IvfModel",
    "PqModel",
    "SupportedDistributedIndices",
]


class IndexFileVersion(StrEnum):
    """Formats of the files of a vector index: ``index_file_version`` of ``create_index``."""

    LEGACY = "Legacy"
    V3 = "V3"


def __getattr__(name: str) -> Any:
    # pylance's package imports these; here they wait until somebody asks.
    if name in {"builder", "ivf", "pq"}:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
