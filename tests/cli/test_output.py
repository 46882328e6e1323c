"""What commands print of a stranger's dataset: a terminal obeys none of it."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli, print_traceback
from glaive.cli.output import human_bytes, json_line, print_rows, replacing
from glaive.errors import StoreError

EVIL = "\x1b]0;owned\x07\x9b2J\u202egpj exe\nversion 9: sound\x7f\u200f\u2028"
COMMANDS = [
    ["head", "PLACE"],
    ["head", "PLACE", "--json"],
    ["schema", "PLACE"],
    ["show", "PLACE"],
    ["history", "PLACE"],
    ["inspect", "PLACE"],
    ["inspect", "PLACE", "--json"],
    ["diff", "PLACE", "1", "2"],
    ["diff", "PLACE", "1", "2", "--json"],
    ["scan", "PLACE", "--columns", f"no such {EVIL}"],
    ["tag", "PLACE"],
    ["verify", "PLACE"],
    ["versions", "PLACE"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("cli") / "t")
    rows = pa.table({f"name {EVIL}": [f"value {EVIL}"], "[red]n": [1]})
    dataset = glaive.write_dataset(rows, place, commit_message=f"message {EVIL}")
    dataset.add_columns({f"other {EVIL}": "1"})
    return place


def texts_in(value: Any) -> list[str]:
    """All texts of a JSON value, names as well."""
    if isinstance(value, dict):
        return texts_in([*value.keys(), *value.values()])
    if isinstance(value, list):
        return [text for one in value for text in texts_in(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.spec("rel-36")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: f"{words[0]} {words[-1][:6]}")
def test_control_characters_of_names_and_values_are_written_out(
    place: str, command: list[str]
) -> None:
    result = CliRunner().invoke(cli, [place if word == "PLACE" else word for word in command])
    assert result.output
    hidden = [mark for mark in result.output if not mark.isprintable() and mark != "\n"]
    assert hidden == []
    assert not any(line.startswith("version 9") for line in result.output.splitlines())
    if command[0] in ("diff", "head", "inspect", "scan"):
        assert "\\x1b" in result.output or "\\u001b" in result.output
    if "--json" in command:
        assert any(EVIL in text for text in texts_in(json.loads(result.output)))


@pytest.mark.spec("rel-36")
def test_logs_that_commands_print_are_written_out_likewise(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    CliRunner().invoke(cli, ["count", place])
    handler = logging.lastResort
    assert handler is not None
    handler.handle(logging.makeLogRecord({"msg": f"kept: {EVIL}", "levelno": logging.WARNING}))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kept: \\x1b]0;owned")
    assert line.isprintable()


@pytest.mark.spec("rel-36")
def test_an_error_that_no_command_expected_is_written_out_likewise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        print_traceback(ValueError, error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "ValueError: \\x1b]0;owned" in shown
    assert [mark for mark in shown if not mark.isprintable() and mark != "\n"] == []


@pytest.mark.spec("rel-36")
@pytest.mark.parametrize(
    "command",
    [["tag", "PLACE", "a", EVIL], ["show", "PLACE", EVIL], ["head", "PLACE", "-n", EVIL], [EVIL]],
    ids=["tag", "show", "head", "no command"],
)
def test_names_that_a_shell_has_found_are_written_out_likewise(
    place: str, command: list[str]
) -> None:
    result = CliRunner().invoke(cli, [place if word == "PLACE" else word for word in command])
    assert result.exit_code == 2
    assert "\\x1b]0;owned" in result.output
    assert [mark for mark in result.output if not mark.isprintable() and mark != "\n"] == []


def test_a_position_in_a_filter_is_shown_below_it(place: str) -> None:
    result = CliRunner().invoke(cli, ["count", place, "--filter", "`[red]n` || 1"])
    assert result.output.endswith(" (character 10)\n  `[red]n` || 1\n           ^\n")


def test_a_warning_is_a_line_of_a_command(place: str) -> None:
    words = [sys.executable, "-m", "glaive", "count", place, "--filter", "\"[red]n\" = 'x'"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert done.stderr.startswith("Warning: '[red]n' is a text, and a column has this name: write")


def test_help_of_a_group_has_lines() -> None:
    result = CliRunner().invoke(cli, ["namespace"])
    assert "\nCommands:\n" in result.output


@pytest.mark.spec("rel-36")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8:surrogateescape", "latin-1"])
def test_characters_that_the_terminal_lacks_are_written_out(tmp_path: Path, encoding: str) -> None:
    glaive.write_dataset(pa.table({"a": ["\u65e5"]}), tmp_path / os.fsdecode(b"t\x9b2J.lance"))

    def printed(*words: str) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "glaive", *words],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=True,
        )
        return done.stdout

    listed = printed("ls", f"{tmp_path}")
    assert b"t\\udc9b2J.lance" in listed
    assert b"\x9b" not in listed.replace("\u2500".encode(), b"")  # of the line below the titles
    rows = printed("head", os.fsdecode(bytes(tmp_path) + b"/t\x9b2J.lance"), "--json")
    assert json.loads(rows) == {"a": "\u65e5"}


def test_names_with_brackets_are_no_markup(place: str) -> None:
    assert "[red]n" in CliRunner().invoke(cli, ["head", place]).output


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 B"), (1000, "1.0 kB"), (1_000_000, "1.0 MB"), (10**12, "1.0 TB")]
)
def test_a_thousand_bytes_are_the_next_unit(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_numbers_that_json_does_not_have_are_null() -> None:
    assert json_line({"a": [float("nan"), 1.5, float("-inf")]}) == '{"a": [null, 1.5, null]}'


def test_long_cells_and_lists_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["x" * 60, "y" * 61]
    lists = [[1, 2, 3], [1, 2, 3, 4]]
    print_rows(pa.table({"text": texts, "list": lists}), as_json=False)
    printed = capsys.readouterr().out
    assert "x" * 60 in printed
    assert "y" * 59 + "…" in printed
    assert "y" * 60 not in printed
    assert printed.count("items") == 1
    assert "[1, 2, 3, … 4 items]" in printed


def test_a_cell_does_not_make_all_items_of_a_list_objects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = pa.Array.from_buffers(pa.null(), 1 << 40, [None], 1 << 40)
    lists = pa.LargeListArray.from_arrays(pa.array([0, 1, 1 << 40]), items)
    nested = pa.LargeListArray.from_arrays(pa.array([0, 2, 2]), lists)
    print_rows(pa.table({"few": lists, "nested": nested}), as_json=False)
    printed = capsys.readouterr().out
    many = "[null, null, null, … 1,099,511,627,775 items]"
    assert printed.count(many) == 2
    assert f"[[null], {many}]" in printed


@pytest.mark.spec("rel-20")
@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_page_that_finds_no_place_leaves_the_one_before(tmp_path: Path) -> None:
    glaive.write_dataset({"t": [1]}, tmp_path / "t")
    page = tmp_path / "page.html"
    page.write_text("before")
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)\n"
        "from glaive.cli.main import main\n"
        "main()\n"
    )

    def inspect(limit: int, page: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", "-c", code, f"{limit}", "inspect", f"{tmp_path}/t"]
        command += ["--html", str(page)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    ended = inspect(100, page)
    assert (ended.returncode, page.read_text()) == (1, "before")
    assert ended.stderr.startswith(f"Error: cannot write {page}: File too large. Files of this ")
    gone = tmp_path / "gone" / "page.html"
    assert f"cannot write {gone}: its directory was removed" in inspect(1 << 30, gone).stderr
    assert inspect(1 << 30, page).returncode == 0
    assert "<html" in page.read_text()
    assert "<html" in inspect(1 << 30, Path("/dev/stdout")).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "t"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_trials_without_a_temporary_folder_say_how_to_choose_one(tmp_path: Path) -> None:
    glaive.write_dataset({"t": [1]}, tmp_path / "t")
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from glaive.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-B", "-c", code, "adviser", f"{tmp_path}/t"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: cannot write trials of encodings to a file in ")
    assert "TMPDIR chooses the folder" in ended.stderr


@pytest.mark.spec("rel-20")
@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
@pytest.mark.parametrize("ending", ["arrow", "csv", "json", "parquet"])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, ending: str) -> None:
    glaive.write_dataset({"t": [f"{number * 7919}" for number in range(50_000)]}, tmp_path / "t")
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from glaive.cli.main import main\n"
        "main()\n"
    )
    target = tmp_path / f"made.{ending}"
    command = [
        sys.executable,
        "-B",  # half a file of bytecode would stay
        "-c",
        code,
        "convert",
        f"{tmp_path}/t",
        str(target),
        "--from",
        "lance",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"Error: cannot write {target}: File too large. Files of this process or place have a "
        "limit of size; raise it (ulimit -f).\n"
    )
    assert list(tmp_path.glob("*made*")) == []


@pytest.mark.spec("rel-20")
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EPERM])
def test_any_error_of_the_system_names_the_file_that_is_written(tmp_path: Path, code: int) -> None:
    target = tmp_path / "made"

    def write() -> None:
        with replacing(target) as unfinished:
            unfinished.write_text("half")
            raise OSError(code, f"Error writing bytes to file. Detail: [errno {code}]")

    with pytest.raises(StoreError, match=f"^cannot write {target}: ") as raised:
        write()
    assert (raised.value.errno, list(tmp_path.iterdir())) == (code, [])


@pytest.mark.skipif(sys.platform == "win32", reason="closes a descriptor by its number")
@pytest.mark.parametrize("command", ["scan", "inspect"])
def test_a_command_whose_output_is_closed_ends_without_a_traceback(
    tmp_path: Path, command: str
) -> None:
    glaive.write_dataset({"n": [1]}, tmp_path / "t")
    words = [sys.executable, "-m", "glaive", command, str(tmp_path / "t")]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    ended = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["scan", "--help"], ["ls", "."]])
def test_a_command_that_cannot_print_ends_with_one_line(
    tmp_path: Path, words: list[str], unbuffered: str
) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "glaive", *words]
        if words[0] == "ls":
            glaive.write_dataset({"n": [1]}, tmp_path / "t.lance")
        ended = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "Error: [Errno 28] No space left on device\n"
