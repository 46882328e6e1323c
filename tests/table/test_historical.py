"""Datasets of old releases open with the rows, columns and versions they always had."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.historical import EXPECTED, copied, rows_of

from glaive.io.local import LocalStore
from glaive.scan.snapshot import Session, Snapshot
from glaive.table.load import open_latest, open_version, read_transaction
from glaive.table.versions import list_versions


@pytest.mark.parametrize("name", EXPECTED)
def test_versions_of_old_datasets_open(name: str, tmp_path: Path) -> None:
    store = LocalStore(copied(name, tmp_path / "t"))
    expected = EXPECTED[name]
    assert [str(one.version) for one in list_versions(store)] == sorted(expected, key=int)
    assert str(open_latest(store).version) == max(expected, key=int)
    for version, facts in expected.items():
        manifest = open_version(store, int(version))
        assert manifest.num_fragments == facts["fragments"]
        assert Snapshot(store, manifest, Session()).num_rows == facts["rows"]
        assert str(manifest.data_format) == facts["data_storage_version"]
        assert manifest.schema.to_arrow().equals(rows_of(name, version).schema)
        _ = read_transaction(store, manifest), manifest.indices
