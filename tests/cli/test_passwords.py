"""No output of a command has the password or a key of a URL that names a place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result

import glaive

Call = Callable[..., Result]

ROOT = "fsspec+memory://me:MARKED@host"
TABLE = f"{ROOT}/things.lance"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("id\n1\n")
    glaive.write_dataset(pa.table({"id": [1, 2]}), TABLE, mode="overwrite")
    return tmp_path


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "arguments",
    [
        ("show", TABLE),
        ("show", TABLE, "--json"),
        ("inspect", TABLE),
        ("inspect", TABLE, "--json"),
        ("inspect", TABLE, "--html", "page.html"),
        ("doctor", TABLE),
        ("doctor", TABLE, "--json"),
        ("ingest", "x.csv", TABLE, "--mode", "append"),
        ("ingest", "x.csv", TABLE, "--mode", "append", "--job-id", "j", "--json"),
        ("convert", "x.csv", TABLE, "--overwrite"),
        ("convert", "x.csv", TABLE, "--overwrite", "--json"),
        ("convert", "x.csv", TABLE),
        ("convert", TABLE, f"{ROOT}/x.csv"),
        ("convert", f"{ROOT}/none.csv", "y.lance"),
        ("convert", "https://host/x.csv?sig=MARKED", "y.lance"),
        ("inspect", f"{ROOT}/none.lance"),
        ("namespace", "ls", ROOT),
        ("warmup", TABLE),
    ],
)
def test_no_output_has_the_password_of_a_place(
    call: Call, folder: Path, arguments: tuple[str, ...]
) -> None:
    done = call(*arguments)
    pages = [path.read_text() for path in folder.glob("*.html")]
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.output
    assert "MARKED" not in "".join([done.output, *pages])


@pytest.mark.spec("rel-27")
def test_values_of_rows_are_printed_as_they_are(call: Call, folder: Path) -> None:
    link = "https://host/x?sig=value"
    glaive.write_dataset(pa.table({"link": [link]}), str(folder / "links.lance"))
    assert link in call("scan", "links.lance").output
    assert link in call("head", "links.lance").output
