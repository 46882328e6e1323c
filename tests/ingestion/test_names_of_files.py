"""Files whose names are no text: a name is bytes, of any encoding."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli
from glaive.errors import FormatError, StoreError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are texts elsewhere")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("n\n1\n")
    (folder / os.fsdecode(b"b\xff.csv")).write_text("n\n2\nx\n")
    return folder


def test_files_whose_names_are_no_text_are_read(folder: Path, tmp_path: Path) -> None:
    lines = glaive.ingest(folder, tmp_path / "t.lance", format="text")
    assert (lines.rows, lines.files) == (5, 2)
    glaive.ingest(folder, tmp_path / "b.lance", format="binary")
    named = glaive.dataset(tmp_path / "b.lance").to_table(columns=["path"])
    assert named["path"].to_pylist() == ["a.csv", "b\\udcff.csv"]


def test_a_bad_record_names_such_a_file(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"b\udcff\.csv, line 3: column n"):
        glaive.ingest(folder, tmp_path / "t.lance", schema="n int")
    bad = tmp_path / "bad.lance"
    assert glaive.ingest(folder, tmp_path / "t.lance", schema="n int", bad_records=bad).rows == 2
    (row,) = glaive.dataset(bad).to_table(columns=["file"]).to_pylist()
    assert row["file"].endswith("b\\udcff.csv")


@pytest.mark.spec("sec-19")
def test_links_to_files_are_read_and_not_folders_behind_links(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    (source / "a.csv").write_text("n\n1\n")
    for name in ("b", "c"):
        (elsewhere / f"{name}.csv").write_text("n\n2\n")
    (source / "b.csv").symlink_to(elsewhere / "b.csv")
    (source / "more").symlink_to(elsewhere)
    target = tmp_path / "t.lance"
    assert (glaive.ingest(source, target).rows, glaive.dataset(target).count_rows()) == (2, 2)
    converted = tmp_path / "c.lance"
    call = ["convert", f"{source}", f"{converted}", "--from", "csv"]
    assert CliRunner().invoke(cli, call).exit_code == 0
    assert glaive.dataset(converted).count_rows() == 2


def test_files_are_read_whose_names_mean_something_else_in_a_uri(tmp_path: Path) -> None:
    """To fsspec, ``::`` ends the path: the file of the folder ``sub`` was read twice."""
    pytest.importorskip("fsspec")
    from tests.distant import DISTANT

    for number, folder in enumerate(("sub", "sub::x")):
        (tmp_path / "in" / folder).mkdir(parents=True)
        (tmp_path / "in" / folder / "a.csv").write_text(f"n\n{number}\n")
    for folder in ("in", "in/"):
        glaive.ingest(
            f"{DISTANT.format(tmp_path)}/{folder}", tmp_path / "t.lance", mode="overwrite"
        )
    assert sorted(glaive.dataset(tmp_path / "t.lance").to_table()["n"].to_pylist()) == [0, 1]


@pytest.mark.spec("rel-20")
@pytest.mark.parametrize("end", ["", "/", "/*.csv", "/a.csv"])
def test_a_source_that_the_system_refuses_to_look_up_is_named(tmp_path: Path, end: str) -> None:
    source = f"{tmp_path}/{'x' * 300}{end}"
    with pytest.raises(StoreError, match=r"cannot look up .*xxx.*too long"):
        glaive.ingest(source, tmp_path / "t.lance")
