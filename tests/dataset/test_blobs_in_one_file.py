"""Values of blobs in one file outside of data files: a few rows may name the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive import Blob
from glaive.errors import CorruptFileError, DataFileMissingError, UnsupportedFeatureError
from glaive.format.blobs import OWN_FILE

from .forged_blobs import Rows, forged_descriptions
from .test_blob_references import rows

SIZE = 1 << 20
COUNT = 1100


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("sized", [False, True])
def test_rows_that_name_one_file_take_no_gigabytes(tmp_path: Path, sized: bool) -> None:
    image = tmp_path / "d" / "own" / "image.bin"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"v" * SIZE)
    value: Any = Blob.from_uri(image.as_uri(), 0, SIZE) if sized else image.as_uri()
    glaive.write_dataset(
        rows([value] * COUNT), tmp_path / "d", allow_external_blob_outside_bases=True
    )
    dataset = glaive.dataset(tmp_path / "d")
    assert dataset.read_blobs("b", indices=range(64)) == [(at, b"v" * SIZE) for at in range(64)]
    with pytest.raises(UnsupportedFeatureError, match="has 1048576 bytes, but its 1100 values"):
        dataset.read_blobs("b", indices=range(COUNT))
    # A scan reads some rows at a time, and a file is read when somebody wants to.
    batches = iter(dataset.scanner(["b"], blob_handling="all_binary", batch_size=50).to_batches())
    before = pa.total_allocated_bytes()
    assert {len(value) for value in next(batches)["b"].to_pylist()} == {SIZE}
    assert pa.total_allocated_bytes() - before < 600 * SIZE
    assert len(dataset.take_blobs("b", indices=range(COUNT))) == COUNT


@pytest.mark.spec("rel-24", "blob-check-1")
@pytest.mark.parametrize("overlap", [False, True])
def test_the_size_that_one_row_claims_makes_no_windows_of_one_row(
    overlap: bool, tmp_path: Path
) -> None:
    """Each of them would be sound by itself: a few bytes were read, or written, once for each."""

    def forge(described: Rows) -> Rows:
        made = [described[0]] * len(described) if overlap else described
        return [*made[:-1], {**made[-1], "kind": OWN_FILE, "size": 1 << 60, "blob_id": 1}]

    with forged_descriptions("b", forge):
        glaive.write_dataset(rows([b"v" * 1000, *[b""] * 2000]), tmp_path)
    dataset = glaive.dataset(tmp_path)
    error: Any = CorruptFileError if overlap else DataFileMissingError
    batches = dataset.scanner(["b"], blob_handling="all_binary", batch_size=10**6).to_batches()
    with pytest.raises(error):
        next(iter(batches))
    with pytest.raises(error):
        dataset.update({"id": "id + 1"})
    assert len(dataset.to_table(["id"])) == 2001
