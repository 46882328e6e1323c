"""Row ids and versions of many rows, for which a table has a few bytes, take little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glaive.fragment import DataFile, FragmentMetadata, RowIdMeta
from tests.traced import traced_peak

import glaive
from glaive.file.open import create_writer
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

MIB = 1 << 20
ROWS = 1 << 21
NOTHING = pa.table({"k": pa.nulls(ROWS, pa.int64())})


def written(place: Path, fragments: int) -> glaive.LanceDataset:
    """A table of nulls with stable row ids."""
    dataset = glaive.write_dataset(NOTHING, place, enable_stable_row_ids=True)
    for _ in range(fragments - 1):
        dataset.insert(NOTHING)
    return dataset


def hidden(place: Path, fragments: int, ids: pa.Array) -> glaive.LanceDataset:
    """A table whose fragments share a file, which has their row ids."""
    fields = (
        Field(id=0, name="k", logical_type="uint64"),
        Field(id=1, name="_rowid", logical_type="uint64", nullable=False),
    )
    table = pa.table({"k": ids, "_rowid": ids})
    writer = create_writer(LocalStore(place), "data/a.lance", LanceSchema(fields), "2.1")
    writer.write(table)
    written = writer.finish()
    size = (place / "data" / "a.lance").stat().st_size
    file = DataFile("a.lance", [0, -3], list(written.column_indices), 2, 1, size)
    made = [
        FragmentMetadata(at, [file], len(ids), row_id_meta=RowIdMeta()) for at in range(fragments)
    ]
    operation = glaive.LanceOperation.Overwrite(table.select(["k"]).schema, made)
    return glaive.LanceDataset.commit(str(place), operation, enable_stable_row_ids=True)


@pytest.mark.spec("rel-24")
def test_a_filter_of_many_fragments_of_few_bytes_reads_some_of_them_at_a_time(
    tmp_path: Path,
) -> None:
    dataset = written(tmp_path / "t", 16)
    batches = dataset.to_batches(filter="_row_created_at_version > 99 and k > 5")
    assert traced_peak(lambda: list(batches)) < 8 * 16 * ROWS / 2


@pytest.mark.spec("rel-24")
def test_row_ids_in_files_are_not_kept_decoded(tmp_path: Path) -> None:
    ids = pa.array(np.full(ROWS, 3, np.uint64))
    dataset = hidden(tmp_path / "t", 12, ids)
    rows = [at * ROWS + 5 for at in range(12)]
    taken: list[pa.Table] = []
    found = traced_peak(lambda: taken.append(dataset.take(rows, columns=["_rowid"])))
    assert found < 4 * MIB
    assert taken[0]["_rowid"].to_pylist() == [3] * 12


@pytest.mark.nightly(reason="numbers billions of rows")
@pytest.mark.spec("rel-24")
def test_row_ids_in_files_that_have_few_bytes_are_not_all_kept_to_find_some(tmp_path: Path) -> None:
    hidden(tmp_path / "t", 3, pa.array(np.full(ROWS, 3, np.uint64)))
    search = f"import glaive; glaive.dataset({str(tmp_path / 't')!r}).to_table(filter='_rowid = 3')"
    found = subprocess.run(
        [sys.executable, "-c", search],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "40MiB"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "LimitError: data of" in found.stderr
    assert "'_rowid' would decode to 50331648 bytes" in found.stderr


def test_row_ids_in_files_that_ascend_are_found_without_keeping_them(tmp_path: Path) -> None:
    dataset = hidden(tmp_path / "t", 1, pa.array(np.arange(ROWS, dtype=np.uint64)))
    found = dataset.to_table(filter="_rowid in (3, 5)", columns=["k", "_rowid"])
    assert found["k"].to_pylist() == [3, 5]
