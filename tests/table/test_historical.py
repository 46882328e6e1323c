"""Datasets of old releases open with the rows, columns and versions they always had."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from glaive.io.local import LocalStore
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.table.load import open_latest, open_version, read_transaction
from glaive.table.versions import list_versions

PLACE = Path(
    os.environ.get(
        "GLAIVE_HISTORICAL_DATA",
        Path(__file__).parents[3] / "shared" / "data" / "historical",
    )
)
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((PLACE / "expected.json").read_text()) if PLACE.is_dir() else {}
)

pytestmark = pytest.mark.skipif(not EXPECTED, reason="the historical datasets are not here")


@pytest.mark.parametrize("name", EXPECTED)
def test_versions_of_old_datasets_open(name: str, tmp_path: Path) -> None:
    shutil.copytree(PLACE / name, tmp_path / "t")
    store = LocalStore(tmp_path / "t")
    expected = EXPECTED[name]
    assert [str(one.version) for one in list_versions(store)] == sorted(expected, key=int)
    assert str(open_latest(store).version) == max(expected, key=int)
    for version, facts in expected.items():
        manifest = open_version(store, int(version))
        assert manifest.num_fragments == facts["fragments"]
        assert Snapshot(store, manifest, Session()).num_rows == facts["rows"]
        assert str(manifest.data_format) == facts["data_storage_version"]
        with pa.ipc.open_file(PLACE / facts["table"]) as file:
            assert manifest.schema.to_arrow().equals(file.schema)
        _ = read_transaction(store, manifest), manifest.indices
