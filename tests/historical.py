"""Datasets that old releases of Lance wrote, and what pylance 14 reads of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

__all__ = ["EXPECTED", "FURTHER", "KEPT", "copied", "needs_further", "rows_of"]

_HERE: Final = Path(__file__).parent / "data" / "historical"
_FURTHER: Final = os.environ.get("GLAIVE_HISTORICAL_DATA")

EXPECTED: Final[dict[str, dict[str, dict[str, Any]]]] = json.loads(
    (_HERE / "expected.json").read_text()
)
"""Facts by dataset and version: ``rows``, ``fragments``, ``data_storage_version``, ``table``."""

FURTHER: Final = sorted(
    {at.parents[1] for at in Path(_FURTHER).rglob("_versions/*.manifest")} if _FURTHER else ()
)
"""All datasets below the folder that ``GLAIVE_HISTORICAL_DATA`` names."""

KEPT: Final = sorted((_HERE / "indices").glob("*/*"))
"""Datasets of this repository that ``tools/old_releases.py`` let old releases write."""

needs_further: Final = pytest.mark.skipif(
    not FURTHER,
    reason="reads more old datasets than this repository has: git clone --depth 1 "
    "https://github.com/lance-format/lance, and set GLAIVE_HISTORICAL_DATA=<lance>/test_data",
)


def copied(name: str, place: Path) -> Path:
    """A copy of a dataset of this repository, which may be changed."""
    shutil.copytree(_HERE / name, place)
    return place


def rows_of(name: str, version: str | int) -> pa.Table:
    """All rows of a version of a dataset of this repository."""
    with pa.ipc.open_file(_HERE / EXPECTED[name][str(version)]["table"]) as file:
        return file.read_all()
