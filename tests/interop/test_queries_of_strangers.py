"""What a query reaches besides its tables: nothing."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import DataFileMissingError, GlaiveError, OptionError

pytest.importorskip("datafusion", reason="install the 'interop' group")

pytestmark = pytest.mark.spec("sec-12")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM 'rows.csv'",
        "COPY (SELECT 1) TO 'made.csv'",
        "CREATE EXTERNAL TABLE made STORED AS CSV LOCATION 'rows.csv'",
        "CREATE TABLE made AS SELECT 1",
        "INSERT INTO t VALUES (2)",
        "SET datafusion.execution.batch_size = 5",
    ],
)
def test_a_query_has_no_access_to_files_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    (tmp_path / "rows.csv").write_text("a\nof others\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="sql: "):
        glaive.sql(query, t=pa.table({"a": [1]})).read_all()
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.spec("rel-31")
def test_a_query_that_failed_over_a_file_holds_nothing_afterwards(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    for file in (tmp_path / "t" / "data").iterdir():
        file.unlink()
    dataset = glaive.dataset(tmp_path / "t")
    with pytest.raises(DataFileMissingError):
        dataset.sql("SELECT * FROM dataset").build().to_batch_records()
    held = weakref.ref(dataset)
    del dataset
    gc.collect()
    assert held() is None  # nor are the threads and the memory of the engine, which held it


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("text", [b"a" * 20 + b"\xf0", b"\xe2\x82", b"e\xcc" * 15])
@pytest.mark.parametrize("word", ["a", "upper(a)", "reverse(a)", "substr(a, 2, 30)"])
@pytest.mark.parametrize("stored", [True, False])
def test_texts_that_are_not_utf8_are_an_error(
    tmp_path: Path, text: bytes, word: str, *, stored: bool
) -> None:
    rows: Any = pa.table({"a": pa.array([text]).view(pa.string())})
    if stored:
        glaive.write_dataset(rows, tmp_path / "t")
    table = tmp_path / "t" if stored else rows
    with pytest.raises((GlaiveError, pa.ArrowInvalid), match="UTF"):
        glaive.sql(f"SELECT {word} AS b FROM t", t=table).read_all()
