"""Parquet files with large rows: batches of few of them, since a batch is held several times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glaive.ingestion.columnar import Parquet
from glaive.ingestion.sources import Rejects, list_sources


@pytest.mark.nightly(reason="parses large rows")
@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("dictionary", [False, ["kind"]])
def test_large_rows_come_in_batches_of_64_mib(tmp_path: Path, dictionary: Any) -> None:
    texts = pa.array([f"{number:03}" + "x" * (1 << 20) for number in range(150)])
    rows = pa.table({"id": range(150), "kind": ["a", "b", "c"] * 50, "text": texts})
    path = str(tmp_path / "a.parquet")
    pq.write_table(rows, path, use_dictionary=dictionary, compression="zstd")
    (file,) = list_sources([path], None)
    source = Parquet({})
    (piece,) = source.pieces(file, 1 << 30)
    batches: Any = source.read(piece, rows.schema, Rejects(keep=False, job_id=None))
    found = [(batch["id"].to_pylist(), batch["text"], batch.nbytes) for batch in batches]
    assert [number for numbers, _, _ in found for number in numbers] == list(range(150))
    assert all(text.as_py()[:3] == f"{number:03}"
               for numbers, texts, _ in found
               for number, text in zip(numbers, texts, strict=True))  # fmt: skip
    assert max(size for _, _, size in found) <= 66 << 20
