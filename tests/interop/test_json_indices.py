"""Indices over members of JSON documents answer as those of pylance do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import lance.indices
import pyarrow as pa
import pytest

import glaive
import glaive.indices


@pytest.mark.spec("json-index-5", "rel-12", "rel-38")
@pytest.mark.parametrize("lib", [lance, glaive], ids=["pylance", "glaive"])
@pytest.mark.parametrize("target", ["bitmap", "btree"])
def test_nulls_are_found_where_a_scan_ends_in_an_error(
    tmp_path: Path, lib: Any, target: str
) -> None:
    texts = [json.dumps(value) for value in ({"m": "a"}, {"m": "1"}, {})]
    rows = pa.table({"j": pa.array(texts, pa.json_())})
    dataset = lib.write_dataset(rows, str(tmp_path / "t"), data_storage_version="2.2")
    wanted = {"path": "m", "target_index_type": target}
    config = lib.indices.IndexConfig(index_type="json", parameters=wanted)
    dataset.create_scalar_index("j", config)

    def found(condition: str, **options: Any) -> list[int]:
        scan = dataset.scanner(filter=condition, columns=[], with_row_id=True, **options)
        ids: list[int] = scan.to_table()["_rowid"].to_pylist()
        return ids

    for null, expected in (("IS NULL", [2]), ("IS NOT NULL", [0, 1])):
        condition = f"json_get_int(j, 'm') {null}"
        assert found(condition) == expected
        with pytest.raises((ValueError, OSError), match=r"number|invalid digit|Error applying"):
            found(condition, use_scalar_index=False)
