"""The journal of a job in a stranger's dataset: its folder may be a link to any other one there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.ingestion import ingest

FOLDERS = ("data", "_versions", "_refs/tags")


@pytest.mark.spec("sec-6", "rel-16")
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_job_removes_what_its_journal_wrote_and_nothing_else(tmp_path: Path, folder: str) -> None:
    uri, rows = tmp_path / "t.lance", tmp_path / "rows.csv"
    rows.write_text("n\n4\n5\n")
    glaive.write_dataset(pa.table({"n": [1, 2, 3]}), uri).tags.create("kept", 1)
    jobs = uri / "_glaive" / "jobs"
    jobs.mkdir(parents=True)
    try:
        (jobs / "nightly").symlink_to(f"../../{folder}", target_is_directory=True)
    except OSError:
        pytest.skip("this system makes no links")
    before = {path for name in FOLDERS for path in (uri / name).iterdir()}
    assert ingest(rows, uri, mode="append", job_id="nightly").rows == 2
    after = {path for name in FOLDERS for path in (uri / name).iterdir()}
    assert before <= after
    assert glaive.dataset(uri).to_table()["n"].to_pylist() == [1, 2, 3, 4, 5]
    assert glaive.dataset(uri, version="kept").count_rows() == 3
    (written,) = after - before - {path for path in after if path.suffix != ".json"}
    assert written.name == "committed.json"
    assert ingest(rows, uri, mode="append", job_id="nightly").repeated
