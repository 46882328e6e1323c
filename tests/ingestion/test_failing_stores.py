"""Sources whose store fails while they are read: no row is taken for damaged."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc, parquet

import glaive
from glaive.errors import FormatError, StoreError
from glaive.ingestion.sources import BAD_RECORDS, RangeFile, Rejects, list_sources
from glaive.io.access import open_store

ROWS = 20_000


def contents(folder: Path, name: str) -> bytes:
    """A file of several parts."""
    rows: Any = pa.table({"a": range(ROWS), "b": [f"text {row * 7}" for row in range(ROWS)]})
    path = folder / name
    if name.endswith("parquet"):
        parquet.write_table(rows, path, row_group_size=ROWS // 10)
    elif name.endswith("orc"):
        orc.write_table(rows, path, stripe_size=1 << 16, batch_size=1_000)
    else:
        fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
        schema: Any = {"type": "record", "name": "R", "fields": fields}
        with path.open("wb") as file:
            fastavro.writer(file, schema, rows.to_pylist())
    return path.read_bytes()


@pytest.mark.parametrize("name", ["a.parquet", "a.orc", "a.avro"])
def test_rows_that_a_store_did_not_give_are_no_bad_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = f"memory://failing-{name.rpartition('.')[2]}"
    open_store(place).put(name, [contents(tmp_path, name)])
    read, left = RangeFile.read, [10**9]

    def failing(self: RangeFile, size: int = -1) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise StoreError("the store is away")
        return read(self, size)

    monkeypatch.setattr(RangeFile, "read", failing)
    bad = tmp_path / "bad.lance"
    source = f"{place}/{name}"
    assert glaive.ingest(source, tmp_path / "all.lance", bad_records=bad).rows == ROWS
    requests = 10**9 - left[0]
    for allowed in {0, requests // 3, requests // 2, requests - 1}:
        left[0] = allowed
        with pytest.raises(StoreError, match="the store is away"):
            glaive.ingest(source, tmp_path / "t.lance", bad_records=bad)
    assert not bad.exists()
    assert not (tmp_path / "t.lance" / "_versions").exists()


SCRIPT = """
import resource, sys
import glaive

resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.RLIM_INFINITY))
try:
    glaive.ingest(sys.argv[1], sys.argv[2], format=sys.argv[3], bad_records=sys.argv[2] + ".bad")
except glaive.errors.FormatError as error:
    print(error)
"""


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("kind", ["binary", "images"])
def test_a_file_that_is_larger_than_memory_is_an_error_that_names_it(
    tmp_path: Path, kind: str
) -> None:
    source = tmp_path / "a.png"
    source.touch()
    os.truncate(source, 32 << 30)  # a hole, of which an archive has few bytes
    command = [sys.executable, "-c", SCRIPT, source, tmp_path / "t.lance", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{source}: 34359738368 bytes are one value" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.json", "a.txt", "a.bin"])
def test_a_file_that_the_system_cannot_read_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = f"memory://unreadable-{name.replace('.', '-')}"
    open_store(place).put(name, [b"a\n1\n"])

    def failing(*_: object) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(RangeFile, "read", failing)
    format, bad = "binary" if name.endswith("bin") else None, tmp_path / "bad.lance"
    with pytest.raises(StoreError, match=rf"cannot read {place}/{name}: .*[Tt]he disk"):
        glaive.ingest(
            f"{place}/{name}",
            tmp_path / "t.lance",
            format=format,
            schema="a bigint" if "json" in name else None,
            bad_records=bad,
        )
    assert not bad.exists()


def test_bad_records_become_batches_of_a_bounded_size(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_bytes(b"")
    (file,) = list_sources([str(source)])
    rejects = Rejects(keep=True, job_id="job")
    small, large = 25_000, 150
    for line in range(small):
        rejects.add(file, line, "small", b"x")
    for line in range(small, small + large):
        rejects.add(file, line, "large", bytes(2 << 20))
    assert len(rejects) == small + large
    batches = list(rejects.batches())
    assert max(batch.num_rows for batch in batches) < small // 2
    assert max(batch.nbytes for batch in batches) < 70 << 20
    rows = pa.Table.from_batches(batches, BAD_RECORDS)
    assert rows["line"].to_pylist() == list(range(small + large))


def test_a_reason_that_repeats_a_long_value_is_cut_off(tmp_path: Path) -> None:
    source, bad = tmp_path / "a.csv", tmp_path / "bad.lance"
    source.write_text(f"n,m\n1,2\n{'x' * (1 << 20)},3\n")
    schema = "n bigint, m bigint"
    with pytest.raises(FormatError, match="line 3: column n: int64: invalid value") as caught:
        glaive.ingest(source, tmp_path / "t.lance", schema=schema)
    assert len(str(caught.value)) < 10_000
    assert glaive.ingest(source, tmp_path / "t.lance", schema=schema, bad_records=bad).rows == 1
    [reason] = glaive.dataset(bad).to_table()["reason"].to_pylist()
    assert reason.startswith("column n: int64: invalid value 'xxx")
    assert len(reason) < 10_000
