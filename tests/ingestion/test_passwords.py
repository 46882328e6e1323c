"""Sources in a place whose URI has a password."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

import glaive
from glaive.ingestion.sources import list_sources, open_source
from glaive.ingestion.task import IngestTask

ROOT = "memory://me:MARKED@host/in"


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize("source", ["x.csv", "", "/*.csv"], ids=["file", "folder", "pattern"])
def test_tasks_open_sources_with_the_password_of_their_uri(source: str, tmp_path: Path) -> None:
    with fsspec.open(f"{ROOT}/x.csv", "w") as out:
        out.write("id\n1\nx\n")
    place = f"fsspec+{ROOT}/{source.lstrip('/')}"
    bad = tmp_path / "bad.lance"

    def threads(tasks: list[IngestTask]) -> object:
        """As tasks of a cluster, which were pickled."""
        for number, task in enumerate(tasks):
            assert "MARKED" not in repr(task)
            yield number, pickle.loads(pickle.dumps(task)).execute()

    done = glaive.ingest(
        place, tmp_path / "t.lance", schema="id bigint", bad_records=bad, driver=threads
    )
    assert (done.rows, done.bad_records) == (1, 1)
    (row,) = glaive.dataset(bad).to_table(columns=["file"]).to_pylist()
    assert row["file"] == "fsspec+memory://me@host/in/x.csv"
    (file,) = list_sources([place])
    assert "MARKED" not in f"{file!r} {file.uri} {file.named}"
    assert open_source(file).read() == b"id\n1\nx\n"
