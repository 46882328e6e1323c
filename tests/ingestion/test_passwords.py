"""Sources in a place whose URI has a password."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

import glaive
from glaive.errors import OptionError
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


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize("source", ["in", "in/*"], ids=["folder", "pattern"])
def test_no_row_and_no_error_has_the_key_of_a_signed_address(source: str, tmp_path: Path) -> None:
    """As pages of a server list them."""
    place, bad = f"fsspec+memory://signed/{source}", tmp_path / "bad.lance"
    with fsspec.open("memory://signed/in/x.csv?v=1&sig=MARKED", "w") as out:
        out.write("id\n1\nx\n")
    with pytest.raises(OptionError, match="no common format") as failed:
        glaive.ingest(place, tmp_path / "t.lance")
    assert "MARKED" not in str(failed.value)
    glaive.ingest(place, tmp_path / "t.lance", format="csv", schema="id int", bad_records=bad)
    (row,) = glaive.dataset(bad).to_table(columns=["file"]).to_pylist()
    assert row["file"] == "fsspec+memory://signed/in/x.csv?v=1&sig=***"
    glaive.ingest(place, tmp_path / "b.lance", format="binary")
    (row,) = glaive.dataset(tmp_path / "b.lance").to_table(columns=["path"]).to_pylist()
    assert row["path"] == "x.csv?v=1&sig=***"
    (file,) = list_sources([place])
    assert "MARKED" not in f"{file!r} {file.named}"
