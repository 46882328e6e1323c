"""B-trees: built, merged, searched, and what pylance makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive

from .built import build, check
from .values import TYPES, conditions, values_of

EVERY_TYPE = pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)


def write(path: Path, parts: list[Any], *, stable: bool = False, version: str = "2.2") -> Path:
    """A dataset with a fragment for each part of its column ``x``."""
    options: dict[str, Any] = {
        "data_storage_version": version,
        "enable_stable_row_ids": stable,
    }
    for part in parts:
        glaive.write_dataset(pa.table({"x": part}), str(path), mode="append", **options)
    return path


@pytest.mark.spec("btree-1")
@pytest.mark.spec("btree-2")
@EVERY_TYPE
def test_rows_are_those_of_a_scan(tmp_path: Path, kind: Any) -> None:
    parts = [values_of(kind, 3000, 1), values_of(kind, 2500, 2)]
    path = write(tmp_path / "d", parts)
    build(path, "x", "btree")
    matches = [check(path, "x", condition) for condition in conditions(parts[0])]
    assert sum(map(bool, matches)) > 10
