"""What a query reaches besides its tables: nothing that it did not write itself."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.dataset import interop
from glaive.errors import DataFileMissingError, GlaiveError, MissingDependencyError, OptionError

duckdb: Any = pytest.importorskip("duckdb", reason="install the 'interop' group")

pytestmark = pytest.mark.spec("sec-12")

FOLDER = "(SELECT value FROM duckdb_settings() WHERE name = 'temp_directory')"


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files of other queries."""
    others = tmp_path / ".tmp"
    others.mkdir()
    (others / "rows.csv").write_text("a\nof others\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('.tmp/rows.csv')",
        "SELECT * FROM '.tmp/rows.csv'",
        "SELECT * FROM glob('.tmp/*')",
        "COPY (SELECT 1) TO '.tmp/made.csv'",
        "COPY (SELECT 1) TO ':memory:' (FORMAT csv)",
        "COPY (SELECT 1) TO ':memory:.wal' (FORMAT csv)",
        "ATTACH '.tmp/made.db' AS made; SELECT 1",
        "EXPORT DATABASE '.tmp/made'",
        "SELECT 1; COPY (SELECT 1) TO 'made.csv'; SELECT 2",
    ],
)
def test_a_query_has_no_access_to_files_of_the_working_directory(working: Path, query: str) -> None:
    before = sorted(working.rglob("*"))
    with pytest.raises(OptionError, match="sql: Permission Error"):
        glaive.sql(query, t=pa.table({"a": [1]})).read_all()
    assert sorted(working.rglob("*")) == before


def test_what_a_query_has_written_beside_its_temporary_files_goes_with_it(working: Path) -> None:
    name = f"SET VARIABLE folder = {FOLDER}; SELECT getvariable('folder') AS folder"
    reader = glaive.sql(f"{name} FROM t", t=pa.table({"a": [1]}))
    folder = Path(reader.read_next_batch()["folder"][0].as_py())
    assert folder.parent == working
    assert not folder.exists()  # a query that fits into memory needs none
    folder.mkdir()
    (folder / "written.csv").write_text("a\n1\n")
    del reader
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("answer", ["'no JSON'", "'[]'", "NULL"])
def test_a_query_may_make_a_macro_with_the_name_of_a_function_of_the_parser(
    tmp_path: Path, answer: str
) -> None:
    dataset = glaive.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "t")
    name = "json_serialize_sql(query, skip_null := 1, skip_empty := 1)"
    query = f"CREATE MACRO {name} AS {answer}; SELECT sum(a) AS total FROM dataset"
    (batch,) = dataset.sql(query).build().to_batch_records()
    assert batch.to_pydict() == {"total": [3]}


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
    assert held() is None  # nor are the threads and the memory of DuckDB, which held it


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("text", [b"a" * 20 + b"\xf0", b"\xe2\x82", b"e\xcc" * 15])
@pytest.mark.parametrize(
    "word", ["a", "upper(a)", "reverse(a)", "substr(a, 2, 30)", "nfc_normalize(a)"]
)
def test_texts_that_are_not_utf8_give_their_own_bytes_or_an_error(
    tmp_path: Path, text: bytes, word: str
) -> None:
    rows: Any = pa.table({"a": pa.array([text]).view(pa.string())})
    glaive.write_dataset(rows, tmp_path / "t")
    try:
        found: Any = glaive.sql(f"SELECT {word} AS b FROM t", t=tmp_path / "t").read_all()["b"]
    except GlaiveError:
        return
    assert found.cast(pa.binary())[0].as_py() in text


@pytest.mark.parametrize("version", ["1.5.6", "0.10.3"])
def test_versions_of_duckdb_that_trust_texts_are_not_asked(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(duckdb, "__version__", version)
    with pytest.raises(MissingDependencyError, match=rf"DuckDB 2 or newer, found {version}"):
        glaive.sql("SELECT * FROM t", t=pa.table({"a": [1]}))


def test_a_small_table_with_large_rows_may_write_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, shared = vars(interop)["_CONFINED"], vars(interop)["_shared"]
    monkeypatch.setattr(interop, "_CONFINED", {"memory_limit": "'100MB'", **settings})
    shared.cache_clear()
    texts = [f"{n}" * 25_000 for n in range(1000, 3000)]
    dataset = glaive.write_dataset({"t": texts}, tmp_path / "t")
    try:
        found = dataset.sql("SELECT t, count(*) FROM dataset GROUP BY t").build()
        assert sum(map(len, found.to_batch_records())) == 2000
    finally:
        shared.cache_clear()
