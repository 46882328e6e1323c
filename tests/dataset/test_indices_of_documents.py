"""Indices of a column of JSON documents as a whole, which filters compare in JSONB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.arrow.jsonb import encode_jsonb

DOCUMENTS = ['{"a":1}', '{"b":[2,null]}', None, "[]"]
EACH = 100

pytestmark = pytest.mark.parametrize("kind", ["BITMAP", "ZONEMAP", "BLOOMFILTER"])


def rows() -> pa.Table:
    return pa.table({"js": pa.array(DOCUMENTS * EACH, pa.json_())})


def counts(dataset: glaive.LanceDataset, text: str) -> set[int]:
    """How many rows pass, with the index and without."""
    found = (dataset.scanner(filter=text, use_scalar_index=use) for use in (True, False))
    return {scanner.to_table().num_rows for scanner in found}


@pytest.mark.spec("rel-12")
def test_a_document_is_found_as_a_scan_finds_it(tmp_path: Path, kind: str) -> None:
    made = glaive.write_dataset(rows(), tmp_path / "t")
    made.create_scalar_index("js", kind)
    for document in encode_jsonb(pa.array(DOCUMENTS)).drop_null().to_pylist():
        assert counts(made, f"js = x'{document.hex()}'") == {EACH}
    assert counts(made, "js IS NULL") == {EACH}


@pytest.mark.parametrize("merged", [{}, {"num_indices_to_merge": 0}, {"retrain": True}], ids=str)
def test_new_documents_are_added_to_those_that_an_index_has(
    tmp_path: Path, kind: str, merged: dict[str, Any]
) -> None:
    made = glaive.write_dataset(rows(), tmp_path / "t")
    made.create_scalar_index("js", kind)
    made = glaive.write_dataset(rows(), made, mode="append")
    made.optimize.optimize_indices(**merged)
    document = encode_jsonb(pa.array(DOCUMENTS))[1].as_py()
    assert counts(made, f"js IN (x'{document.hex()}')") == {2 * EACH}
    assert counts(made, "js IS NULL") == {2 * EACH}
