"""Sessions below a directory that somebody else has made: raw bytes of its own files only."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import AccessError, ObjectNotFoundError
from glaive.file import LanceFileSession


@pytest.mark.spec("sec-5")
def test_a_session_gives_no_bytes_of_a_file_that_a_link_of_a_dataset_leads_to(
    tmp_path: Path,
) -> None:
    made = glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    (tmp_path / "secret").write_text("of others")
    (tmp_path / "t" / "notes").write_text("of the dataset")
    (tmp_path / "t" / "inner").symlink_to("notes")
    (tmp_path / "t" / "data" / "x.lance").symlink_to(tmp_path / "secret")
    session, copy = made.new_file_session(), tmp_path / "copy"

    assert session.read_range("inner", 0, 6) == b"of the"
    with pytest.raises(AccessError, match="is a link to"):
        session.read_range("data/x.lance", 0, 2)
    with pytest.raises(AccessError, match="is a link to"):
        session.download_file("data/x.lance", copy)
    assert not copy.exists()
    allowed = LanceFileSession(tmp_path / "t", {"delete_through_links": "true"})
    assert allowed.read_range("data/x.lance", 0, 2) == b"of"


@pytest.mark.spec("sec-5")
def test_a_session_gives_bytes_of_what_links_of_a_download_lead_to(tmp_path: Path) -> None:
    """As ``huggingface_hub`` keeps files; a link there is no way to other files."""
    snapshot, blobs = tmp_path / "x" / "snapshots" / "1", tmp_path / "x" / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    (blobs / "0123").write_text("downloaded")
    (tmp_path / "secret").write_text("of others")
    (blobs / "4567").symlink_to(tmp_path / "secret")
    (snapshot / "a").symlink_to("../../blobs/0123")
    (snapshot / "b").symlink_to("../../blobs/4567")
    (snapshot / "c").symlink_to("../../blobs/none")
    session, copy = LanceFileSession(snapshot), tmp_path / "copy"

    assert session.read_range("a", 0, 4) == b"down"
    session.download_file("a", copy)
    assert copy.read_text() == "downloaded"
    with pytest.raises(AccessError, match="allows reading"):
        session.read_range("b", 0, 2)
    with pytest.raises(ObjectNotFoundError):
        session.read_range("c", 0, 2)
