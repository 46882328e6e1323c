"""Names of time zones in ORC files lead to no other files of this machine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

import glaive
from glaive.errors import FormatError

TIMES: Any = pa.array([datetime(2020, 1, 1 + day % 28) for day in range(5_000)], pa.timestamp("ns"))  # noqa: DTZ001  # times without a zone are meant
ROWS = pa.table({"id": range(5_000), "at": TIMES, "all": [[at] for at in TIMES.to_pylist()]})


def hostile(folder: Path, rows: Any) -> Path:
    """A file whose only stripe names a folder above the zones."""
    path = folder / "a.orc"
    orc.write_table(rows, path, compression="uncompressed")
    content = path.read_bytes()
    assert content.count(b"GMT") == 1
    path.write_bytes(content.replace(b"GMT", b"../"))
    return path


@pytest.mark.spec("rel-45")
@pytest.mark.parametrize("column", ["at", "all"])
def test_a_zone_that_leads_out_of_the_zones_is_refused(tmp_path: Path, column: str) -> None:
    source = hostile(tmp_path, ROWS.select(["id", column]))
    with pytest.raises(FormatError, match=r"stripe 0 .* name of a time zone, found b'\.\./'"):
        glaive.ingest(source, tmp_path / "t.lance")
    bad = tmp_path / "bad.lance"
    assert glaive.ingest(source, tmp_path / "u.lance", bad_records=bad).bad_records == 1


def test_a_zone_that_no_column_needs_is_not_looked_at(tmp_path: Path) -> None:
    source = hostile(tmp_path, ROWS.select(["id"]))
    assert glaive.ingest(source, tmp_path / "t.lance").rows == 5_000


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_times_are_read_whatever_codec_a_file_has(tmp_path: Path, codec: Any) -> None:
    options: Any = {"compression": codec, "stripe_size": 1 << 14, "batch_size": 500}
    orc.write_table(ROWS, tmp_path / "a.orc", **options)
    glaive.ingest(tmp_path / "a.orc", tmp_path / "t.lance")
    read = glaive.dataset(tmp_path / "t.lance").to_table()
    assert read.cast(ROWS.schema).equals(ROWS)
